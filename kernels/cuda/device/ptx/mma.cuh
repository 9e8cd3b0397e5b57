#pragma once
// One warp's tensor-core product (mma.sync, sm_80 and later) under one interface for all types:
// operands lie in shared memory with the depth (k) or the other side contiguous, sums in registers.
//
//   Mma<T>::rows x cols x depth   extent of one instruction (one step of it)
//   Mma<T>::Sum                   a lane's share of a rows x cols tile of sums: `elements` numbers
//   row(lane, i), col(lane, i)    which element of the tile number i of the lane is
//   load_a<k_contiguous>          the rows x depth fragment at `a`, whose long stride is `ld`
//   load_b<k_contiguous>          the depth x cols fragment at `b`
//
// 16-bit types accumulate in f32. f32 runs as 3xTF32 (each operand split into two TF32 numbers, the
// product of the small terms left out), whose error is that of f32. f64 uses the f64 tensor cores.
#include <bs/kernels/cuda/device/ptx/async_copy.cuh>
#include <bs/kernels/cuda/device/ptx/half.cuh>

namespace bs::cuda::device {

/// Four 8x8 matrices of 16-bit elements; each lane gives the address of one row of one of them.
template <bool transposed>
__device__ inline void load_matrix_x4(unsigned (&r)[4], unsigned row) {
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row));
  }
}
template <bool transposed>
__device__ inline void load_matrix_x4(unsigned (&r)[4], const void* row) {
  load_matrix_x4<transposed>(r, shared_address(row));
}

template <bool transposed>
__device__ inline void load_matrix_x2(unsigned (&r)[2], const void* row) {
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row)));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row)));
  }
}

__device__ inline void mma_16816(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                 __half) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void mma_16816(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                 __nv_bfloat16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// The same of half the depth.
__device__ inline void mma_1688(float (&c)[4], const unsigned (&a)[2], unsigned b, __half) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, "
      "%2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}

__device__ inline void mma_1688(float (&c)[4], const unsigned (&a)[2], unsigned b, __nv_bfloat16) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, "
      "%1, "
      "%2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}

template <class T>
struct Mma {  // f16 and bf16
  static constexpr int rows = 16, cols = 8, depth = 16, elements = 4;
  using Sum = float;
  using A = unsigned[4];
  using B = unsigned[2];

  __device__ static int row(int lane, int i) { return lane / 4 + 8 * (i / 2); }
  __device__ static int col(int lane, int i) { return lane % 4 * 2 + i % 2; }

  template <bool k_contiguous>
  __device__ static void load_a(A& f, const T* a, int ld, int lane) {
    // Matrices in the order (row half, depth half) = 00 10 01 11.
    const int side = lane % 8;
    const int m = lane / 8 % 2 * 8;
    const int k = lane / 16 * 8;
    load_matrix_x4<!k_contiguous>(f,
                                  k_contiguous ? a + (m + side) * ld + k : a + (k + side) * ld + m);
  }
  template <bool k_contiguous>
  __device__ static void load_b(B& f, const T* b, int ld, int lane) {
    const int side = lane % 8;
    const int k = lane / 8 % 2 * 8;
    load_matrix_x2<!k_contiguous>(f, k_contiguous ? b + side * ld + k : b + (k + side) * ld);
  }
  __device__ static void multiply(Sum (&c)[4], const A& a, const B& b) { mma_16816(c, a, b, T{}); }
};

template <>
struct Mma<float> {
  static constexpr int rows = 16, cols = 8, depth = 8, elements = 4;
  using Sum = float;
  struct Split {
    unsigned large, small;
  };
  using A = Split[4];
  using B = Split[2];

  __device__ static int row(int lane, int i) { return lane / 4 + 8 * (i / 2); }
  __device__ static int col(int lane, int i) { return lane % 4 * 2 + i % 2; }

  __device__ static unsigned to_tf32(float x) {
    unsigned r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
  }
  __device__ static Split split(float x) {
    const unsigned large = to_tf32(x);
    return {large, to_tf32(x - __uint_as_float(large))};
  }
  template <bool k_contiguous>
  __device__ static float at(const float* x, int ld, int side, int k) {
    return k_contiguous ? x[side * ld + k] : x[k * ld + side];
  }
  template <bool k_contiguous>
  __device__ static void load_a(A& f, const float* a, int ld, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      f[i] = split(at<k_contiguous>(a, ld, lane / 4 + i % 2 * 8, lane % 4 + i / 2 * 4));
  }
  template <bool k_contiguous>
  __device__ static void load_b(B& f, const float* b, int ld, int lane) {
#pragma unroll
    for (int i = 0; i < 2; ++i) f[i] = split(at<k_contiguous>(b, ld, lane / 4, lane % 4 + i * 4));
  }
  __device__ static void step(Sum (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                              unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
  __device__ static void multiply(Sum (&c)[4], const A& a, const B& b) {
    // The tensor cores cut their sums off rather than round them, which over a long depth adds up
    // (Ootomo, Yokota: Recovering single precision accuracy from tensor cores, 2022). So each step
    // starts from zero, the small terms first, and is added to the sum outside, rounded.
    Sum part[4] = {0, 0, 0, 0};
    step(part, a[0].small, a[1].small, a[2].small, a[3].small, b[0].large, b[1].large);
    step(part, a[0].large, a[1].large, a[2].large, a[3].large, b[0].small, b[1].small);
    step(part, a[0].large, a[1].large, a[2].large, a[3].large, b[0].large, b[1].large);
#pragma unroll
    for (int i = 0; i < 4; ++i) c[i] += part[i];
  }
};

template <>
struct Mma<double> {
  static constexpr int rows = 8, cols = 8, depth = 4, elements = 2;
  using Sum = double;
  using A = double[1];
  using B = double[1];

  __device__ static int row(int lane, int) { return lane / 4; }
  __device__ static int col(int lane, int i) { return lane % 4 * 2 + i; }

  template <bool k_contiguous>
  __device__ static void load_a(A& f, const double* a, int ld, int lane) {
    f[0] = k_contiguous ? a[lane / 4 * ld + lane % 4] : a[lane % 4 * ld + lane / 4];
  }
  template <bool k_contiguous>
  __device__ static void load_b(B& f, const double* b, int ld, int lane) {
    load_a<k_contiguous>(f, b, ld, lane);
  }
  __device__ static void multiply(Sum (&c)[2], const A& a, const B& b) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(c[0]), "+d"(c[1])
                 : "d"(a[0]), "d"(b[0]));
  }
};

}  // namespace bs::cuda::device
