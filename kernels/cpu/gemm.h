#pragma once
/// @file
/// Dense products on the CPU. Sums of products over a block pattern: see panels.h.
#include <bs/kernels/cpu/panels.h>
#include <bs/lib/tensor.h>

namespace bs::cpu {

struct GemmShape {
  int64_t batch = 1;
  int64_t m = 0, n = 0, k = 0;
};

/// Element (row r, column c) of matrix i lies at `data[i * batch + r * row + c * col]`.
template <class T>
struct Matrices {
  T* data = nullptr;
  int64_t batch = 0, row = 0, col = 1;

  Matrices transposed() const { return {data, batch, col, row}; }
};

/// The matrix of the last two axes.
template <class T>
Matrices<T> matrix_of(const Tensor& x) {
  return {x.data<std::remove_const_t<T>>(), 0, x.strides()[-2], x.strides()[-1]};
}

/// C (m x n) = beta C + A B for each of a batch, on up to threads() threads. T is the
/// type of the sum, to which inputs are converted; C is rounded once, and not read when beta is 0.
/// The depth is never split between threads: the same bits for any number of them.
template <class T, class In, class Out>
void gemm(const GemmShape& shape, const Matrices<const In>& a, const Matrices<const In>& b, T beta,
          const Matrices<Out>& c);

}  // namespace bs::cpu
