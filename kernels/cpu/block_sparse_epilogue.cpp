#include <bs/kernels/cpu/block_sparse_epilogue.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <limits>

namespace bs::cpu {

namespace {

template <class W>
W both(bool is_max, W x, W y) {
  return !is_max ? x + y : x > y || x != x ? x : y;
}

}  // namespace

template <class W>
EpilogueReductions<W>::EpilogueReductions(const BlockSparseEpilogue* e, const Shape& result,
                                          int64_t rows, int64_t columns)
    : e_(e), rows_(rows), columns_(columns) {
  if (!e) return;
  for (size_t i = 0; i < e->reductions.size(); ++i) {
    const int64_t extent = result[over_columns(i) ? 2 : 1], side = over_columns(i) ? columns : rows;
    partials_.push_back(
        Tensor::empty({result[0], ceil_div(extent, side), result[over_columns(i) ? 1 : 2]},
                      e->reductions[i].dtype()));
    std::fill_n(partials_.back().data<W>(), partials_.back().numel(), nothing(i));
  }
}

template <class W>
W EpilogueReductions<W>::nothing(size_t i) const {
  return is_max(i) ? -std::numeric_limits<W>::infinity() : W(0);
}

template <class W>
void EpilogueReductions<W>::take(const EpilogueRows<W>& rows, EpiloguePlace in, int64_t count) {
  for (size_t i = 0; i < partials_.size(); ++i) {
    const W* const values = rows.values(e_->expression.reductions()[i].step);
    const Tensor& t = partials_[i];
    W* const of_batch = t.data<W>() + in.batch * t.strides()[0];
    const bool max = is_max(i);
    if (over_columns(i)) {
      for (int64_t j = 0; j < count;) {
        const int64_t piece = (in.column + j) / columns_;
        const int64_t end = std::min(count, (piece + 1) * columns_ - in.column);
        W& slot = of_batch[piece * t.strides()[1] + in.row];
        W total = slot;
        for (; j < end; ++j) total = both(max, total, values[j]);
        slot = total;
      }
    } else {
      W* const to = of_batch + in.row / rows_ * t.strides()[1] + in.column;
      for (int64_t j = 0; j < count; ++j) to[j] = both(max, to[j], values[j]);
    }
  }
}

template <class W>
void EpilogueReductions<W>::reduce() const {
  for (size_t i = 0; i < partials_.size(); ++i) {
    const Tensor& t = partials_[i];
    const int64_t parts = t.size(1), length = t.size(2);
    const bool max = is_max(i);
    W* const out = e_->reductions[i].data<W>();
    parallel_for(t.size(0) * length, elementwise_grain / (parts + 1) + 1,
                 [&](int64_t begin, int64_t end) {
                   for (int64_t at = begin; at < end; ++at) {
                     const W* from = t.data<W>() + at / length * parts * length + at % length;
                     W total = nothing(i);
                     for (int64_t j = 0; j < parts; ++j) total = both(max, total, from[j * length]);
                     out[at] = total;
                   }
                 });
  }
}

template <class W>
void EpilogueReductions<W>::reduce(const LayoutView& layout) const {
  const int64_t block = layout.block;
  for (size_t i = 0; i < partials_.size(); ++i) {
    const int64_t lines = over_columns(i) ? layout.rows : layout.cols;
    const int32_t* const offsets = over_columns(i) ? layout.row_offsets : layout.col_offsets;
    const int64_t of_batch = layout.nnz * block;
    const bool max = is_max(i);
    // A line of blocks of one matrix has `block` numbers.
    parallel_for(e_->reductions[i].numel() / block, 16, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; ++at) {
        W* const out = e_->reductions[i].data<W>() + at * block;
        const W* const from = partials_[i].data<W>() + at / (lines * layout.heads) * of_batch;
        const int64_t line = at % (lines * layout.heads);
        std::fill_n(out, block, nothing(i));
        for (int32_t entry = offsets[line]; entry < offsets[line + 1]; ++entry) {
          const int64_t number = over_columns(i) ? entry : layout.transposed[entry];
          for (int64_t j = 0; j < block; ++j) out[j] = both(max, out[j], from[number * block + j]);
        }
      }
    });
  }
}

template class EpilogueReductions<float>;
template class EpilogueReductions<double>;

}  // namespace bs::cpu
