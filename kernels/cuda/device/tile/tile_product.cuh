#pragma once
// A tile of sums from two streams of operand tiles: what every block-sparse product below wgmma is
// made of. The callers differ in where the elements lie and where the sums go.
#include <bs/kernels/cuda/device/tile/gemm_element.cuh>
#include <bs/kernels/cuda/device/tile/tile_operand.cuh>

namespace bs::cuda::device {

/// What a warp multiplies: cells, 16 rows by 8 columns of the result, of which a lane has four
/// sums: columns lane % 4 * 2 and the next of row lane / 4, then those of row lane / 4 + 8.
/// `Held` is what is made, once, of a fragment that has been read. `ahead`: registers suffice to
/// read the fragments of a step while those of the one before are multiplied; `apart`: each stage
/// has sums of its own.
template <class T>
struct TileMultiply {  // f16 and bf16
  static constexpr int depth = 16;
  static constexpr bool ahead = true, apart = false;
  using Sum = float;
  using Held = Fragment<T>;

  __device__ static void hold(Held& to, const Fragment<T>& from) { to = from; }
  template <int M, int P>
  __device__ static void multiply(float (&cells)[M][2 * P][4], const Held (&a)[M],
                                  const Held (&b)[P]) {
#pragma unroll
    for (int n = 0; n < 2 * P; ++n)
#pragma unroll
      for (int i = 0; i < M; ++i) {
        const unsigned(&r)[4] = b[n / 2].r;
        mma_16816(cells[i][n], a[i].r, {r[n % 2 * 2], r[n % 2 * 2 + 1]}, T{});
      }
  }
};

/// Adds the products of TF32 operands.
template <int M, int P, class A, class B>
__device__ inline void multiply_tf32(float (&cells)[M][2 * P][4], const A& a, const B& b) {
#pragma unroll
  for (int n = 0; n < 2 * P; ++n)
#pragma unroll
    for (int i = 0; i < M; ++i) {
      const unsigned(&x)[4] = a(i);
      const unsigned(&y)[4] = b(n / 2);
      Mma<float>::step(cells[i][n], x[0], x[1], x[2], x[3], y[n % 2 * 2], y[n % 2 * 2 + 1]);
    }
}

/// f32 rounded to TF32. The tensor cores cut off what lies beyond 10 bits; that operands are .72 of
/// half a unit there larger beforehand makes of it a rounding without bias, off by .66 of a unit at
/// most, in one instruction and with numbers that are not finite left so. Rounding to nearest takes
/// two or three.
struct TileMultiplyTf32 {
  static constexpr int depth = 8;
  static constexpr bool ahead = true, apart = false;
  using Sum = float;
  using Held = Fragment<float>;

  __device__ static void hold(Held& to, const Fragment<float>& from) {
#pragma unroll
    for (int r = 0; r < 4; ++r)
      to.r[r] = __float_as_uint(__uint_as_float(from.r[r]) * (1 + .72F * 0x1p-11F));
  }
  template <int M, int P>
  __device__ static void multiply(float (&cells)[M][2 * P][4], const Held (&a)[M],
                                  const Held (&b)[P]) {
    multiply_tf32<M, P>(
        cells, [&](int i) -> auto& { return a[i].r; }, [&](int j) -> auto& { return b[j].r; });
  }
};

/// f32 as three products of operands split in two. The tensor cores cut their sums off (Mma<float>
/// says more), so that those of a stage are added to the others in plain arithmetic. The split cuts
/// off as well, which is the fewest instructions: 10 bits, and of the rest what the tensor cores
/// take. That the rest is 1.05 of half a unit there larger beforehand makes up for the mean of what
/// is lost, .69 for the digits beyond and .36 for the product of both rests, which is left out.
/// What remains of a product's error is 2.1 of 2^-24 in the mean square, as are the roundings of
/// f32 over some fifty terms; numbers that are not finite stay so.
template <>
struct TileMultiply<float> {
  static constexpr int depth = 8;
  static constexpr bool ahead = true, apart = true;
  using Sum = float;
  struct Held {
    unsigned large[4], small[4];
  };

  __device__ static void hold(Held& to, const Fragment<float>& from) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      to.large[r] = from.r[r] & 0xffffe000U;
      const float rest = __uint_as_float(from.r[r]) - __uint_as_float(to.large[r]);
      to.small[r] = __float_as_uint(rest * (1 + 1.05F * 0x1p-11F));
    }
  }
  template <int M, int P>
  __device__ static void multiply(float (&cells)[M][2 * P][4], const Held (&a)[M],
                                  const Held (&b)[P]) {
    const auto a_large = [&](int i) -> auto& { return a[i].large; };
    const auto b_large = [&](int j) -> auto& { return b[j].large; };
    multiply_tf32<M, P>(
        cells, [&](int i) -> auto& { return a[i].small; }, b_large);
    multiply_tf32<M, P>(
        cells, a_large, [&](int j) -> auto& { return b[j].small; });
    multiply_tf32<M, P>(cells, a_large, b_large);
  }
};

