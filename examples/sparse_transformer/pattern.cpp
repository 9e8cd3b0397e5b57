#include <bs/examples/sparse_transformer/pattern.h>

#include <algorithm>

namespace bs::example {
namespace {

/// The layout and the blocks on its diagonal: no position without one to look at.
LayoutPtr with_diagonal(const Layout& layout) {
  std::vector<BlockIndex> blocks;
  for (int head = 0; head < layout.heads(); ++head)
    for (int row = 0; row < layout.rows(); ++row)
      for (int col = 0; col <= row; ++col)
        if (row == col || layout.contains(head, row, col)) blocks.push_back({head, row, col});
  return Layout::from_blocks(layout.heads(), layout.rows(), layout.cols(), layout.block(),
                             std::move(blocks));
}

LayoutPtr make(const PatternOptions& o, patterns::Size size, uint64_t seed) {
  if (!o.per_head) size.heads = 1;  // one for all
  const int window = std::min(o.window_blocks, size.rows);
  if (o.name == "fixed")
    return patterns::fixed(size,
                           {.local_blocks = o.local_blocks,
                            .global_blocks = o.global_blocks,
                            .global_patterns = o.per_head ? o.local_blocks / o.global_blocks : 1,
                            .causal = true});
  if (o.name == "strided")
    return patterns::strided(size, {.stride = o.stride, .alternate_heads = o.per_head});
  if (o.name == "bigbird")
    return patterns::bigbird(size, {.random_blocks = o.random_blocks,
                                    .window_blocks = window,
                                    .global_blocks = o.global_blocks,
                                    .seed = seed,
                                    .different_per_head = o.per_head,
                                    .causal = true});
  if (o.name == "longformer")
    return patterns::longformer(
        size, {.window_blocks = window, .globals = {{0, o.global_blocks}}, .causal = true});
  if (o.name == "sliding") return patterns::sliding_window(size, {.window_blocks = window});
  if (o.name == "random")
    return with_diagonal(*patterns::random(
        size,
        {.density = o.density, .seed = seed, .different_per_head = o.per_head, .causal = true}));
  return patterns::dense(size, {.causal = true});
}

}  // namespace

nn::Pattern make_pattern(const PatternOptions& options, uint64_t seed) {
  return [options, seed](const patterns::Size& size) { return make(options, size, seed); };
}

}  // namespace bs::example
