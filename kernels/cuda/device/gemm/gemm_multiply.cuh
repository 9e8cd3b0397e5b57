#pragma once
// What one warp multiplies at a time, for every instruction of the tensor cores below wgmma and for
// plain arithmetic, under one interface. Operands lie in shared memory with the depth or the side
// (rows of A, columns of B) contiguous; a fragment covers 16 of a side, whichever operand it is:
//
//   M::depth                     of one step
//   M::Sum, M::Cell              type of a sum; a lane's four of a 16 x 8 tile
//   M::A, M::B                   fragments of 16 rows, of 16 columns
//   load<k_contiguous>(f, at, ld, lane)    a fragment at `at`, whose long stride is `ld`
//   multiply(cell, a, b, half)   adds the product with the 8 columns `half` of b
//
// A cell holds the columns lane % 4 * 2 and + 1 of row lane / 4, then those of row lane / 4 + 8.
#include <bs/kernels/cuda/device/ptx/mma.cuh>
#include <bs/kernels/cuda/device/tile/gemm_element.cuh>

namespace bs::cuda::device {

/// 16 of a side x 32 bytes of depth in four registers, in the order of A's (side half, depth half)
/// 00 10 01 11 or of B's 00 01 10 11: what ldmatrix gives for elements of any size where the depth
/// is contiguous.
template <bool k_contiguous, bool is_b, class T>
__device__ inline void load_registers(unsigned (&f)[4], const T* at, int ld, int lane) {
  constexpr int group = 16 / static_cast<int>(sizeof(T));  // of the depth, in 16 bytes
  constexpr int packed = 4 / static_cast<int>(sizeof(T));  // in a register
  if constexpr (k_contiguous || sizeof(T) == 2) {
    const int j = lane / 8;
    const int side = (is_b ? j / 2 : j % 2) * 8;
    const int k = (is_b ? j % 2 : j / 2) * group;
    load_matrix_x4<!k_contiguous>(
        f, k_contiguous ? at + (side + lane % 8) * ld + k : at + (k + lane % 8) * ld + side);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int side = (is_b ? j / 2 : j % 2) * 8 + lane / 4;
      const int k = (is_b ? j % 2 : j / 2) * group + lane % 4 * packed;
      const T* from = at + k * ld + side;
      if constexpr (sizeof(T) == 4) {
        f[j] = *reinterpret_cast<const unsigned*>(from);
      } else {
        f[j] = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i)
          f[j] |= static_cast<unsigned>(*reinterpret_cast<const unsigned char*>(from + i * ld))
                  << (8 * i);
      }
    }
  }
}

/// Sums in f32 of operands of 32 bytes of depth. `Instruction` is a functor type emitted by name.
template <class T, int Depth>
struct MultiplyRegisters {
  static constexpr int depth = Depth;
  using A = unsigned[4];
  using B = unsigned[4];
  template <bool k_contiguous>
  __device__ static void load_a(A& f, const T* at, int ld, int lane) {
    load_registers<k_contiguous, false>(f, at, ld, lane);
  }
  template <bool k_contiguous>
  __device__ static void load_b(B& f, const T* at, int ld, int lane) {
    load_registers<k_contiguous, true>(f, at, ld, lane);
  }
};

template <class T>
struct Multiply16 : MultiplyRegisters<T, 16> {  // f16, bf16
  using Base = MultiplyRegisters<T, 16>;
  using Sum = float;
  using Cell = float[4];
  __device__ static void multiply(Cell& c, const typename Base::A& a, const typename Base::B& b,
                                  int half) {
    mma_16816(c, a, {b[2 * half], b[2 * half + 1]}, T{});
  }
};

struct MultiplyF16Sums : MultiplyRegisters<__half, 16> {  // sums in f16 too
  using Sum = float;
  struct Cell {
    unsigned pair[2] = {0, 0};
  };
  __device__ static void multiply(Cell& c, const A& a, const B& b, int half) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, "
        "{%0, %1};"
        : "+r"(c.pair[0]), "+r"(c.pair[1])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * half]), "r"(b[2 * half + 1]));
  }
};

