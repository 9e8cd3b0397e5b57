#include <bs/kernels/cuda/norm/norm_backward_ring.h>
#include <bs/lib/cuda/grid.h>
#include <bs/lib/cuda/occupancy.h>
#include <bs/kernels/cuda/device/ptx/barrier.cuh>
#include <bs/kernels/cuda/early_launch.cuh>
#include <bs/kernels/cuda/norm/rounded_product.cuh>
#include <bs/kernels/cuda/rows.cuh>

namespace bs::cuda {

namespace {

using device::Raw;
using device::wide;

constexpr int least_threads = 128, most_threads = 1024;
/// Blocks that share a row. Sixteen ended once with an illegal address, under synccheck alone.
constexpr int most_cluster = 4;

template <class T>
struct Rows {
  using W = wide<T>;
  const T *x, *dy, *dsum, *weight;
  const W *means, *rstds;  ///< means null for RMS norm
  T* dx;
  W* partial;  ///< null where no sums are wanted
  int64_t rows, n;
  unsigned cluster;  ///< blocks of a row
};

/// How rows lie on a block: a thread has K packs of each of R rows, `stages` times.
template <class T_, bool adds, bool clustered = false>
struct RingShape {
  using T = T_;
  static constexpr int N = device::pack_size<T>, K = 8 / N, R = sizeof(T) == 2 ? 2 : 1;
  static constexpr int tensors = adds ? 3 : 2, stages = adds ? 2 : 3;

  static __host__ __device__ size_t bytes(unsigned threads) {
    return size_t{stages} * tensors * R * K * threads * sizeof(uint4);
  }
  static __device__ unsigned cluster(const Rows<T>& of) { return clustered ? of.cluster : 1; }
};

/// The packs of a thread in the ring. It reads what it brought itself, so no thread waits for
/// another's. What is not there is zeros, which change no sum.
template <class S>
class Ring {
 public:
  using T = typename S::T;

  __device__ Ring(const Rows<T>& of, uint4* memory) : of_(of), mine_(memory + threadIdx.x) {
#pragma unroll
    for (int k = 0; k < S::K; ++k) has_[k] = column(k) < of.n;
  }
  __device__ bool has(int k) const { return has_[k]; }
  __device__ unsigned column(int k) const {
    return ((blockIdx.x % S::cluster(of_) * S::K + k) * blockDim.x + threadIdx.x) * S::N;
  }
  /// Brings the next rows, from `row` on. Where there is none nothing is read, so the address does
  /// not matter.
  __device__ void fetch(int64_t row) {
    uint4* const to = mine_ + into_;
#pragma unroll
    for (int r = 0; r < S::R; ++r)
#pragma unroll
      for (int k = 0; k < S::K; ++k) {
        const bool valid = row + r < of_.rows && has_[k];
        const int64_t at = (row + r) * of_.n + column(k);
        device::copy_async_16(to + place(0, r, k), of_.x + at, valid);
        device::copy_async_16(to + place(1, r, k), of_.dy + at, valid);
        if constexpr (S::tensors > 2)
          device::copy_async_16(to + place(2, r, k), of_.dsum + at, valid);
      }
    device::commit_copies();
    into_ = next(into_);
  }
  __device__ void get(int tensor, int r, int k, wide<T> (&v)[S::N]) const {
    const uint4* const from = mine_ + from_ + place(tensor, r, k);
    device::widen_pack<T, S::N>(*reinterpret_cast<const Raw<T, S::N>*>(from), v);
  }
  __device__ void pass_on() { from_ = next(from_); }

 private:
  static __device__ unsigned place(int tensor, int r, int k) {
    return ((tensor * S::R + r) * S::K + k) * blockDim.x;
  }
  static __device__ unsigned next(unsigned first) {
    const unsigned size = place(S::tensors, 0, 0);
    return first == (S::stages - 1) * size ? 0 : first + size;
  }