/// f64, on Hopper and later by the one instruction that runs at the full rate there.
template <>
struct TileMultiply<double> {
  static constexpr int depth = 16;
  static constexpr bool ahead = false, apart = false;
  using Sum = double;
  using Held = Fragment<double>;

  __device__ static void step(double (&c)[4], const double (&a)[8], const double* b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
          "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
#else
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int side = 0; side < 2; ++side)
        asm volatile(
            "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+d"(c[2 * side]), "+d"(c[2 * side + 1])
            : "d"(a[2 * k + side]), "d"(b[k]));
#endif
  }
  /// Adds to the cells of columns 16 pair and on.
  template <int M, int N>
  __device__ static void multiply(double (&cells)[M][N][4], int pair, const Held (&a)[M],
                                  const Held& b) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < M; ++i) step(cells[i][2 * pair + half], a[i].r, b.r + 4 * half);
  }
};

/// Compile-time shape of a CTA's work. A is Rows x Depth, B is Depth x Cols a stage; `a_along_k`
/// and `b_along_k` tell whether neighbours along the depth lie side by side in memory; `aligned`
/// whether OperandVectors of both find them so.
template <class T, int Rows, int Cols, int Depth, int Stages, int WarpRows, int WarpCols,
          bool a_along_k, bool b_along_k, bool is_aligned, class Multiply = TileMultiply<T>>
struct TileProduct {
  using Element = T;
  using M = Multiply;
  using Sum = typename M::Sum;
  static constexpr int rows = Rows, cols = Cols, depth = Depth;
  static constexpr bool aligned = is_aligned;
  static constexpr int threads = 32 * WarpRows * WarpCols;
  static constexpr int vector = 16 / static_cast<int>(sizeof(T));
  using TileA = SwizzledTile<T, Rows, Depth, a_along_k, threads>;
  using TileB = SwizzledTile<T, Cols, Depth, b_along_k, threads>;
  static constexpr int stage_bytes = TileA::bytes + TileB::bytes;
  // The finished tile passes through the same memory, so that it can be written out in wide
  // vectors. Its lines are padded so that a warp's pairs (or, by columns, sums) fall into distinct
  // banks.
  template <bool by_rows, class Kept = T>
  static constexpr int c_ld = by_rows ? Cols + 8 : Rows + 16 / static_cast<int>(sizeof(Kept));
  template <bool by_rows, class Kept>
  static constexpr int kept_bytes =
      (by_rows ? Rows : Cols) * c_ld<by_rows, Kept>* static_cast<int>(sizeof(Kept));
  static constexpr int c_bytes =
      kept_bytes<true, T> > kept_bytes<false, T> ? kept_bytes<true, T> : kept_bytes<false, T>;
  static constexpr int shared_bytes =
      Stages * stage_bytes > c_bytes ? Stages* stage_bytes : c_bytes;

  static constexpr int warp_rows = Rows / WarpRows, warp_cols = Cols / WarpCols;
  static constexpr int m_tiles = warp_rows / 16, pairs = warp_cols / 16;
  static constexpr int steps = Depth / M::depth;  // of a stage
  static_assert(m_tiles * 16 * WarpRows == Rows && pairs * 16 * WarpCols == Cols);
  static_assert(steps * M::depth == Depth && Stages >= 2);

  using Cells = Sum[m_tiles][2 * pairs][4];
  Cells cells = {};
  using Flat = Sum[m_tiles * pairs * 8];
  __device__ Flat& flat() { return reinterpret_cast<Flat&>(cells); }

  __device__ static int first_row() {
    return static_cast<int>(threadIdx.x) / 32 % WarpRows * warp_rows;
  }
  __device__ static int first_col() {
    return static_cast<int>(threadIdx.x) / 32 / WarpRows * warp_cols;
  }

  /// Stages on their way through shared memory.
  template <class A, class B>
  struct Stream {
    unsigned shared, writing, reading;
    A& a;
    B& b;

    __device__ Stream(unsigned char* memory, A& vectors_a, B& vectors_b)
        : shared(shared_address(memory)),
          writing(shared),
          reading(shared),
          a(vectors_a),
          b(vectors_b) {}
    __device__ unsigned next(unsigned stage) const {
      return stage == shared + (Stages - 1) * stage_bytes ? shared : stage + stage_bytes;
    }
    __device__ void copy(bool wanted) {
      a.copy(writing, wanted);
      b.copy(writing + TileA::bytes, wanted);
      commit_copies();  // an empty group keeps the count of groups in step
      a.advance();
      b.advance();
      writing = next(writing);
    }
    /// Waits for the next stage. Nobody reads the one before it any more.
    __device__ void await() {
      wait_copies<Stages - 2>();
      __syncthreads();
    }
  };