template <bool saturate>
struct MultiplyI8 : MultiplyRegisters<signed char, 32> {
  using Sum = int;
  using Cell = int[4];
  __device__ static void multiply(Cell& c, const A& a, const B& b, int half) {
    if constexpr (saturate) {
      asm volatile(
          "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%0, %1, %2, %3}, "
          "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * half]), "r"(b[2 * half + 1]));
    } else {
      asm volatile(
          "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, "
          "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * half]), "r"(b[2 * half + 1]));
    }
  }
};

template <class T, class U>
struct MultiplyF8 : MultiplyRegisters<T, 32> {  // any mixture of e4m3 and e5m2
  using Base = MultiplyRegisters<T, 32>;
  using Sum = float;
  using Cell = float[4];
  template <bool k_contiguous>
  __device__ static void load_b(typename Base::B& f, const U* at, int ld, int lane) {
    load_registers<k_contiguous, true>(f, at, ld, lane);
  }
#define BS_MULTIPLY_F8(types)                                                         \
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." types                         \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * half]),        \
                 "r"(b[2 * half + 1]))
  __device__ static void multiply(Cell& c, const typename Base::A& a, const typename Base::B& b,
                                  int half) {
    if constexpr (same_type<T, E4m3> && same_type<U, E4m3>) {
      BS_MULTIPLY_F8("e4m3.e4m3");
    } else if constexpr (same_type<T, E4m3>) {
      BS_MULTIPLY_F8("e4m3.e5m2");
    } else if constexpr (same_type<U, E4m3>) {
      BS_MULTIPLY_F8("e5m2.e4m3");
    } else {
      BS_MULTIPLY_F8("e5m2.e5m2");
    }
  }
#undef BS_MULTIPLY_F8
};

struct MultiplyTf32 : MultiplyRegisters<float, 8> {
  using Sum = float;
  using Cell = float[4];
  using Base = MultiplyRegisters<float, 8>;
  static __device__ void round(unsigned (&f)[4]) {
#pragma unroll
    for (unsigned& x : f) x = Mma<float>::to_tf32(__uint_as_float(x));
  }
  template <bool k_contiguous>
  __device__ static void load_a(A& f, const float* at, int ld, int lane) {
    Base::load_a<k_contiguous>(f, at, ld, lane);
    round(f);
  }
  template <bool k_contiguous>
  __device__ static void load_b(B& f, const float* at, int ld, int lane) {
    Base::load_b<k_contiguous>(f, at, ld, lane);
    round(f);
  }
  __device__ static void multiply(Cell& c, const A& a, const B& b, int half) {
    Mma<float>::step(c, a[0], a[1], a[2], a[3], b[2 * half], b[2 * half + 1]);
  }
};

/// Three TF32 products of split operands; why each step starts from zero, see Mma<float>.
struct MultiplySplitTf32 : MultiplyRegisters<float, 8> {
  using Sum = float;
  using Cell = float[4];
  __device__ static void multiply(Cell& c, const A& a, const B& b, int half) {
    Mma<float>::A p;
    Mma<float>::B q;
#pragma unroll
    for (int i = 0; i < 4; ++i) p[i] = Mma<float>::split(__uint_as_float(a[i]));
#pragma unroll
    for (int i = 0; i < 2; ++i) q[i] = Mma<float>::split(__uint_as_float(b[2 * half + i]));
    Mma<float>::multiply(c, p, q);
  }
};

/// f32 operands rounded to f16 or bf16, of which a step takes 8.
template <class T>
struct MultiplyRounded {
  static constexpr int depth = 8;
  using Sum = float;
  using Cell = float[4];
  using A = unsigned[2];
  using B = unsigned[2];
  template <bool k_contiguous>
  __device__ static void load_a(A& f, const float* at, int ld, int lane) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int side = lane / 4 + 8 * i, k = lane % 4 * 2;
      const float x = k_contiguous ? at[side * ld + k] : at[k * ld + side];
      const float y = k_contiguous ? at[side * ld + k + 1] : at[(k + 1) * ld + side];
      if constexpr (same_type<T, __half>) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(f[i]) : "f"(y), "f"(x));
      } else {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(f[i]) : "f"(y), "f"(x));
      }
    }
  }
  template <bool k_contiguous>
  __device__ static void load_b(B& f, const float* at, int ld, int lane) {
    load_a<k_contiguous>(f, at, ld, lane);
  }
  __device__ static void multiply(Cell& c, const A& a, const B& b, int half) {
    if constexpr (same_type<T, __half>) {
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
          "{%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(b[half]));
    } else {
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
          "{%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(b[half]));
    }
  }
};

