#pragma once
// The steps of an LSTM in one kernel, for 16-bit types. Each CTA has 8 cells of all sequences and
// keeps their rows of W_hh in registers; c stays in registers too. Only h travels, through L2, from
// all CTAs to all.
//
// The 32 rows (8 cells, 4 gates) of a CTA are two tiles of mma.m16n8k16, whose columns are
// sequences: tile 0 is i over f, tile 1 g over o, so that a lane gets all gates of its cell. The
// depth, all cells, is divided among the 8 warps; their sums meet in shared memory, where thread
// (sequence, cell) adds them up. h lies in memory in the order in which lanes take it as the right
// operand, two fragments to a 16-byte load, in two copies used in turn.
//
// A warp waits for the cells of its part of the depth alone: there is a counter a part, which the
// CTAs of these cells raise once a step. A CTA raises it after its warps have read h of the step
// before, so two copies are enough.
#include <bs/kernels/cuda/device/arithmetic.cuh>
#include <bs/kernels/cuda/device/lstm_cell.cuh>
#include <bs/kernels/cuda/device/mma.cuh>

namespace bs::cuda::device {

/// One direction. `exchange` and `counters` are zero when the kernel begins.
template <class T>
struct PersistentLstm {
  T* gates;            ///< [steps, batch, 4 cells], in: the input's part of the sums; out: gates
  T* h;                ///< [steps + 1, batch, cells]
  float* c;            ///< [steps + 1, batch, cells]
  const T* hh;         ///< [4 cells, cells]
  T* exchange;         ///< two copies of h
  unsigned* counters;  ///< 8, `counter_step` apart
  int steps, batch;
  bool reverse, hard;
};

struct PersistentShape {
  static constexpr int threads = 256, warps = 8, cells = 8;  ///< of a CTA
  static constexpr int counter_step = 32;                    ///< elements: a line each
};

__device__ inline void raise(unsigned* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

__device__ inline void wait_for(const unsigned* counter, unsigned value) {
  unsigned seen;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  } while (seen < value);
}

__device__ inline uint4 load_through_l2(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

/// Gates without the last bits of exponentials, which 16 bits do not show.
template <bool hard>
__device__ inline float quick_gate(float z) {
  if constexpr (hard) return gate<true>(z);
  return __fdividef(1.0F, 1.0F + __expf(-z));
}
template <bool hard>
__device__ inline float quick_squash(float z) {
  if constexpr (hard) return squash<true>(z);
  return 1.0F - __fdividef(2.0F, 1.0F + __expf(2.0F * (z > 20.0F ? 20.0F : z)));
}

struct PersistentCell {
  LstmGates<float> z;
  float c, h;
};

template <bool hard>
__device__ inline void compute(PersistentCell& cell) {
  LstmGates<float>& z = cell.z;
  z.i = quick_gate<hard>(z.i);
  z.f = quick_gate<hard>(z.f);
  z.g = quick_squash<hard>(z.g);
  z.o = quick_gate<hard>(z.o);
  cell.c = z.f * cell.c + z.i * z.g;
  cell.h = z.o * quick_squash<hard>(cell.c);
}

/// KS: depth steps of 16 a warp (cells / 128); NT: tiles of 8 sequences a group; NG: groups.
template <class T, int KS, int NT, int NG>
struct LstmCta {
  using Shape = PersistentShape;
  static constexpr int hidden = 128 * KS, group = 8 * NT;
  static constexpr long long group_bytes = static_cast<long long>(hidden) * group * sizeof(T);

  const PersistentLstm<T>& p;
  float4* sums;  ///< [warps][group][8 cells], the cells of a sequence exchanged by `slot`
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int b = threadIdx.x / 8, u = threadIdx.x % 8;  ///< sequence of a group and cell of this thread
  int unit = blockIdx.x * Shape::cells + u;

  __device__ static int slot(int sequence, int cell) { return cell ^ sequence / 2 % 4 * 2; }
  __device__ bool mine(int g) const { return b < group && g * group + b < p.batch; }
  __device__ long long state(long long time_slot, int g) const {
    return (time_slot * p.batch + g * group + b) * hidden + unit;
  }
  __device__ char* copy(long long n, int g) const {
    return reinterpret_cast<char*>(p.exchange) + (n % 2 * NG + g) * group_bytes;
  }

  /// The rows of W_hh of this CTA and the depth of this warp.
  __device__ void load_weights(unsigned (&a)[KS][2][4]) const {
    const int k = warp * KS * 16 + lane % 4 * 2;
#pragma unroll
    for (int s = 0; s < KS; ++s)
#pragma unroll
      for (int r = 0; r < 8; ++r) {
        const int tile = r / 4, part = r % 4;
        const long long row = (tile * 2 + part % 2) * static_cast<long long>(hidden) +
                              blockIdx.x * Shape::cells + lane / 4;
        a[s][tile][part] =
            *reinterpret_cast<const unsigned*>(p.hh + row * hidden + k + s * 16 + part / 2 * 8);
      }
  }

  /// Puts h where the next step reads it: neighbouring cells make one word.
  __device__ void publish(long long n, int g, float h, bool valid) const {
    const T narrowed = narrow<T>(h);
    const unsigned own = *reinterpret_cast<const unsigned short*>(&narrowed);
    const unsigned other = __shfl_xor_sync(0xffffffffU, own, 1);
    if (!valid || u % 2 != 0) return;
    const int chunk = unit / 16 * NT + b / 8;
    const int to = b % 8 * 4 + u / 2;
    char* at = copy(n, g) + ((chunk / 2 * 32 + to) * 2 + chunk % 2) * 8 + unit / 8 % 2 * 4;
    *reinterpret_cast<unsigned*>(at) = own | other << 16;
  }

  /// All stores of the CTA so far come before the count.
  __device__ void announce() const {
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence();
    raise(p.counters + blockIdx.x / (2 * KS) * Shape::counter_step);
  }

  /// This warp's part of the sums of a group, into shared memory.
  __device__ void multiply(long long n, int g, const unsigned (&a)[KS][2][4]) const {
    const auto* from =
        reinterpret_cast<const uint4*>(copy(n, g)) + warp * KS * (NT / 2) * 32 + lane;
    uint4 h[KS][NT / 2];
#pragma unroll
    for (int s = 0; s < KS; ++s)
#pragma unroll
      for (int j = 0; j < NT / 2; ++j) h[s][j] = load_through_l2(from + (s * (NT / 2) + j) * 32);
    float sum[NT][2][4] = {};
#pragma unroll
    for (int s = 0; s < KS; ++s)
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        const uint4& v = h[s][j / 2];
        const unsigned right[2] = {j % 2 ? v.z : v.x, j % 2 ? v.w : v.y};
        mma_16816(sum[j][0], a[s][0], right, T{});
        mma_16816(sum[j][1], a[s][1], right, T{});
      }
#pragma unroll
    for (int j = 0; j < NT; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int sequence = j * 8 + lane % 4 * 2 + i;
        sums[(warp * group + sequence) * 8 + slot(sequence, lane / 4)] =
            make_float4(sum[j][0][i], sum[j][0][2 + i], sum[j][1][i], sum[j][1][2 + i]);
      }
  }

  /// The warps' sums on top of the input's part.
  __device__ void add_sums(LstmGates<float>& z) const {
    if (b >= group) return;
#pragma unroll
    for (int w = 0; w < Shape::warps; ++w) {
      const float4 s = sums[(w * group + b) * 8 + slot(b, u)];
      z.i += s.x;
      z.f += s.y;
      z.g += s.z;
      z.o += s.w;
    }
  }
};

template <class T, int KS, int NT, int NG>
__device__ void lstm_persistent(const PersistentLstm<T>& p) {
  using Cta = LstmCta<T, KS, NT, NG>;
  constexpr int hidden = Cta::hidden, group = Cta::group;
  __shared__ float4 sums[PersistentShape::warps * group * 8];
  const Cta cta{p, sums};
  unsigned a[KS][2][4];
  cta.load_weights(a);
  PersistentCell cells[NG];
  const long long first = p.reverse ? p.steps : 0;
#pragma unroll
  for (int g = 0; g < NG; ++g) {
    const bool valid = cta.mine(g);
    cells[g].c = valid ? p.c[cta.state(first, g)] : 0.0F;
    cta.publish(0, g, valid ? widen(p.h[cta.state(first, g)]) : 0.0F, valid);
  }
  cta.announce();
  for (int n = 0; n < p.steps; ++n) {
    const long long t = p.reverse ? p.steps - 1 - n : n;
    const long long after = p.reverse ? t : t + 1;
#pragma unroll
    for (int g = 0; g < NG; ++g) {
      if (!cta.mine(g)) continue;
      const T* x = p.gates + ((t * p.batch + g * group + cta.b) * 4) * hidden + cta.unit;
      cells[g].z = {widen(x[0]), widen(x[hidden]), widen(x[2 * hidden]), widen(x[3 * hidden])};
    }
    if (cta.lane == 0)
      wait_for(p.counters + cta.warp * PersistentShape::counter_step,
               static_cast<unsigned>(n + 1) * (2 * KS));
    __syncwarp();
#pragma unroll
    for (int g = 0; g < NG; ++g) {
      if (g > 0) __syncthreads();  // the sums of the group before have been taken
      cta.multiply(n, g, a);
      __syncthreads();
      cta.add_sums(cells[g].z);
    }
#pragma unroll
    for (int g = 0; g < NG; ++g) {
      if (p.hard) {
        compute<true>(cells[g]);
      } else {
        compute<false>(cells[g]);
      }
      cta.publish(n + 1, g, cells[g].h, cta.mine(g));
    }
    cta.announce();
    // What nobody waits for comes after the count.
#pragma unroll
    for (int g = 0; g < NG; ++g) {
      if (!cta.mine(g)) continue;
      T* x = p.gates + ((t * p.batch + g * group + cta.b) * 4) * hidden + cta.unit;
      x[0] = narrow<T>(cells[g].z.i);
      x[hidden] = narrow<T>(cells[g].z.f);
      x[2 * hidden] = narrow<T>(cells[g].z.g);
      x[3 * hidden] = narrow<T>(cells[g].z.o);
      p.c[cta.state(after, g)] = cells[g].c;
      p.h[cta.state(after, g)] = narrow<T>(cells[g].h);
    }
  }
}

}  // namespace bs::cuda::device
