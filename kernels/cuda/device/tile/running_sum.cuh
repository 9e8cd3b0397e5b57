#pragma once
// log(sum(exp(x))) in one pass over x.
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

namespace bs::cuda::device {

/// The largest value so far, and the sum of all exp(value - largest): one pass over a row is enough
/// (Milakov, Gimelshein, 2018).
template <class W>
struct RunningSum {
  static constexpr W log2_e = W(1.4426950408889634);

  W top = minus_infinity<W>();
  W sum = 0;

  template <int N>
  __device__ void add(const W (&values)[N]) {
    W highest = values[0];
#pragma unroll
    for (int i = 1; i < N; ++i) highest = fmax(highest, values[i]);
    raise(highest);
    add_under_top(values);
  }
  /// Makes `top` the largest value so far, `highest` being that of the values to come.
  __device__ void raise(W highest) {
    if (highest > top) {
      sum = sum_under(highest);
      top = highest;
    }
  }
  template <int N>
  __device__ void add_under_top(const W (&values)[N]) {
    const W base = base_of(top);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += exp2_of((values[i] - base) * log2_e);
  }
  /// The sum as it is under another, larger top.
  __device__ W sum_under(W highest) const {
    return sum * exp2_of((top - base_of(highest)) * log2_e);
  }
  __device__ W log() const { return base() + ::log(sum); }
  /// What the exponents are less.
  __device__ W base() const { return base_of(top); }

 private:
  /// As long as all is -infinity there is no difference to take; a NaN comes through either way.
  static __device__ W base_of(W highest) { return highest == minus_infinity<W>() ? W(0) : highest; }
};

}  // namespace bs::cuda::device