  const Rows<T>& of_;
  uint4* mine_;
  unsigned into_ = 0, from_ = 0;  ///< where a stage begins
  bool has_[S::K];
};

/// Sums over the block, by way of `shared` of 32 warps, which the call after the next may use
/// again. A warp halves what each lane has of the M numbers, until it has one.
template <class W, int M>
__device__ void sum_over_block(W (&v)[M], W* shared) {
  constexpr unsigned all = 0xffffffffU;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned mine = 0;
#pragma unroll
  for (int half = M / 2, bit = 1; half > 0; half /= 2, bit *= 2) {
    const bool upper = (lane & bit) != 0;
    mine += upper ? half : 0;
#pragma unroll
    for (int m = 0; m < half; ++m) {
      const W sent = upper ? v[m] : v[m + half];
      v[m] = (upper ? v[m + half] : v[m]) + __shfl_xor_sync(all, sent, bit);
    }
  }
#pragma unroll
  for (int bit = M; bit < 32; bit *= 2) v[0] += __shfl_xor_sync(all, v[0], bit);
  if (lane < M) shared[warp * M + mine] = v[0];
  __syncthreads();
  W sum = 0;
#pragma unroll
  for (unsigned first = 0; first < 32 * M; first += 32)
    if (first + lane < blockDim.x / 32 * M) sum += shared[first + lane];
#pragma unroll
  for (int bit = M; bit < 32; bit *= 2) sum += __shfl_xor_sync(all, sum, bit);
#pragma unroll
  for (int m = 0; m < M; ++m) v[m] = __shfl_sync(all, sum, m);
}

/// Sums over the blocks of a cluster, in the order of their ranks. Each sends its own to all and
/// waits for as many: where sums of a turn arrive, those of the turn before the last have been
/// read.
template <int M>
class ClusterSums {
 public:
  static_assert(M <= 4, "what is sent at once");

