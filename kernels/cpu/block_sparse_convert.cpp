#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/cpu/parallel.h>

#include <algorithm>
#include <cstddef>

namespace bs::cpu {

namespace {

/// Calls `line(z, head, row, i)` for each row of elements, i within block row `row`, in parallel.
template <class Line>
void for_each_line(int64_t matrices, const LayoutView& l, Line&& line) {
  const int64_t lines = matrices * l.heads * l.rows * l.block;
  const int64_t width = int64_t{l.cols} * l.block;
  parallel_for(lines, elementwise_grain / std::max<int64_t>(width, 1),
               [&](int64_t begin, int64_t end) {
                 for (int64_t at = begin; at < end; ++at) {
                   const int64_t i = at % l.block, row = at / l.block % l.rows;
                   const int64_t head = at / l.block / l.rows % l.heads;
                   line(at / l.block / l.rows / l.heads, head, row, i);
                 }
               });
}

}  // namespace

void to_dense(const Tensor& values, const LayoutView& l, const Tensor& dense, Stream) {
  visit_floating("to_dense", values.dtype(), [&]<class T>(Type<T>) {
    const T* from = values.data<T>();
    T* to = dense.data<T>();
    const int64_t area = int64_t{l.block} * l.block, width = int64_t{l.cols} * l.block;
    const int64_t matrices = dense.numel() / (int64_t{l.heads} * l.rows * l.block * width);
    for_each_line(matrices, l, [=](int64_t z, int64_t head, int64_t row, int64_t i) {
      T* out = to + (((z * l.heads + head) * l.rows + row) * l.block + i) * width;
      const int32_t* offsets = l.row_offsets + head * l.rows + row;
      std::fill_n(out, width, T());
      for (int64_t e = offsets[0]; e < offsets[1]; ++e)
        std::copy_n(from + (z * l.nnz + e) * area + i * l.block, l.block,
                    out + int64_t{l.col_of[e]} * l.block);
    });
  });
}

void to_sparse(const Tensor& dense, const LayoutView& l, const Tensor& values, Stream) {
  visit_floating("to_sparse", values.dtype(), [&]<class T>(Type<T>) {
    const T* from = dense.data<T>();
    T* to = values.data<T>();
    const int64_t area = int64_t{l.block} * l.block, width = int64_t{l.cols} * l.block;
    const int64_t matrices = values.numel() / (l.nnz * area);
    for_each_line(matrices, l, [=](int64_t z, int64_t head, int64_t row, int64_t i) {
      const T* in = from + (((z * l.heads + head) * l.rows + row) * l.block + i) * width;
      const int32_t* offsets = l.row_offsets + head * l.rows + row;
      for (int64_t e = offsets[0]; e < offsets[1]; ++e)
        std::copy_n(in + int64_t{l.col_of[e]} * l.block, l.block,
                    to + (z * l.nnz + e) * area + i * l.block);
    });
  });
}

void relayout(const Tensor& values, const LayoutView& from, const LayoutView& to,
              const Tensor& moved, Stream) {
  const size_t bytes = moved.bytes() / static_cast<size_t>(to.nnz);
  const auto* const blocks = static_cast<const std::byte*>(values.data());
  auto* const out = static_cast<std::byte*>(moved.data());
  parallel_for(to.nnz, 1 + elementwise_grain / (int64_t{to.block} * to.block),
               [&](int64_t begin, int64_t end) {
                 for (int64_t n = begin; n < end; ++n) {
                   const int64_t line = int64_t{to.head_of[n]} * to.rows + to.row_of[n];
                   const int32_t* const first = from.col_of + from.row_offsets[line];
                   const int32_t* const last = from.col_of + from.row_offsets[line + 1];
                   const int32_t* const at = std::lower_bound(first, last, to.col_of[n]);
                   std::byte* const block = out + static_cast<size_t>(n) * bytes;
                   if (at != last && *at == to.col_of[n]) {
                     const auto source = static_cast<size_t>(at - from.col_of);
                     std::copy_n(blocks + source * bytes, bytes, block);
                   } else {
                     std::fill_n(block, bytes, std::byte{0});
                   }
                 }
               });
}

}  // namespace bs::cpu
