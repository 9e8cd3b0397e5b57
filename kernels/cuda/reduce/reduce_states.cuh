#pragma once
// A state is what is known of some elements of one result. add_pack takes neighbours in the reduced
// axis, add one more element, `share` being 1 / (elements seen, this one included).

#include <bs/kernels/cuda/device/tile/activation.cuh>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

#include <cmath>
#include <cstdint>
#include <limits>

namespace bs::cuda {

template <class W>
struct SumState {
  using Result = W;
  W total = 0;

  template <int N>
  __device__ void add_pack(const W (&x)[N], int64_t) {
#pragma unroll
    for (int i = 0; i < N; ++i) total += x[i];
  }
  __device__ void add(W x, int64_t, W) { total += x; }
  __device__ void merge(const SumState& other) { total += other.total; }
  __device__ W result(W scale) const { return scale * total; }
};

template <class W>
struct SquareState : SumState<W> {
  template <int N>
  __device__ void add_pack(const W (&x)[N], int64_t) {
#pragma unroll
    for (int i = 0; i < N; ++i) this->total += x[i] * x[i];
  }
  __device__ void add(W x, int64_t, W) { this->total += x * x; }
};

/// How many elements are `number`, which is the result's own.
template <class W>
struct EqualState : SumState<W> {
  W number = 0;

  template <int N>
  __device__ void add_pack(const W (&x)[N], int64_t) {
#pragma unroll
    for (int i = 0; i < N; ++i) this->total += x[i] == number ? W(1) : W(0);
  }
  __device__ void add(W x, int64_t, W) { this->total += x == number ? W(1) : W(0); }
};

template <class W>
struct ProductState {
  using Result = W;
  W total = 1;

  template <int N>
  __device__ void add_pack(const W (&x)[N], int64_t) {
#pragma unroll
    for (int i = 0; i < N; ++i) total *= x[i];
  }
  __device__ void add(W x, int64_t, W) { total *= x; }
  __device__ void merge(const ProductState& other) { total *= other.total; }
  __device__ W result(W) const { return total; }
};

/// The larger of both, or the smaller; NaN where one is.
template <bool smallest, class W>
__device__ W extremum_of(W a, W b) {
  if constexpr (std::is_same_v<W, float>) {
    float both;
    if constexpr (smallest) {
      asm("min.NaN.f32 %0, %1, %2;" : "=f"(both) : "f"(a), "f"(b));
    } else {
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(both) : "f"(a), "f"(b));
    }
    return both;
  } else {
    // Where `a` is NaN the comparison of it with itself keeps it; where b is, the first is false.
    return (smallest ? a < b : a > b) || a != a ? a : b;
  }
}

/// The largest element, or the smallest; NaN where there is one.
template <class W, bool smallest>
struct ExtremumState {
  using Result = W;
  using Limits = std::numeric_limits<W>;
  static constexpr W end = Limits::has_infinity ? Limits::infinity() : Limits::max();
  static constexpr W other_end = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  W best = smallest ? end : other_end;

  __device__ void add(W x, int64_t, W) { best = extremum_of<smallest>(best, x); }
  template <int N>
  __device__ void add_pack(const W (&x)[N], int64_t at) {
#pragma unroll
    for (int i = 0; i < N; ++i) add(x[i], at, 0);
  }
  __device__ void merge(const ExtremumState& other) { add(other.best, 0, 0); }
  __device__ W result(W) const { return best; }
};
template <class W>
using MaxState = ExtremumState<W, false>;
template <class W>
using MinState = ExtremumState<W, true>;

/// The place of the first largest element, or of the first smallest; NaN is beyond all others.
/// Without an element that is beyond the one the state begins with, it is the first.
template <class W, bool smallest>
struct PlaceState {
  using Result = int64_t;
  static constexpr int64_t none = std::numeric_limits<int64_t>::max();
  W best = ExtremumState<W, smallest>().best;
  int64_t place = none;  ///< of the element, or of the pack that it is in

  /// Whether a is no better than b; false where either is NaN.
  static __device__ bool behind(W a, W b) { return smallest ? a >= b : a <= b; }

  /// Of elements that come in their order.
  __device__ void add(W x, int64_t at, W) {
    if (best != best || behind(x, best)) return;
    best = x;
    place = at;
  }
  /// Which element of a pack it was is left to find(): a choice an element takes the most time.
  template <int N>
  __device__ void add_pack(const W (&x)[N], int64_t at) {
    W most = x[0];
#pragma unroll
    for (int i = 1; i < N; ++i) most = extremum_of<smallest>(most, x[i]);
    add(most, at, 0);
  }
  __device__ void merge(const PlaceState& other) {
    const bool is_nan = best != best, other_is_nan = other.best != other.best;
    const bool alike = is_nan ? other_is_nan : other.best == best;
    const bool better = is_nan != other_is_nan ? other_is_nan : !behind(other.best, best);
    if (alike ? other.place < place : better) *this = other;
  }
  /// Of a row of n elements whose packs were of N: the place within the pack, and what is there.
  template <int N, class T>
  __device__ void find(const T* row, int64_t n) {
    if (place == none || n < N) return;  // shorter rows have no pack
    const W wanted = best;
    int first = 0;
#pragma unroll
    for (int i = N - 1; i >= 0; --i) {
      const W x = device::widen(row[min(place + i, n - 1)]);
      if (x != wanted && (x == x || wanted == wanted)) continue;
      first = i;
      best = x;
    }
    place += first;
  }
  __device__ int64_t result(W) const { return place == none ? 0 : place; }
};
template <class W>
using ArgmaxState = PlaceState<W, false>;
template <class W>
using ArgminState = PlaceState<W, true>;

