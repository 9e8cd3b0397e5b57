#include <bs/bench/plain_case_list.h>
#include <bs/kernels/block_sparse_conv2d.h>
#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/block_sparse_softmax.h>
#include <bs/kernels/block_topk.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/layout_from_rows.h>

#include <algorithm>
#include <string>

namespace bs::bench {

namespace {

/// A square of blocks.
struct Pattern {
  int64_t length;
  int block, each;  ///< each row of blocks has so many

  std::string name() const { return std::to_string(each) + " of " + std::to_string(block); }
  int64_t rows() const { return length / block; }
  bool fits() const { return length % block == 0 && rows() >= each; }
  /// Evenly spread in each row, from another column on, the first one's being `first`.
  Tensor mask(int64_t first = 0) const {
    const int64_t n = rows();
    const Tensor mask = zeros({1, n, n}, boolean);
    bool* at = mask.data<bool>();
    for (int64_t row = 0; row < n; ++row)
      for (int64_t k = 0; k < each; ++k) at[row * n + (first + row * 7 + k * n / each) % n] = true;
    return mask;
  }
};

void add_softmax(Cases& c, const SparseTensor& s, const std::string& name) {
  const double n = c.bytes(s.values.numel());
  const Tensor dy = c.values(s.values.shape());
  c.add("block_sparse_softmax", name.c_str(), 2 * n,
        [s] { return block_sparse_softmax(s, {.scale = 0.125}).values; });
  c.add("block_sparse_softmax causal", name.c_str(), 2 * n,
        [s] { return block_sparse_softmax(s, {.scale = 0.125, .causal = true}).values; });
  const SparseTensor y = block_sparse_softmax(s);
  c.add("block_sparse_softmax_backward", name.c_str(), 3 * n,
        [=] { return block_sparse_softmax_backward(y, dy); });
  const Shape bias{s.layout->height(), s.layout->width()};
  c.add("block_sparse_softmax_bias_gradient", name.c_str(), 2 * n + c.bytes(bias.product()),
        [=] { return block_sparse_softmax_bias_gradient(y, dy, bias); });
}

/// `s` has few matrices, for dense ones are large.
void add_conversions(Cases& c, const SparseTensor& s, const std::string& name) {
  const Tensor dense = to_dense(s);
  const double stored = c.bytes(s.values.numel()), all = c.bytes(dense.numel());
  c.add("to_dense", name.c_str(), stored + all, [s] { return to_dense(s); });
  c.add("to_sparse", name.c_str(), 2 * stored,
        [dense, layout = s.layout] { return to_sparse(dense, layout).values; });
}

/// Layouts themselves are not compared: their tests do that.
void add_layouts(Cases& c, const Pattern& pattern, int64_t heads) {
  const std::string name = pattern.name();
  const int64_t n = pattern.rows();
  const int block = pattern.block, each = pattern.each;
  const LayoutPtr from = Layout::from_mask(pattern.mask(), block),
                  into = Layout::from_mask(pattern.mask(3), block);
  const Tensor values = c.values({from->nnz(), block, block}), scores = c.values({heads, n, n});
  c.add("relayout", name.c_str(), 2 * c.bytes(values.numel()),
        [=] { return relayout(values, from, into); });
  const auto made = [&](const char* what, double moved, auto make) {
    c.add(what, name.c_str(), moved, [make]() -> std::vector<Tensor> {
      make();
      return {};
    });
  };
  made("block_topk", c.bytes(scores.numel()),
       [=] { return block_topk(scores, each, {.block = block}); });
  made("layout_from_mask", static_cast<double>(n * n),
       [=, mask = to(pattern.mask(), c.device()), nnz = from->nnz()] {
         return layout_from_mask(mask, block, nnz);
       });
}

}  // namespace

void add_blocks(Cases& c) {
  const Pattern patterns[] = {{0, 16, 2}, {0, 16, 16}, {0, 32, 2},  {0, 32, 8},
                              {0, 64, 2}, {0, 64, 8},  {0, 128, 1}, {0, 128, 4}};
  for (Pattern pattern : patterns) {
    pattern.length = c.rows / 4;
    if (!pattern.fits()) continue;
    const LayoutPtr layout = Layout::from_mask(pattern.mask(), pattern.block);
    const int64_t matrices = std::max<int64_t>(1, c.columns / 64);
    const auto sparse = [&](int64_t count) {
      return SparseTensor{layout, c.values({count, layout->nnz(), pattern.block, pattern.block})};
    };
    add_softmax(c, sparse(matrices), pattern.name());
    add_conversions(c, sparse(std::max<int64_t>(1, matrices / 4)), pattern.name());
    add_layouts(c, pattern, matrices);
  }
}

}  // namespace bs::bench
