#pragma once
// What surrounds an emitted `struct Epilogue`: operands, the functions it names, and the way of the
// sums from a warp's registers to it. Any kernel whose warps hold sums as 16 x 8 tiles, two
// neighbours of row lane / 4 and two of row lane / 4 + 8 a lane, can end in it: mma.sync and wgmma
// both leave them so.
#include <bs/kernels/cuda/device/gemm/gemm_params.cuh>
#include <bs/kernels/cuda/device/tile/gemm_element.cuh>

namespace bs::cuda::device {

template <class W>
__device__ inline W scalar_at(const EpilogueScalars& scalars, int i) {
  if constexpr (sizeof(W) == 8) {
    return scalars.in_f64[i];
  } else {
    return scalars.in_f32[i];
  }
}

/// Where V neighbours of a row lie. `count` is that of the row's elements from here on: none inside
/// of the matrix where it is negative, all where it is V or more. (It is not cut to 0 ... V: ptxas
/// 13.0 makes of that, and of the comparison with V, an instruction that never says yes.)
struct EpiloguePlace {
  int row, column, batch;
  int count;
};

/// Where the sums of a row and column are found in the operands: at the same ones. Others may be
/// `scattered`: rows that do not follow each other there.
struct SamePlaces {
  static constexpr bool scattered = false;
  __device__ EpiloguePlace at(int row, int column, int batch, int count) const {
    return {row, column, batch, count};
  }
};

/// What no kernel writes that reads it: the compiler may load it early.
template <class T>
__device__ inline T load_element(const T* from) {
  T out;
  using Bits = typename Bundle<sizeof(T)>::type;
  *reinterpret_cast<Bits*>(&out) = __ldg(reinterpret_cast<const Bits*>(from));
  return out;
}

/// Values of a matrix of D's shape, or of one row for all rows.
template <class T, class W, int V>
__device__ inline void load_operand(const GemmOperand& o, const EpiloguePlace& at, W (&out)[V]) {
  const T* p =
      static_cast<const T*>(o.data) + at.batch * o.batch + at.row * o.row + at.column * o.column;
  if (o.wide && at.count >= V) {
    Neighbours<T, V> values;
    values.load(p);
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = read_element<W>(values.at[v]);
  } else {
#pragma unroll
    for (int v = 0; v < V; ++v)
      out[v] = v < at.count ? read_element<W>(p[v * o.column]) : static_cast<W>(0);
  }
}

/// Values of a vector that has one for each column. Of two neighbours each is loaded by itself and
/// without a branch, so that the loads of many pairs can be under way at a time.
template <class T, class W, int V>
__device__ inline void load_row(const GemmOperand& o, const EpiloguePlace& at, W (&out)[V]) {
  if constexpr (V > 2) {
    load_operand<T>(o, at, out);
  } else {
    const T* p = static_cast<const T*>(o.data) + at.batch * o.batch + at.column * o.column;
#pragma unroll
    for (int v = 0; v < V; ++v)
      out[v] = v < at.count ? read_element<W>(load_element(p + v * o.column)) : W(0);
  }
}

/// The one value of a column that all of its row's elements share.
template <class T, class W, int V>
__device__ inline void load_column(const GemmOperand& o, const EpiloguePlace& at, W (&out)[V]) {
  const T* p = static_cast<const T*>(o.data) + at.batch * o.batch + at.row * o.row;
  const W value = at.count > 0 ? read_element<W>(load_element(p)) : W(0);
#pragma unroll
  for (int v = 0; v < V; ++v) out[v] = value;
}

template <class T, class W, int V>
__device__ inline void store_operand(const GemmOperand& o, const EpiloguePlace& at,
                                     const W (&values)[V]) {
  T* p = static_cast<T*>(o.data) + at.batch * o.batch + at.row * o.row + at.column * o.column;
  Neighbours<T, V> rounded;
#pragma unroll
  for (int v = 0; v < V; ++v) rounded.at[v] = round_element<T>(values[v]);
  if (o.wide && at.count >= V) {
    rounded.store(p);
  } else {
#pragma unroll
    for (int v = 0; v < V; ++v)
      if (v < at.count) p[v * o.column] = rounded.at[v];
  }
}

/// Takes what an epilogue stores, each to its operand.
struct StoreOperands {
  template <class T, int number, class W, int V>
  __device__ void put(const GemmOperand& o, const EpiloguePlace& at, const W (&values)[V]) const {
    store_operand<T>(o, at, values);
  }
};

/// Keeps the first `kept` values that an epilogue stores, D first, in registers; others go to their
/// operands.
template <class W, int kept, int V>
struct KeepStored {
  W (&out)[kept][V];

  template <class T, int number, class Value>
  __device__ void put(const GemmOperand& o, const EpiloguePlace& at,
                      const Value (&values)[V]) const {
    if constexpr (number < kept) {
#pragma unroll
      for (int v = 0; v < V; ++v) out[number][v] = static_cast<W>(values[v]);
    } else {
      if (at.count > 0) store_operand<T>(o, at, values);
    }
  }
};

/// Keeps the only values that an epilogue stores, rounded to D's elements.
template <class D, int V>
struct KeepRounded {
  D (&out)[V];

