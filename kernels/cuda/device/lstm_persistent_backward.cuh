#pragma once
// The steps of an LSTM's backward in one kernel, for 16-bit types; see lstm_persistent.cuh for the
// forward, whose division of cells, order in memory and counters it shares.
//
// What travels is the gradient of the sums, four numbers a cell. To read all of it would take each
// CTA four times as long as h, so the CTAs of a cluster of two divide the depth: each multiplies
// its half with the 16 columns of W_hh that both need, and sends the sums of the other's 8 cells to
// the other's shared memory. There, thread (sequence, cell) adds what 16 warps have sent.
//
// Sequences are the rows of mma.m16n8k16 and cells its columns. A CTA's 32 gradients make two steps
// of the depth: i and f of its cells, then g and o.
#include <bs/kernels/cuda/device/lstm_persistent.cuh>

namespace bs::cuda::device {

/// One direction. `exchange` and `counters` are zero when the kernel begins.
template <class T>
struct PersistentLstmBackward {
  const T* gates;       ///< [steps, batch, 4 cells]
  const float* c;       ///< [steps + 1, batch, cells]
  const T* hh;          ///< [4 cells, cells]
  const T* dy;          ///< [steps, batch, cells], or null
  const float* dcells;  ///< [steps, batch, cells], or null
  float *dh, *dc;       ///< [batch, cells], in and out
  T* dgates;            ///< [steps, batch, 4 cells]
  T* exchange;          ///< two copies of a step of dgates
  unsigned* counters;   ///< 16, `counter_step` apart
  int steps, batch;
  bool reverse, hard;
};

__device__ inline unsigned rank_in_cluster() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Everything written before, to any memory of the cluster, is seen after.
__device__ inline void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

__device__ inline void store_to_rank(unsigned rank, void* shared, float2 v) {
  unsigned address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(shared_address(shared)), "r"(rank));
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(v.x), "f"(v.y)
               : "memory");
}

/// KS: cells / 128; MT: tiles of 16 sequences.
template <class T, int KS, int MT>
struct LstmBackwardCta {
  using Shape = PersistentShape;
  static constexpr int hidden = 128 * KS, rows = 16 * MT, ctas = hidden / Shape::cells;
  static constexpr int depth = 2 * KS;  ///< steps of 16 a warp
  static constexpr long long copy_bytes = static_cast<long long>(4) * hidden * rows * sizeof(T);

  const PersistentLstmBackward<T>& p;
  float* received;  ///< [2][16 warps][rows][8 cells]
  unsigned rank = rank_in_cluster();
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int b = threadIdx.x / 8, u = threadIdx.x % 8;
  int unit = blockIdx.x * Shape::cells + u;

  __device__ bool mine() const { return b < rows && b < p.batch; }
  __device__ long long state() const { return static_cast<long long>(b) * hidden + unit; }
  __device__ char* copy(int n) const {
    return reinterpret_cast<char*>(p.exchange) + n % 2 * copy_bytes;
  }
  /// The first step of this warp's part of the depth; two steps a CTA.
  __device__ int first_step() const { return static_cast<int>(rank) * ctas + warp * depth; }

