#pragma once
// The ring of stages between the copy engine and the warpgroups that multiply (sm_90a): barriers
// that count arrivals and bytes, copies of boxes, to several CTAs of a cluster at once, and what
// surrounds the multiplying instruction, which is emitted beside the kernel.
#include <bs/kernels/cuda/device/async_copy.cuh>
#include <bs/kernels/cuda/device/gemm_params.cuh>

namespace bs::cuda::device {

/// Which stage, and the parity of the round it is in.
template <int Stages>
struct RingPosition {
  int stage = 0;
  unsigned parity = 0;

  __device__ void advance() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

__device__ inline unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

/// A phase ends when all have arrived and all announced bytes have landed.
struct RingBarrier {
  unsigned long long word;

  __device__ unsigned address() const { return shared_address(&word); }
  __device__ void init(unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals)
                 : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  /// At the barrier in the same place of another CTA of the cluster. Without a scope: all that must
  /// be ordered is done by the copy engine and by products waited for; .release.cluster would be a
  /// fence of the whole GPU each time.
  __device__ void arrive_at(unsigned cta) {
    asm volatile(
        "{\n.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(address()),
        "r"(cta)
        : "memory");
  }
  __device__ void arrive_expecting(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
  }
  __device__ void wait(unsigned parity) {
    unsigned done;
    do {
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(address()), "r"(parity)
          : "memory");
    } while (done == 0);
  }
};

/// Makes initialised barriers visible to the copy engine; a barrier of all threads follows.
__device__ inline void fence_ring_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Reads the box at these coordinates, the innermost first; to the same place in all `Ctas` CTAs of
/// the cluster, whose barriers in the place of `done` count the bytes.
template <int Ctas>
__device__ inline void load_box_3d(unsigned to, const GemmMap& map, RingBarrier& done, int c0,
                                   int c1, int c2) {
  if constexpr (Ctas == 1) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
        "l"(&map), "r"(done.address()), "r"(c0), "r"(c1), "r"(c2)
        : "memory");
  } else {
    constexpr unsigned short all = (1 << Ctas) - 1;
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
        "l"(&map), "r"(done.address()), "r"(c0), "r"(c1), "r"(c2), "h"(all)
        : "memory");
  }
}

/// A matrix in shared memory as wgmma wants it described: lines of 128 bytes, swizzled, groups of 8
/// lines behind each other; where it is longer along the lines, its pieces are `piece` bytes apart.
__device__ inline unsigned long long shared_matrix(unsigned address, unsigned piece) {
  return 1ULL << 62 | 64ULL << 32 | static_cast<unsigned long long>(piece / 16) << 16 |
         (address & 0x3FFFF) / 16;
}

/// Sums in registers are what the products that follow start from.
__device__ inline void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void warpgroup_commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int Pending>
__device__ inline void warpgroup_wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
/// Keeps reads of the sums behind the wait, on which the compiler cannot see them depend.
template <int N>
__device__ inline void pin_sums(float (&sums)[N][4]) {
#pragma unroll
  for (int i = 0; i < 4 * N; ++i) asm volatile("" : "+f"(sums[i / 4][i % 4])::"memory");
}
template <int N>
__device__ inline void pin_sums(int (&sums)[N][4]) {
#pragma unroll
  for (int i = 0; i < 4 * N; ++i) asm volatile("" : "+r"(sums[i / 4][i % 4])::"memory");
}

/// Writes a box from shared memory, as one group of this thread's stores.
__device__ inline void store_box_3d(const GemmMap& map, unsigned from, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];\n"
      "cp.async.bulk.commit_group;" ::"l"(&map),
      "r"(from), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
/// Waits until all but the `Pending` latest stores of this thread have read their shared memory.
template <int Pending>
__device__ inline void wait_boxes_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
/// Orders this thread's writes to shared memory before reads by the copy engine.
__device__ inline void fence_shared_for_boxes() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// Writes four 8x8 matrices of 16-bit elements; each lane gives the address of one row of one.
__device__ inline void store_matrices(unsigned address, const unsigned (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
/// A barrier of the threads of one warpgroup.
__device__ inline void sync_warpgroup(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
}

template <int Registers>
__device__ inline void claim_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ inline void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// A barrier of the first `Threads` threads of the CTA.
template <int Threads>
__device__ inline void sync_threads() {
  asm volatile("bar.sync 1, %0;" ::"n"(Threads) : "memory");
}

}  // namespace bs::cuda::device
