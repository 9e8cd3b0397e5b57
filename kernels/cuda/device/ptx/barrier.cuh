#pragma once
// Barriers in shared memory that count arrivals (mbarrier, sm_80) and bytes of bulk copies (sm_90),
// and barriers of a few warps.
#include <bs/kernels/cuda/device/ptx/async_copy.cuh>

namespace bs::cuda::device {

/// A place in a ring of stages: which stage, and the parity of the round it is in.
template <int Stages>
struct RingPlace {
  int stage = 0;
  unsigned parity = 0;

  __device__ void advance() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// A phase ends when `arrivals` threads have arrived and all announced bytes have landed.
struct Barrier {
  unsigned long long word;

  __device__ unsigned address() const { return shared_address(&word); }

  __device__ void init(unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals)
                 : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
  }
  /// At the barrier in the same place of another CTA of the cluster. Without a scope: for what is
  /// ordered by the copy engine and by products waited for; .release.cluster would be a fence of
  /// the whole GPU each time.
  __device__ void arrive_at(unsigned cta) {
    asm volatile(
        "{\n.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(address()),
        "r"(cta)
        : "memory");
  }
  /// Arrives, and announces bytes that the phase waits for.
  __device__ void arrive_expecting(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
  }
  /// Arrives once the calling thread's earlier copy_async_16 have landed.
  __device__ void arrive_after_copies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address())
                 : "memory");
  }
  /// Whether the phase of this parity has ended.
  __device__ bool ended(unsigned parity) const {
    unsigned done;
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}"
        : "=r"(done)
        : "r"(address()), "r"(parity)
        : "memory");
    return done != 0;
  }
  /// Waits for the end of the phase of this parity.
  __device__ void wait(unsigned parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define BS_TRY_WAIT "test_wait"
#else
#define BS_TRY_WAIT "try_wait"
#endif
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier." BS_TRY_WAIT
        ".parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(address()),
        "r"(parity)
        : "memory");
#undef BS_TRY_WAIT
  }
};

/// Makes initialised barriers visible to the copy engine. One thread; a CTA barrier follows.
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Orders this thread's writes to shared memory before reads by the copy engine or tensor cores.
__device__ inline void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

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
/// The same in two parts, without the fence of the whole GPU that the release is: what was written
/// before is not seen behind it, but what was read has been.
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Where an address of this CTA's shared memory lies in that of another CTA of the cluster.
__device__ inline unsigned address_at(unsigned cta, unsigned address) {
  unsigned remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(cta));
  return remote;
}
/// Writes four words to another CTA of the cluster, and counts their bytes at a barrier there; both
/// by their address_at.
template <class T>
__device__ inline void store_at(unsigned to, const T (&from)[4], unsigned done) {
  static_assert(sizeof(T) == 4);
  const unsigned(&words)[4] = reinterpret_cast<const unsigned(&)[4]>(from);
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(to),
      "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(done)
      : "memory");
}

/// A barrier of `threads` threads of the CTA; `name` is 1 to 15.
__device__ inline void named_barrier(int name, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}
/// The same, and whether all of them say so. All get the same answer. Warps of a warpgroup need
/// that where they wait for products on wgmma, for they must wait together.
__device__ inline bool named_barrier_all(int name, int threads, bool says) {
  unsigned all;
  asm volatile(
      "{\n.reg .pred in, out;\n"
      "setp.ne.u32 in, %3, 0;\n"
      "bar.red.and.pred out, %1, %2, in;\n"
      "selp.u32 %0, 1, 0, out;\n}"
      : "=r"(all)
      : "r"(name), "r"(threads), "r"(static_cast<unsigned>(says))
      : "memory");
  return all != 0;
}
/// Arrives there without waiting.
__device__ inline void named_barrier_arrive(int name, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

}  // namespace bs::cuda::device