/// Whether one of the bools is true, or each.
template <class W, bool each>
struct TruthState {
  using Result = bool;
  unsigned truth = each;

  __device__ void add(W x, int64_t, W) { truth = each ? truth & (x != 0) : truth | (x != 0); }
  template <int N>
  __device__ void add_pack(const W (&x)[N], int64_t) {
#pragma unroll
    for (int i = 0; i < N; ++i) add(x[i], 0, 0);
  }
  /// Four bools a word.
  template <int N>
  __device__ void add_words(const unsigned (&x)[N]) {
    unsigned all = x[0];
#pragma unroll
    for (int i = 1; i < N; ++i) all = each ? all & x[i] : all | x[i];
    truth = each ? truth & (all == 0x01010101U) : truth | (all != 0);
  }
  __device__ void merge(const TruthState& other) {
    truth = each ? truth & other.truth : truth | other.truth;
  }
  __device__ bool result(W) const { return truth != 0; }
};
template <class W>
using AnyState = TruthState<W, false>;
template <class W>
using AllState = TruthState<W, true>;

/// Mean and sum of squared deviations, merged as by Chan, Golub and LeVeque (1979). In f32 a share
/// is off by 2 ulp, which moves the mean about as far as its rounding does; that of all is exact.
template <class W>
struct MomentState {
  using Result = W;
  W count = 0, mean = 0, squares = 0;

  __device__ void add(W x, int64_t, W share) {
    const W deviation = x - mean;
    mean += deviation * share;
    squares += deviation * (x - mean);
    count += 1;
  }
  template <int N>
  __device__ void add_pack(const W (&x)[N], int64_t) {
    MomentState pack;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.mean += x[i];
    pack.mean *= W(1) / N;
#pragma unroll
    for (int i = 0; i < N; ++i) pack.squares += (x[i] - pack.mean) * (x[i] - pack.mean);
    pack.count = N;
    merge(pack);
  }
  __device__ void merge(const MomentState& other) {
    if (other.count == 0) return;
    const W both = count + other.count, deviation = other.mean - mean;
    const W share = count == 0 ? W(1) : other.count * device::reciprocal_of(both);
    // Of no element the square could be infinite, and 0 of it is not.
    const W apart = count == 0 ? W(0) : deviation;
    squares += other.squares + apart * apart * count * share;
    mean += deviation * share;
    count = both;
  }
  __device__ W result(W scale) const { return scale * squares; }
};

/// The logarithm of the sum of exponentials: `total` of them, each divided by that of shift().
template <class W>
struct LogSumState {
  using Result = W;
  using Limits = std::numeric_limits<W>;
  static constexpr W log2_e = W(1.4426950408889634);
  W top = -Limits::infinity(), total = 0;

  /// The largest element, unless that is infinite: then nothing is to be gained.
  __device__ W shift() const { return fabs(top) < Limits::infinity() ? top : W(0); }
  /// Elements up to `most` may come.
  __device__ void raise(W most) {
    if (!(most > top)) return;
    const W before = shift();
    top = most;
    if (total != 0) total *= device::exp2_of((before - shift()) * log2_e);
  }
  /// Of an element that is expected.
  __device__ void add(W x, int64_t = 0, W = 0) { total += device::exp2_of((x - shift()) * log2_e); }
  template <int N>
  __device__ void add_pack(const W (&x)[N], int64_t) {
    W most = x[0];
#pragma unroll
    for (int i = 1; i < N; ++i) most = x[i] > most ? x[i] : most;
    raise(most);
#pragma unroll
    for (int i = 0; i < N; ++i) add(x[i]);
  }
  __device__ void merge(LogSumState other) {
    other.raise(top);
    raise(other.top);
    total += other.total;
  }
  __device__ W result(W) const { return ::log(total) + shift(); }
};

/// Another lane's state, a word at a time.
template <class State>
__device__ State from_lane(const State& state, int offset) {
  static_assert(sizeof(State) % sizeof(unsigned) == 0);
  constexpr int words = sizeof(State) / sizeof(unsigned);
  State other;
#pragma unroll
  for (int i = 0; i < words; ++i)
    reinterpret_cast<unsigned*>(&other)[i] =
        __shfl_down_sync(0xffffffffU, reinterpret_cast<const unsigned*>(&state)[i], offset);
  return other;
}

/// Tells a state, before elements are added one by one, what the largest of them is.
template <class State, class W>
__device__ void expect(State&, W) {}
template <class W>
__device__ void expect(LogSumState<W>& state, W most) {
  state.raise(most);
}

}  // namespace bs::cuda
