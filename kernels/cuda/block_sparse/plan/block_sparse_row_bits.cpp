#include <bs/kernels/cuda/block_sparse/plan/block_sparse_row_bits.h>

#include <algorithm>

namespace bs::cuda {

RowBits::RowBits(const LayoutRows& from) {
  const auto rows = static_cast<size_t>(from.heads) * static_cast<size_t>(from.rows);
  const auto blocks = static_cast<size_t>(from.offsets[rows]);
  words_.resize(1 + std::min(blocks, rows * (static_cast<size_t>(from.cols) / 64 + 1)));
  offsets_.resize(rows + 1);
  size_t count = 0;
  for (size_t row = 0; row < rows; ++row) {
    offsets_[row] = count;
    RowWord last{.word = -1, .bits = 0};
    for (int32_t i = from.offsets[row]; i < from.offsets[row + 1]; ++i) {
      const auto col = static_cast<uint32_t>(from.col[i]);
      const auto word = static_cast<int32_t>(col / 64);
      const uint64_t next = word != last.word ? 1 : 0;  // no branch, which none would foresee
      count += next;
      last = {.word = word, .bits = (last.bits & (next - 1)) | uint64_t{1} << col % 64};
      words_[count - 1] = last;
    }
  }
  offsets_[rows] = count;
}

Kept<RowBits> row_bits_of(const Layout& layout, bool transposed) {
  struct Key {
    bool transposed;
    bool operator==(const Key&) const = default;
  };
  return layout.derived<RowBits>(
      Key{transposed}, [&] { return RowBits(LayoutRows(layout.view(Device::cpu()), transposed)); });
}

}  // namespace bs::cuda