  template <class T, int number, class Value>
  __device__ void put(const GemmOperand&, const EpiloguePlace&, const Value (&values)[V]) const {
    static_assert(number == 0 && same_type<T, D>);
    if constexpr (same_type<D, __half> || same_type<D, __nv_bfloat16>) {
      // By twos: of one at a time, straight from the sums, ptxas 13.0 thinks that wgmma had not
      // finished them, and waits for each instruction of the loop before (C7514).
#pragma unroll
      for (int v = 0; v < V; v += 2)
        reinterpret_cast<unsigned&>(out[v]) =
            pack_pair<D>(static_cast<float>(values[v]), static_cast<float>(values[v + 1]));
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v) out[v] = round_element<D>(values[v]);
    }
  }
};

// The functions of epilogue::Unary and Binary. NaN stays NaN. `fast`: by the approximations that
// the GPU has in hardware, with errors of some 1e-6.
template <class W, bool fast>
struct EpilogueFunctions {
  static_assert(sizeof(W) == 4 || !fast);
  __device__ static W exp(W x) {
    if constexpr (fast) {
      return ::__expf(x);
    } else if constexpr (sizeof(W) == 8) {
      return ::exp(x);
    } else {
      return ::expf(x);
    }
  }
  __device__ static W divide(W x, W y) {
    if constexpr (fast) {
      return ::__fdividef(x, y);
    } else {
      return x / y;
    }
  }
  __device__ static W tanh(W x) {
    if constexpr (fast) {  // near 0 a series, whose error is relative
      const W square = x * x;
      const W near =
          x + x * square * (W(-0.333333333) + square * (W(0.133333333) - square * W(0.0539682540)));
      const W far = W(1) - divide(W(2), W(1) + exp(W(2) * x));
      return square < W(0.0625) ? near : far;
    } else if constexpr (sizeof(W) == 8) {
      return ::tanh(x);
    } else {
      return ::tanhf(x);
    }
  }
  __device__ static W erf(W x) {
    if constexpr (sizeof(W) == 8) {
      return ::erf(x);
    } else {
      return ::erff(x);
    }
  }
  __device__ static W maximum(W x, W y) { return x > y || x != x ? x : y; }
  __device__ static W minimum(W x, W y) { return x < y || x != x ? x : y; }
  __device__ static W abs(W x) { return x < 0 ? -x : x; }
  __device__ static W relu(W x) { return x < 0 ? W(0) : x; }
  __device__ static W leaky_relu(W x, W slope) { return x < 0 ? slope * x : x; }
  __device__ static W clamp(W x, W low, W high) { return x < low ? low : x > high ? high : x; }
  __device__ static W sigmoid(W x) { return divide(W(1), W(1) + exp(-x)); }
  __device__ static W silu(W x) { return divide(x, W(1) + exp(-x)); }
  __device__ static W hardswish(W x) { return x * clamp(x + W(3), W(0), W(6)) * (W(1) / W(6)); }
  __device__ static W gelu(W x) { return W(0.5) * x * (W(1) + erf(x * W(0.70710678118654752440))); }
  __device__ static W gelu_tanh(W x) {
    const W inner = W(0.79788456080286535588) * (x + W(0.044715) * x * x * x);
    if constexpr (fast) return divide(x, W(1) + exp(W(-2) * inner));  // 1 + tanh = 2 sigmoid(2 x)
    return W(0.5) * x * (W(1) + tanh(inner));
  }
};

template <class W>
__device__ inline W reduce_pair(W x, W y, bool is_max) {
  return is_max ? EpilogueFunctions<W, false>::maximum(x, y) : x + y;
}

/// The way of 16 rows x 8 Tiles columns of sums of one warp to the epilogue: in chunks of columns
/// through the warp's `scratch`, after which each lane has neighbours of a row.
template <class Epilogue, int Tiles>
struct EpilogueSlab {
  using Sum = typename Epilogue::Sum;
  using W = typename Epilogue::Compute;
  static constexpr int V = Epilogue::vector, R = Epilogue::reductions;
  static constexpr int columns = 8 * Tiles;
  static constexpr int chunk = columns % 32 == 0 ? 32 : columns % 16 == 0 ? 16 : 8;
  static constexpr int ld = chunk + 8;
  static constexpr int scratch_elements = 16 * ld;
  static constexpr int lanes = chunk / V;  // of a row
  static constexpr int rows_a_pass = 32 / lanes;
  static_assert(lanes <= 32 && lanes * V == chunk && 16 % rows_a_pass == 0);

