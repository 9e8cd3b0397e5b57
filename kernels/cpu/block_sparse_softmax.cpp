#include <bs/kernels/block_sparse_softmax.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/cpu/vector_math.h>

#include <limits>
#include <vector>

namespace bs::cpu {

namespace {

/// One row of elements: its pieces of `block` elements lie one block apart.
struct Row {
  int64_t matrix;      ///< of the batch
  int64_t index;       ///< element row within its head
  int64_t at;          ///< offset of the first piece
  const int32_t* col;  ///< block column of each piece
  int64_t pieces;
};

/// Calls `visit(row)` for every row of every matrix; threads take block row after block row.
template <class Visit>
void for_each_row(const LayoutView& l, int64_t numel, Visit&& visit) {
  const int64_t area = int64_t{l.block} * l.block;
  const int64_t lines = int64_t{l.heads} * l.rows, matrices = numel / (l.nnz * area);
  const int team = team_size(static_cast<double>(numel), elementwise_grain);
  parallel_each(matrices * lines, team, [&](int64_t task) {
    const int64_t z = task / lines, line = task % lines;
    const int32_t first = l.row_offsets[line];
    for (int64_t i = 0; i < l.block; ++i)
      visit(Row{.matrix = z,
                .index = line % l.rows * l.block + i,
                .at = (z * l.nnz + first) * area + i * l.block,
                .col = l.col_of + first,
                .pieces = l.row_offsets[line + 1] - first});
  });
}

/// Brings the pieces of a row together in `row`.
template <class T>
void gather(const T* x, const Row& r, int64_t block, Wide<T>* row) {
  for (int64_t p = 0; p < r.pieces; ++p, row += block) {
    const T* piece = x + r.at + p * block * block;
    if constexpr (RowBuffer<T>::converts) {
      widen(block, piece, row);
    } else {
      std::copy_n(piece, block, row);
    }
  }
}

template <class T>
void scatter(const Wide<T>* row, const Row& r, int64_t block, T* y) {
  for (int64_t p = 0; p < r.pieces; ++p, row += block) {
    T* piece = y + r.at + p * block * block;
    if constexpr (RowBuffer<T>::converts) {
      narrow(block, row, piece);
    } else {
      std::copy_n(row, block, piece);
    }
  }
}

/// Puts -infinity where the options hide elements.
template <class W>
void hide(const Row& r, int64_t block, bool causal, const bool* keep, W* row) {
  constexpr W hidden = -std::numeric_limits<W>::infinity();
  for (int64_t p = 0; p < r.pieces; ++p, row += block) {
    const int64_t column = r.col[p] * block;
    if (causal) {
      const int64_t seen = std::clamp<int64_t>(r.index + 1 - column, 0, block);
      std::fill(row + seen, row + block, hidden);
    }
    if (keep)
      for (int64_t j = 0; j < block; ++j) row[j] = keep[column + j] ? row[j] : hidden;
  }
}

template <class W>
void softmax_row(W* row, int64_t n) {
  constexpr W lowest = -std::numeric_limits<W>::infinity();
  W top = lowest;
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < n; ++i) top = row[i] > top ? row[i] : top;
  if (top == lowest) top = 0;
  const W sum = sum_of<W>(n, [=](int64_t i) { return row[i] = math::exp(row[i] - top); });
  const W factor = sum == 0 ? W(0) : 1 / sum;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) row[i] *= factor;
}

template <class W>
void softmax_backward_row(const W* y, W* dy, int64_t n, W scale) {
  const W dot = sum_of<W>(n, [=](int64_t i) { return y[i] * dy[i]; });
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dy[i] = scale * y[i] * (dy[i] - dot);
}

/// Room for `rows` rows like `r`, of the calling thread's own.
template <class W>
W* buffer(const Row& r, int64_t block, int64_t rows) {
  thread_local std::vector<W> elements;
  const auto wanted = static_cast<size_t>(r.pieces * block * rows);
  if (elements.size() < wanted) elements.resize(wanted);
  return elements.data();
}

}  // namespace

void block_sparse_softmax(const Tensor& x, const Layout& layout, const Tensor& y,
                          const BlockSparseSoftmaxOptions& options, Stream) {
  const LayoutView l = layout.view(Device::cpu());
  const Tensor& mask = options.key_padding_mask;
  const int64_t matrices = x.numel() / (int64_t{l.nnz} * l.block * l.block);
  const int64_t matrices_a_mask = mask.defined() ? matrices / mask.size(0) : 1;
  visit_floating("block_sparse_softmax", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    for_each_row(l, x.numel(), [&](const Row& r) {
      W* row = buffer<W>(r, l.block, 1);
      const int64_t n = r.pieces * l.block;
      gather(x.data<T>(), r, l.block, row);
      if (options.scale != 1)
        for (int64_t i = 0; i < n; ++i) row[i] *= static_cast<W>(options.scale);
      const bool* keep = nullptr;
      if (mask.defined()) keep = mask.data<bool>() + r.matrix / matrices_a_mask * mask.size(1);
      if (keep || options.causal) hide(r, l.block, options.causal, keep, row);
      softmax_row(row, n);
      scatter(row, r, l.block, y.data<T>());
    });
  });
}

void block_sparse_softmax_backward(const Tensor& y, const Tensor& dy, const Layout& layout,
                                   const Tensor& dx, double scale, Stream) {
  const LayoutView l = layout.view(Device::cpu());
  visit_floating("block_sparse_softmax_backward", y.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    for_each_row(l, y.numel(), [&](const Row& r) {
      const int64_t n = r.pieces * l.block;
      W* out = buffer<W>(r, l.block, 2);
      W* gradient = out + n;
      gather(y.data<T>(), r, l.block, out);
      gather(dy.data<T>(), r, l.block, gradient);
      softmax_backward_row(out, gradient, n, static_cast<W>(scale));
      scatter(gradient, r, l.block, dx.data<T>());
    });
  });
}

void block_sparse_softmax_bias_gradient(const Tensor& y, const Tensor& dy, const Layout& layout,
                                        const Tensor& ds, Stream) {
  const LayoutView l = layout.view(Device::cpu());
  const int64_t count = y.size(1), after = y.size(2);
  const int64_t matrix = int64_t{l.nnz} * l.block * l.block;
  visit_floating("block_sparse_softmax_bias_gradient", y.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    for_each_row(l, ds.numel(), [&](const Row& r) {
      const int64_t n = r.pieces * l.block;
      W* const sums = buffer<W>(r, l.block, 3);
      W *const out = sums + n, *const gradient = out + n;
      std::fill_n(sums, n, W(0));
      Row from = r;
      from.at += r.matrix / after * (count - 1) * after * matrix;
      for (int64_t m = 0; m < count; ++m, from.at += after * matrix) {
        gather(y.data<T>(), from, l.block, out);
        gather(dy.data<T>(), from, l.block, gradient);
        softmax_backward_row(out, gradient, n, W(1));
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) sums[i] += gradient[i];
      }
      if (ds.dtype() != y.dtype()) return scatter(sums, r, l.block, ds.data<W>());
      scatter(sums, r, l.block, ds.data<T>());
    });
  });
}

}  // namespace bs::cpu
