#pragma once
// Tensors that lie across each other: a result and inputs are walked in squares, so that whole
// lines of all of them are read and written.
#include <bs/lib/integers.h>
#include <bs/kernels/cuda/walk.cuh>

#include <algorithm>
#include <cstdint>

namespace bs::cuda {

/// Edge of a square.
inline constexpr int turn_edge = 64;

/// Elements (x, y) for x below nx, y below ny, of each matrix of a batch. The result, tensor 0, has
/// neighbours in x side by side. So have inputs that lie along it, or they repeat; inputs that lie
/// across have neighbours in y side by side. Either may stand for several axes.
template <int M>
struct Turn {
  uint32_t nx, ny;
  Divisor tiles_x, tiles_y;
  uint32_t tiles;
  Walk<1> lines[M];  ///< where a line begins: of number x in what lies across, else of number y
  Walk<M> batch;
  bool across[M];

  struct Tile {
    int32_t at[M];  ///< where each tensor's matrix is
    uint32_t x, y;
  };
#ifdef __CUDACC__
  __device__ Tile tile(uint32_t t) const {
    Tile tile;
    const uint32_t line = tiles_x.divide(t), matrix = tiles_y.divide(line);
    batch.locate(matrix, tile.at);
    tile.x = (t - line * tiles_x.number) * turn_edge;
    tile.y = (line - matrix * tiles_y.number) * turn_edge;
    return tile;
  }
  __device__ int32_t line(int n, uint32_t i) const {
    int32_t at[1];
    lines[n].locate(i, at);
    return at[0];
  }
#endif
  /// Whether all lines of tensor n, which begins at `data`, lie where vectors of N elements do.
  template <int N, class T>
  bool has_vectors(int n, const T* data) const {
    int32_t all = 0;
    for (int i = 0; i < lines[n].rank; ++i) all |= lines[n].step[i][0];
    for (int i = 0; i < batch.rank; ++i) all |= batch.step[i][n];
    return all % N == 0 &&
           reinterpret_cast<uintptr_t>(data) % std::min<size_t>(16, N * sizeof(T)) == 0;
  }
};

/// Whether any input strides over the axis along which the result lies.
template <int M>
bool lies_across(const StridedLoop<M>& loop) {
  bool any = false;
  for (int n = 1; n < M; ++n) any = any || loop.inner_stride(n) > 1;
  return any;
}

namespace detail {

/// Some axes of a loop, outermost first.
template <int M>
struct SomeAxes {
  const StridedLoop<M>& loop;
  StridedLoop<M> some{};

  explicit SomeAxes(const StridedLoop<M>& from) : loop(from) {}
  void push_front(int axis) {
    for (int i = some.rank++; i > 0; --i) {
      some.shape[i] = some.shape[i - 1];
      for (auto& strides : some.strides) strides[i] = strides[i - 1];
    }
    some.shape[0] = loop.shape[axis];
    for (int n = 0; n < M; ++n) some.strides[n][0] = loop.strides[n][axis];
  }
  /// One tensor's steps alone.
  Walk<1> walk(int n) const {
    StridedLoop<1> one;
    one.rank = some.rank;
    std::copy_n(some.shape, some.rank, one.shape);
    std::copy_n(some.strides[n], some.rank, one.strides[0]);
    return {one, 1};
  }
};

/// The axes of a turn, as they are found one by one.
template <int M>
class TurnSearch {
 public:
  explicit TurnSearch(const StridedLoop<M>& loop) : loop_(loop), x_(loop), y_(loop), batch_(loop) {
    for (int n = 1; n < M; ++n) across_[n] = loop.inner_stride(n) > 1;
  }

  /// Lines go on over as many axes as lie side by side, until they are as long as a square.
  bool find(Turn<M>& turn) {
    if (!lies_across(loop_) || loop_.inner_stride(0) != 1) return false;
    constexpr int64_t least = 16;
    while (x_.some.numel() < turn_edge && take(x_, [&](int axis) { return extends_x(axis); })) {
    }
    while (y_.some.numel() < turn_edge && take(y_, [&](int axis) { return extends_y(axis); })) {
    }
    if (x_.some.numel() < least || y_.some.numel() < least) return false;
    while (take(batch_, [](int) { return true; })) {
    }
    if (batch_.some.rank == 0) {
      batch_.some.rank = 1;
      batch_.some.shape[0] = 1;
    }
    fill(turn);
    return true;
  }

 private:
  /// Moves the innermost axis that is free and fits.
  template <class Fits>
  bool take(SomeAxes<M>& axes, Fits fits) {
    for (int axis = loop_.rank - 1; axis >= 0; --axis) {
      if (taken_[axis] || !fits(axis)) continue;
      axes.push_front(axis);
      taken_[axis] = true;
      return true;
    }
    return false;
  }
  bool extends_x(int axis) const {
    bool fits = true;
    for (int n = 0; n < M; ++n) {
      const int64_t step = loop_.strides[n][axis];
      const int64_t along = loop_.inner_stride(n) == 0 ? 0 : x_.some.numel();
      fits = fits && (across_[n] ? step > 1 : step == along);
    }
    return fits;
  }
  bool extends_y(int axis) const {
    bool fits = loop_.strides[0][axis] > 1;
    for (int n = 1; n < M; ++n)
      fits = fits && (!across_[n] || loop_.strides[n][axis] == y_.some.numel());
    return fits;
  }
  void fill(Turn<M>& turn) const {
    const int64_t tiles_x = ceil_div(x_.some.numel(), turn_edge),
                  tiles_y = ceil_div(y_.some.numel(), turn_edge);
    turn.nx = static_cast<uint32_t>(x_.some.numel());
    turn.ny = static_cast<uint32_t>(y_.some.numel());
    turn.tiles_x = Divisor(tiles_x);
    turn.tiles_y = Divisor(tiles_y);
    turn.tiles = static_cast<uint32_t>(tiles_x * tiles_y * batch_.some.numel());
    turn.batch = Walk<M>(batch_.some, 1);
    for (int n = 0; n < M; ++n) {
      turn.across[n] = across_[n];
      turn.lines[n] = across_[n] ? x_.walk(n) : y_.walk(n);
    }
  }

  const StridedLoop<M>& loop_;
  SomeAxes<M> x_, y_, batch_;
  bool taken_[Dims::max_rank] = {}, across_[M] = {};
};

}  // namespace detail

/// The loop over a result, tensor 0, and inputs as matrices to be turned, where it is that and they
/// are larger than a few lines. The result's axes are in the order in which it lies in memory.
template <int M>
bool find_turn(const StridedLoop<M>& loop, Turn<M>& turn) {
  return detail::TurnSearch<M>(loop).find(turn);
}

}  // namespace bs::cuda