  /// Fragments of one step.
  struct Operands {
    FragmentReader<TileA, false> reader_a;
    FragmentReader<TileB, true> reader_b;
    Fragment<T> a[m_tiles], b[pairs];

    __device__ explicit Operands(int lane)
        : reader_a(first_row(), lane), reader_b(first_col(), lane) {}
    __device__ void read(unsigned stage, int step) {
#pragma unroll
      for (int i = 0; i < m_tiles; ++i) reader_a.read(a[i], stage, i, step);
#pragma unroll
      for (int j = 0; j < pairs; ++j) reader_b.read(b[j], stage + TileA::bytes, j, step);
    }
  };

  /// Adds the products of `stages` stages.
  template <class A, class B>
  __device__ void run(unsigned char* memory, int stages, A& vectors_a, B& vectors_b) {
    Stream<A, B> stream(memory, vectors_a, vectors_b);
#pragma unroll 1
    for (int stage = 0; stage < Stages - 1; ++stage) stream.copy(stage < stages);
    stream.await();
    Operands read(static_cast<int>(threadIdx.x) % 32);
    if constexpr (M::ahead) {
      multiply_ahead(stream, stages, read);
    } else {
#pragma unroll 1
      for (int stage = 0; stage < stages; ++stage) {
        stream.copy(stage + Stages - 1 < stages);
#pragma unroll
        for (int step = 0; step < steps; ++step) {
          read.read(stream.reading, step);
#pragma unroll
          for (int j = 0; j < pairs; ++j) M::multiply(cells, j, read.a, read.b[j]);
        }
        stream.await();
        stream.reading = stream.next(stream.reading);
      }
    }
    wait_copies<0>();
    __syncthreads();
  }

  /// The fragments of a step are read while those of the one before are multiplied.
  template <class A, class B>
  __device__ void multiply_ahead(Stream<A, B>& stream, int stages, Operands& read) {
    // All steps at once, except where many blocks and sums of their own fill the registers.
    constexpr int unrolled = M::apart && m_tiles > 1 && B::line_blocks > 4 ? 1 : steps;
    typename M::Held a[m_tiles], b[pairs];
    const auto hold = [&] {
#pragma unroll
      for (int i = 0; i < m_tiles; ++i) M::hold(a[i], read.a[i]);
#pragma unroll
      for (int j = 0; j < pairs; ++j) M::hold(b[j], read.b[j]);
    };
    read.read(stream.reading, 0);
    hold();
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) {
      stream.copy(stage + Stages - 1 < stages);
      Cells parts = {};
#pragma unroll unrolled
      for (int step = 0; step < steps; ++step) {
        const bool last = step == steps - 1;
        if (last) {
          stream.await();
          stream.reading = stream.next(stream.reading);
        }
        read.read(stream.reading, last ? 0 : step + 1);
        M::template multiply<m_tiles, pairs>(M::apart ? parts : cells, a, b);
        hold();
      }
      if constexpr (M::apart) add(parts);
    }
  }

  __device__ void add(const Cells& parts) {
#pragma unroll
    for (int m = 0; m < m_tiles; ++m)
#pragma unroll
      for (int n = 0; n < 2 * pairs; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) cells[m][n][i] += parts[m][n][i];
  }

  /// Calls f(row, column, sums) on every two neighbours of a row of the tile.
  template <class F>
  __device__ void each_pair(const F& f) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = first_row() + lane / 4, col = first_col() + lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < m_tiles; ++m)
#pragma unroll
      for (int n = 0; n < 2 * pairs; ++n)
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const Sum pair[2] = {cells[m][n][i], cells[m][n][i + 1]};
          f(row + m * 16 + i / 2 * 8, col + n * 8, pair);
        }
  }

  /// Puts the sums, as Kept, into shared memory, row by row (or column by column), `c_ld` apart.
  template <bool by_rows, class Kept>
  __device__ void stage_result(Kept* shared) {
    constexpr int ld = c_ld<by_rows, Kept>;
    each_pair([&](int row, int col, const Sum(&pair)[2]) {
      Neighbours<Kept, 2> rounded;
#pragma unroll
      for (int i = 0; i < 2; ++i) rounded.at[i] = narrow<Kept>(pair[i]);
      if constexpr (by_rows) {
        rounded.store(shared + row * ld + col);
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) shared[(col + i) * ld + row] = rounded.at[i];
      }
    });
    __syncthreads();
  }
};

}  // namespace bs::cuda::device
