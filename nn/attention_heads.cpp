#include <bs/nn/attention_heads.h>

#include <bs/autograd/rope.h>
#include <bs/autograd/view.h>
#include <bs/kernels/index_select.h>

#include <algorithm>
#include <span>

namespace bs::nn::detail {

Variable split_heads(const Variable& x, int64_t head_dim) {
  const Variable split = view(x, {x.size(0), x.size(1), x.size(2) / head_dim, head_dim});
  return permute(split, {0, 2, 1, 3});
}

Variable join_heads(const Variable& x) {
  const Variable rows = permute(x, {0, 2, 1, 3});
  return view(rows, {rows.size(0), rows.size(1), rows.size(2) * rows.size(3)});
}

namespace {

/// The rope_table of the tokens of x.
Tensor table_of(const Variable& x, double base, int64_t first, const std::vector<int64_t>& starts) {
  const DType dtype = x.dtype() == f64 ? f64 : f32;
  if (starts.empty()) return rope_table(x.size(2), x.size(3), base, first, dtype, x.device());
  std::vector<int64_t> places;
  int64_t longest = 0;
  for (size_t s = 1; s < starts.size(); ++s) {
    longest = std::max(longest, starts[s] - starts[s - 1]);
    for (int64_t i = starts[s - 1]; i < starts[s]; ++i) places.push_back(i - starts[s - 1]);
  }
  const Tensor table = rope_table(longest, x.size(3), base, first, dtype, x.device());
  const auto count = static_cast<int64_t>(places.size());
  const Tensor rows = Tensor::from(std::span<const int64_t>(places), {count}).to(x.device());
  return index_select(table, 0, rows);
}

}  // namespace

void turn(AttentionHeads& heads, double base, int64_t first,
          const std::vector<int64_t>& query_starts, const std::vector<int64_t>& key_starts) {
  const Tensor table = table_of(heads.q, base, first, query_starts);
  const bool alike = query_starts == key_starts && heads.q.size(2) == heads.k.size(2);
  heads.k = rope(heads.k, alike ? table : table_of(heads.k, base, first, key_starts));
  heads.q = rope(heads.q, table);
}

}  // namespace bs::nn::detail