  /// In shared memory, of one block. All threads of all blocks call.
  __device__ void begin() {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
      arrived_[0].init(1);
      arrived_[1].init(1);
      device::fence_barrier_init();
    }
    device::cluster_sync();
#endif
  }
  /// Turn after turn, beginning with 0; all threads have the sums of their block.
  __device__ void sum(float (&v)[M], unsigned turn, unsigned cluster) {
#if __CUDA_ARCH__ >= 900
    device::Barrier& arrived = arrived_[turn % 2];
    float4* const from = from_[turn % 2];
    if (threadIdx.x == 0) arrived.arrive_expecting(cluster * sizeof(float4));
    if (threadIdx.x < cluster) {
      float sent[4] = {};
#pragma unroll
      for (int m = 0; m < M; ++m) sent[m] = v[m];
      const unsigned to = threadIdx.x, mine = device::shared_address(from + device::cluster_rank());
      device::store_at(device::address_at(to, mine), sent,
                       device::address_at(to, arrived.address()));
    }
    arrived.wait(turn / 2 % 2);
    float4 all = from[0];
    for (unsigned rank = 1; rank < cluster; ++rank) {
      const float4 other = from[rank];
      all = {all.x + other.x, all.y + other.y, all.z + other.z, all.w + other.w};
    }
    const float sums[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
    for (int m = 0; m < M; ++m) v[m] = sums[m];
#endif
  }

 private:
  float4 from_[2][most_cluster];
  device::Barrier arrived_[2];
};

/// As norm_backward_kernel, for R rows at a time. The mean's part of 16 bits, and their products,
/// are fused: what that leaves is far below what an element is rounded by.
template <class T, bool adds, bool clustered>
__global__ void __launch_bounds__(most_threads)
    norm_backward_ring_kernel(const __grid_constant__ Rows<T> of) {
  using W = wide<T>;
  using S = RingShape<T, adds, clustered>;
  constexpr int N = S::N, K = S::K, R = S::R;
  constexpr bool fused = sizeof(T) == 2;
  extern __shared__ uint4 memory[];
  __shared__ W shared[2][32 * 2 * R];
  __shared__ ClusterSums<2 * R> cluster;
  Ring<S> ring(of, memory);
  const W share = W(1) / static_cast<W>(of.n);
  Raw<T, N> weight[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    W ones[N];
    get_over(of.weight && ring.has(k) ? of.weight + ring.column(k) : nullptr, 0, W(1), ones);
    const auto pack = device::narrow_pack<T, N>(ones);
    weight[k] = reinterpret_cast<const Raw<T, N>&>(pack);
  }
  W dweight[K][N] = {}, dbias[K][N] = {}, next_mean[R] = {}, next_rstd[R] = {};
  const auto fetch_statistics = [&](int64_t row) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const bool inside = row + r < of.rows;
      next_mean[r] = inside && of.means ? of.means[row + r] : W(0);
      next_rstd[r] = inside ? of.rstds[row + r] : W(0);
    }
  };
  const unsigned worker = blockIdx.x / S::cluster(of), workers = gridDim.x / S::cluster(of);
  const int64_t begin = int64_t{worker} * R, step = int64_t{workers} * R;
  for (int s = 0; s + 1 < S::stages; ++s) ring.fetch(begin + s * step);
  fetch_statistics(begin);
  if constexpr (clustered) cluster.begin();
  unsigned turn = 0;
  for (int64_t row = begin; row < of.rows; row += step, ++turn) {
    ring.fetch(row + (S::stages - 1) * step);
    W mean[R], rstd[R], sums[2 * R] = {};
#pragma unroll
    for (int r = 0; r < R; ++r) {
      mean[r] = fused ? -next_mean[r] * next_rstd[r] : next_mean[r];
      rstd[r] = next_rstd[r];
    }
    fetch_statistics(row + step);
    device::wait_copies<S::stages - 1>();
    // f(r, k, h, d, g): normalised x, dy, and dy times the weight.
    const auto for_each = [&](auto&& f) {
#pragma unroll
      for (int k = 0; k < K; ++k) {
        W w[N];
        device::widen_pack<T, N>(weight[k], w);
#pragma unroll
        for (int r = 0; r < R; ++r) {
          W h[N], d[N], g[N];
          ring.get(0, r, k, h);
          ring.get(1, r, k, d);
#pragma unroll
          for (int i = 0; i < N; ++i) {
            h[i] = fused ? h[i] * rstd[r] + mean[r] : (h[i] - mean[r]) * rstd[r];
            g[i] = w[i] * d[i];
          }
          f(r, k, h, d, g);
        }
      }
    };
    for_each([&](int r, int k, W(&h)[N], W(&d)[N], W(&g)[N]) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        sums[2 * r] += g[i];
        sums[2 * r + 1] += g[i] * h[i];
        dweight[k][i] += d[i] * h[i];
        dbias[k][i] += d[i];
      }
    });
    sum_over_block(sums, shared[turn % 2]);
    if constexpr (clustered) cluster.sum(sums, turn, of.cluster);
    for_each([&](int r, int k, W(&h)[N], W(&)[N], W(&g)[N]) {
      const W offset = of.means ? rstd[r] * (sums[2 * r] * share) : W(0);
      const W factor = rstd[r] * (sums[2 * r + 1] * share);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (fused) {
          g[i] = rstd[r] * g[i] + (-factor * h[i] - offset);
        } else {
          g[i] = rounded_product(rstd[r], g[i]) - offset - h[i] * factor;
        }
      }
      if constexpr (adds) {
        W other[N];
        ring.get(2, r, k, other);
#pragma unroll
        for (int i = 0; i < N; ++i) g[i] += other[i];
      }
      if (ring.has(k) && row + r < of.rows)
        store_pack<N>(of.dx + (row + r) * of.n + ring.column(k), g);
    });
    ring.pass_on();
  }
  let_next_launch_begin();
  if (!of.partial) return;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (!ring.has(k)) continue;
    W* const to = of.partial + worker * of.n + ring.column(k);
    store_pack<N>(to, dweight[k]);
    store_pack<N>(to + workers * of.n, dbias[k]);
  }
}

/// Launches blocks in clusters.
template <class P>
void launch_cluster(void (*kernel)(P), unsigned grid, unsigned threads, size_t shared,
                    unsigned cluster, Stream stream, const P& parameters) {
  cudaLaunchAttribute size{};
  size.id = cudaLaunchAttributeClusterDimension;
  size.val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = native(stream);
  config.attrs = &size;
  config.numAttrs = cluster > 1 ? 1 : 0;
  BS_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, parameters));
}

/// Blocks of a row, and what each takes: as few as have two of their kind on a multiprocessor.
struct RowShare {
  unsigned cluster = 1, threads;
  size_t bytes;