/// f64 in products of 8 x 8 x 4, two to a cell.
struct MultiplyF64 {
  static constexpr int depth = 4;
  using Sum = double;
  using Cell = double[4];
  using A = double[2];
  using B = double[2];
  template <bool k_contiguous>
  __device__ static void load_a(A& f, const double* at, int ld, int lane) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int side = lane / 4 + 8 * i, k = lane % 4;
      f[i] = k_contiguous ? at[side * ld + k] : at[k * ld + side];
    }
  }
  template <bool k_contiguous>
  __device__ static void load_b(B& f, const double* at, int ld, int lane) {
    load_a<k_contiguous>(f, at, ld, lane);
  }
  __device__ static void multiply(Cell& c, const A& a, const B& b, int half) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                   : "+d"(c[2 * i]), "+d"(c[2 * i + 1])
                   : "d"(a[i]), "d"(b[half]));
  }
};

/// f64 in products of 16 x 8 x 16, which Hopper does at twice the rate.
struct MultiplyF64Hopper {
  static constexpr int depth = 16;
  using Sum = double;
  using Cell = double[4];
  using A = double[8];
  using B = double[2][4];
  template <bool k_contiguous>
  __device__ static void load_a(A& f, const double* at, int ld, int lane) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int side = lane / 4 + i % 2 * 8, k = lane % 4 + i / 2 * 4;
      f[i] = k_contiguous ? at[side * ld + k] : at[k * ld + side];
    }
  }
  template <bool k_contiguous>
  __device__ static void load_b(B& f, const double* at, int ld, int lane) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int side = lane / 4 + i / 4 * 8, k = lane % 4 + i % 4 * 4;
      f[i / 4][i % 4] = k_contiguous ? at[side * ld + k] : at[k * ld + side];
    }
  }
  __device__ static void multiply(Cell& c, const A& a, const B& b, int half) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
          "d"(b[half][0]), "d"(b[half][1]), "d"(b[half][2]), "d"(b[half][3]));
  }
};

/// Plain multiply-adds of f32 or f64; the lanes share the work as the tensor cores would.
template <class T>
struct MultiplySimt {
  static constexpr int depth = 1;
  using Sum = T;
  using Cell = T[4];
  using A = T[2];
  using B = T[2][2];
  template <bool k_contiguous>
  __device__ static void load_a(A& f, const T* at, int ld, int lane) {
#pragma unroll
    for (int i = 0; i < 2; ++i) f[i] = at[(lane / 4 + 8 * i) * (k_contiguous ? ld : 1)];
  }
  template <bool k_contiguous>
  __device__ static void load_b(B& f, const T* at, int ld, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      f[i / 2][i % 2] = at[(lane % 4 * 2 + i % 2 + i / 2 * 8) * (k_contiguous ? ld : 1)];
  }
  __device__ static void multiply(Cell& c, const A& a, const B& b, int half) {
#pragma unroll
    for (int i = 0; i < 4; ++i) c[i] += a[i / 2] * b[half][i % 2];
  }
};

/// The sums of a cell as numbers.
template <class Cell, class Sum>
__device__ inline void read_cell(const Cell& cell, Sum (&sums)[4]) {
  if constexpr (same_type<Cell, MultiplyF16Sums::Cell>) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sums[i] = __half2float(
          __ushort_as_half(static_cast<unsigned short>(cell.pair[i / 2] >> (16 * (i % 2)))));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = cell[i];
  }
}

}  // namespace bs::cuda::device