  /// The 16 columns of both CTAs of the cluster, in the rows of this warp's depth.
  __device__ void load_weights(unsigned (&w)[depth][2][2]) const {
    const int column = blockIdx.x / 2 * 16 + lane / 4;
#pragma unroll
    for (int s = 0; s < depth; ++s) {
      const int step = first_step() + s;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int tile = r / 2, gate = step % 2 * 2 + r % 2;
        const long long row =
            static_cast<long long>(gate) * hidden + step / 2 * Shape::cells + lane % 4 * 2;
        const T* at = p.hh + row * hidden + column + tile * 8;
        const unsigned low = *reinterpret_cast<const unsigned short*>(at);
        const unsigned high = *reinterpret_cast<const unsigned short*>(at + hidden);
        w[s][tile][r % 2] = low | high << 16;
      }
    }
  }

  /// Puts the gradients of this thread's sums where products read them.
  __device__ void publish(int n, const LstmGates<float>& d) const {
    const float sums[4] = {d.i, d.f, d.g, d.o};
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      const T narrowed = narrow<T>(sums[g]);
      const unsigned own = *reinterpret_cast<const unsigned short*>(&narrowed);
      const unsigned other = __shfl_xor_sync(0xffffffffU, own, 1);
      if (!mine() || u % 2 != 0) continue;
      const int step = blockIdx.x * 2 + g / 2, to = b % 8 * 4 + u / 2;
      char* at = copy(n) + ((step * MT + b / 16) * 32 + to) * 16 + (g % 2 * 2 + b % 16 / 8) * 4;
      *reinterpret_cast<unsigned*>(at) = own | other << 16;
    }
  }

  __device__ void announce() const {
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence();
    const int part = blockIdx.x / (ctas / 2) * Shape::warps + blockIdx.x % (ctas / 2) / KS;
    raise(p.counters + part * Shape::counter_step);
  }
  /// For the CTAs of this warp's depth to have announced `count` steps.
  __device__ void wait(unsigned count) const {
    if (lane == 0)
      wait_for(p.counters + (rank * Shape::warps + warp) * Shape::counter_step, count * KS);
    __syncwarp();
  }

  /// This warp's part of the product, to the CTAs whose cells it is of.
  __device__ void multiply(int n, const unsigned (&w)[depth][2][2]) const {
    const auto* from = reinterpret_cast<const uint4*>(copy(n)) + first_step() * MT * 32 + lane;
    constexpr int ahead = depth < 8 ? depth : 8;  // steps whose loads are on their way together
    float sum[MT][2][4] = {};
#pragma unroll
    for (int first = 0; first < depth; first += ahead) {
      uint4 d[ahead][MT];
#pragma unroll
      for (int s = 0; s < ahead; ++s)
#pragma unroll
        for (int m = 0; m < MT; ++m)
          if (first + s < depth) d[s][m] = load_through_l2(from + ((first + s) * MT + m) * 32);
#pragma unroll
      for (int s = 0; s < ahead; ++s)
#pragma unroll
        for (int m = 0; m < MT; ++m) {
          if (first + s >= depth) continue;
          const unsigned left[4] = {d[s][m].x, d[s][m].y, d[s][m].z, d[s][m].w};
          mma_16816(sum[m][0], left, w[first + s][0], T{});
          mma_16816(sum[m][1], left, w[first + s][1], T{});
        }
    }
    float* mine = received + ((n % 2 * 16 + rank * 8 + warp) * rows + lane / 4) * 8 + lane % 4 * 2;
#pragma unroll
    for (unsigned tile = 0; tile < 2; ++tile)
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        store_to_rank(tile, mine + m * 16 * 8, make_float2(sum[m][tile][0], sum[m][tile][1]));
        store_to_rank(tile, mine + (m * 16 + 8) * 8, make_float2(sum[m][tile][2], sum[m][tile][3]));
      }
  }

  __device__ float collect(int n) const {
    float sum = 0;
    if (b >= rows) return sum;
#pragma unroll
    for (int w = 0; w < 16; ++w) sum += received[((n % 2 * 16 + w) * rows + b) * 8 + u];
    return sum;
  }
};

template <class T, int KS, int MT>
__device__ void lstm_persistent_backward(const PersistentLstmBackward<T>& p) {
  using Cta = LstmBackwardCta<T, KS, MT>;
  constexpr int hidden = Cta::hidden;
  __shared__ float received[2 * 16 * Cta::rows * 8];
  const Cta cta{p, received};
  unsigned w[Cta::depth][2][2];
  cta.load_weights(w);
  const bool valid = cta.mine();
  const long long count = static_cast<long long>(p.batch) * hidden;
  float dh = valid ? p.dh[cta.state()] : 0.0F, dc = valid ? p.dc[cta.state()] : 0.0F;
  meet_cluster();  // the other's shared memory is there
  for (int n = 0; n < p.steps; ++n) {
    const long long t = p.reverse ? n : p.steps - 1 - n;
    LstmGates<float> d{};
    const long long at = t * 4 * count + static_cast<long long>(cta.b) * 4 * hidden + cta.unit;
    if (valid) {
      const T* x = p.gates + at;
      const LstmGates<float> z{widen(x[0]), widen(x[hidden]), widen(x[2 * hidden]),
                               widen(x[3 * hidden])};
      const float before = p.c[(p.reverse ? t + 1 : t) * count + cta.state()];
      const float after = p.c[(p.reverse ? t : t + 1) * count + cta.state()];
      if (p.dy) dh += widen(p.dy[t * count + cta.state()]);
      if (p.dcells) dc += p.dcells[t * count + cta.state()];
      d = p.hard ? lstm_cell_backward<true>(z, before, after, dh, dc)
                 : lstm_cell_backward<false>(z, before, after, dh, dc);
    }
    cta.publish(n, d);
    cta.announce();
    if (valid) {  // what nobody waits for
      T* to = p.dgates + at;
      to[0] = narrow<T>(d.i);
      to[hidden] = narrow<T>(d.f);
      to[2 * hidden] = narrow<T>(d.g);
      to[3 * hidden] = narrow<T>(d.o);
    }
    cta.wait(static_cast<unsigned>(n + 1));
    cta.multiply(n, w);
    meet_cluster();
    dh = cta.collect(n);
  }
  if (!valid) return;
  p.dh[cta.state()] = dh;
  p.dc[cta.state()] = dc;
}

}  // namespace bs::cuda::device