  /// Slabs lie `apart` rows from each other; the first begins at `row`, `column` of a matrix of
  /// m x n. Registers have no index, so that a chunk's sums leave them in a branch of its own; what
  /// follows is long, and stands in the code once. `places` tells where elements lie.
  template <int Slabs, class Places = SamePlaces>
  __device__ static void run(const EpilogueScalars& scalars, const GemmOperand* operands,
                             const Sum (&sums)[Slabs][Tiles][4], int apart, Sum* scratch, int row,
                             int column, int batch, int m, int n, const Places& places = {}) {
    constexpr int chunks = columns / chunk;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
    for (int c = 0; c < Slabs * chunks; ++c) {
      __syncwarp();
#pragma unroll
      for (int k = 0; k < Slabs * chunks; ++k) {
        if (k != c) continue;
#pragma unroll
        for (int t = 0; t < chunk / 8; ++t) {
          const Sum(&s)[4] = sums[k / chunks][k % chunks * (chunk / 8) + t];
          Sum* to = scratch + lane / 4 * ld + t * 8 + lane % 4 * 2;
          to[0] = s[0];
          to[1] = s[1];
          to[8 * ld] = s[2];
          to[8 * ld + 1] = s[3];
        }
      }
      __syncwarp();
      const int chunk_row = row + c / chunks * apart, chunk_column = column + c % chunks * chunk;
      if (chunk_row < m && chunk_column < n)
        run_chunk(scalars, operands, scratch, chunk_row, chunk_column, batch, m, n, places);
    }
  }

 private:
  template <class Places>
  __device__ static void run_chunk(const EpilogueScalars& scalars, const GemmOperand* operands,
                                   const Sum* scratch, int row, int column, int batch, int m, int n,
                                   const Places& places) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int at = lane % lanes * V;
    const int count = n - column - at;
    W totals[R > 0 ? R : 1][V];
    clear(totals);
#pragma unroll 1
    for (int pass = 0; pass < 16 / rows_a_pass; ++pass) {
      const int r = pass * rows_a_pass + lane / lanes;
      const bool inside = row + r < m && count > 0;
      W reduced[R > 0 ? R : 1][V];
      if (R > 0) clear(reduced);
      if (inside) {
        Neighbours<Sum, V> sums;
        sums.load(scratch + r * ld + at);
        const EpiloguePlace place = places.at(row + r, column + at, batch, count);
        Epilogue::template apply<V>(scalars, operands, place, place, sums.at, reduced,
                                    StoreOperands());
      }
      if constexpr (R > 0) take(operands, reduced, totals, row + r, column, batch, inside, count);
    }
    if constexpr (R > 0) finish(operands, totals, row, column + at, batch, count);
  }

  __device__ static void clear(W (&values)[R > 0 ? R : 1][V]) {
#pragma unroll
    for (int i = 0; i < R; ++i)
#pragma unroll
      for (int v = 0; v < V; ++v)
        values[i][v] = Epilogue::is_max(i) ? -static_cast<W>(__int_as_float(0x7f800000)) : W(0);
  }
  /// Adds a row to the totals of its columns, or stores the sum over the row's chunk.
  __device__ static void take(const GemmOperand* operands, const W (&reduced)[R > 0 ? R : 1][V],
                              W (&totals)[R > 0 ? R : 1][V], int row, int column, int batch,
                              bool inside, int count) {
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const bool is_max = Epilogue::is_max(i);
      if (!Epilogue::over_columns(i)) {
#pragma unroll
        for (int v = 0; v < V; ++v) totals[i][v] = reduce_pair(totals[i][v], reduced[i][v], is_max);
        continue;
      }
      W total = is_max ? -static_cast<W>(__int_as_float(0x7f800000)) : W(0);
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (v < count) total = reduce_pair(total, reduced[i][v], is_max);
#pragma unroll
      for (int step = 1; step < lanes; step *= 2)
        total = reduce_pair(total, __shfl_xor_sync(~0U, total, step), is_max);
      const GemmOperand& o = operands[Epilogue::operands + i];
      if (inside && static_cast<int>(threadIdx.x) % lanes == 0)
        static_cast<W*>(o.data)[batch * o.batch + row * o.row + column / chunk * o.column] = total;
    }
  }
  /// Stores the totals of the slab's columns.
  __device__ static void finish(const GemmOperand* operands, W (&totals)[R > 0 ? R : 1][V], int row,
                                int column, int batch, int count) {
#pragma unroll
    for (int i = 0; i < R; ++i) {
      if (Epilogue::over_columns(i)) continue;
#pragma unroll
      for (int v = 0; v < V; ++v)
#pragma unroll
        for (int step = lanes; step < 32; step *= 2)
          totals[i][v] = reduce_pair(totals[i][v], __shfl_xor_sync(~0U, totals[i][v], step),
                                     Epilogue::is_max(i));
      const GemmOperand& o = operands[Epilogue::operands + i];
      W* to = static_cast<W*>(o.data) + batch * o.batch + row / 16 * o.row + column * o.column;
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (v < count && static_cast<int>(threadIdx.x) % 32 < lanes)
          to[v * o.column] = totals[i][v];
    }
  }
};

}  // namespace bs::cuda::device