  template <class S>
  static RowShare of(int64_t n) {
    constexpr unsigned two = most_threads / 2;
    const auto threads_of = [packs = ceil_div(n, S::N)](unsigned cluster) {
      const int64_t lanes = ceil_div(packs, int64_t{S::K} * cluster);
      return static_cast<unsigned>(std::min<int64_t>(round_up(lanes, 32), most_threads + 1));
    };
    RowShare share;
    share.threads = threads_of(1);
    if (share.threads > most_threads)
      while (share.cluster < most_cluster && share.threads > two)
        share.threads = threads_of(share.cluster *= 2);
    share.bytes = S::bytes(share.threads);
    return share;
  }
};

/// How many rows are worked on at once. A few turns are worth more sums of blocks to add up, until
/// there are threads enough; then 16 rows each, so that sums stay small beside x.
unsigned workers_of(const RowShare& share, int64_t rows, int64_t turns, int64_t fit,
                    Device device) {
  constexpr int64_t busy = 512;  // threads that keep a multiprocessor so
  const int64_t processors = device_properties(device).multiprocessors;
  const int64_t few = share.cluster > 1 ? fit : ceil_div(processors * busy, share.threads);
  return static_cast<unsigned>(std::min(fit, std::max(ceil_div(rows, 16), std::min(few, turns))));
}

template <class T, bool adds>
unsigned launch(Rows<T> of, bool wants_sums, Tensor& partial, Device device, Stream stream) {
  using S = RingShape<T, adds>;
  const RowShare share = RowShare::of<S>(of.n);
  const auto threads = static_cast<int>(share.threads);
  const auto shared = static_cast<size_t>(device_properties(device).shared_memory_optin);
  const bool clustered = share.cluster > 1;
  auto* const kernel = clustered ? norm_backward_ring_kernel<T, adds, true>
                                 : norm_backward_ring_kernel<T, adds, false>;
  const auto* const symbol = reinterpret_cast<const void*>(kernel);
  const size_t fixed = 4096;
  if (threads < least_threads || threads > most_threads || share.bytes + fixed > shared) return 0;
  if (clustered && !kernels_wait()) return 0;  // both came with 9.0
  allow_shared_memory(symbol, shared - fixed, device);
  const int64_t fit = clustered ? clusters_that_fit(symbol, static_cast<int>(share.cluster),
                                                    threads, share.bytes, device)
                                : int64_t{blocks_that_fit(symbol, threads, share.bytes, device)} *
                                      device_properties(device).multiprocessors;
  if (fit == 0) return 0;
  const unsigned workers = workers_of(share, of.rows, ceil_div(of.rows, S::R), fit, device);
  if (wants_sums) partial = Tensor::empty({2, int64_t{workers}, of.n}, dtype_of<wide<T>>, device);
  of.partial = maybe<wide<T>>(partial);
  of.cluster = share.cluster;
  launch_cluster(kernel, workers * share.cluster, share.threads, share.bytes, share.cluster, stream,
                 of);
  return workers;
}

}  // namespace

unsigned norm_backward_ring(const NormResult& of, const Tensor& weight, const Tensor& dy,
                            const Tensor& dsum, const NormGradients& to, Tensor& partial,
                            Stream stream) {
  const Tensor& x = of.sum;
  const int64_t n = x.size(-1);
  return visit_floating("norm_backward", x.dtype(), [&]<class T>(Type<T>) -> unsigned {
    using D = device_type<T>;
    using W = wide<D>;
    if constexpr (sizeof(T) > 4) {
      return 0;  // doubles have not the registers
    } else {
      if (!aligned16(x, weight, dy, dsum, to.dx) || n % device::pack_size<D> != 0) return 0;
      const Rows<D> rows{.x = pointer<T>(x),
                         .dy = pointer<T>(dy),
                         .dsum = maybe<T>(dsum),
                         .weight = maybe<T>(weight),
                         .means = maybe<W>(of.mean),
                         .rstds = pointer<W>(of.rstd),
                         .dx = pointer<T>(to.dx),
                         .partial = nullptr,
                         .rows = x.numel() / n,
                         .n = n,
                         .cluster = 1};
      const bool sums = to.dweight.defined() || to.dbias.defined();
      return dsum.defined() ? launch<D, true>(rows, sums, partial, x.device(), stream)
                            : launch<D, false>(rows, sums, partial, x.device(), stream);
    }
  });
}

}  // namespace bs::cuda
