#pragma once
/** @file Problems of attention with options, and what tells check_op about them. */
#include <bs/autograd/sparse_attention.h>
#include <bs/tests/kernels/sparse_attention_rules.h>

#include <random>
#include <string>
#include <vector>

namespace bs::test {

/// Blocks of every head at random.
inline LayoutPtr some_blocks(int heads, int rows, int cols, int block, double density,
                             unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<BlockIndex> blocks;
  for (int h = 0; h < heads; ++h)
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j)
        if (static_cast<double>(generator() % 1000) < 1000 * density) blocks.push_back({h, i, j});
  return Layout::from_blocks(heads, rows, cols, block, blocks);
}

inline LayoutPtr all_blocks(int rows, int cols, int block) {
  return some_blocks(1, rows, cols, block, 2, 1);
}

struct Sizes {
  int64_t batch = 2, heads = 2, kv_heads = 2, queries = 24, keys = 24, head_dim = 8, value_dim = 8;
};

inline std::vector<Shape> shapes(const Sizes& s) {
  return {{s.batch, s.heads, s.queries, s.head_dim},
          {s.batch, s.kv_heads, s.keys, s.head_dim},
          {s.batch, s.kv_heads, s.keys, s.value_dim}};
}

inline const std::vector<DType> all_dtypes = {f64, f32, f16, bf16};
/// For gradients that are zero but for rounding, where no error is small beside them.
inline const std::vector<DType> exact = {f64};

/// Tells check_op about a problem. `more` are the shapes of bias, table and sinks, in this order.
inline void check(const std::string& name, const Sizes& s, const AttentionRules& r,
                  const std::vector<Shape>& more = {},
                  const std::vector<DType>& dtypes = all_dtypes) {
  std::vector<Shape> inputs = shapes(s);
  inputs.insert(inputs.end(), more.begin(), more.end());
  const auto at = [](const Variables& v, int i) {
    return i == 0 ? Variable() : v[static_cast<size_t>(i)];
  };
  check_op(
      {.name = name,
       .inputs = inputs,
       .op =
           [&](const Variables& v) {
             return sparse_attention(
                 v[0], v[1], v[2], r.layout, r.options(),
                 {.bias = at(v, r.bias), .relative_bias = at(v, r.table), .sinks = at(v, r.sinks)});
           },
       .reference = [&](const References& in) { return attend(r, in); },
       .steps = 32,
       .dtypes = dtypes});
}

/// Zeros and ones; every row but the last of a matrix has one.
inline Reference random_mask(const Shape& shape, uint64_t seed) {
  Reference r = random_reference(shape, seed);
  for (double& x : r.values) x = x > -.2 ? 1 : 0;
  return r;
}

}  // namespace bs::test
