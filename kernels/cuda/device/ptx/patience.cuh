#pragma once
// Waits of CTAs for each other that end: if need be in an error, rather than never.

namespace bs::cuda::device {

// Where a kernel that gives up writes its number. The host sets both as it loads the kernel, see
// lib/cuda/gave_up.h; of kernels that nvcc compiles, those of a file that asks for it.
#if defined(__CUDACC_RTC__) || defined(BS_REPORTS_GIVING_UP)
#define BS_HAS_REPORT
struct GaveUp {
  unsigned* word;
  unsigned number;
};
#endif
#if defined(__CUDACC_RTC__)
extern "C" __device__ GaveUp bs_gave_up;
GaveUp bs_gave_up = {nullptr, 0};
#elif defined(BS_REPORTS_GIVING_UP)
static __device__ GaveUp bs_gave_up = {nullptr, 0};
#endif

/// Counts the polls of one wait. A poll takes a third of a microsecond or more, so that all of them
/// take 20 seconds at least; time in which the GPU does something else does not count.
class Patience {
 public:
#ifndef BS_MOST_POLLS
#define BS_MOST_POLLS (1u << 26)
#endif
  /// Ends the kernel when all are spent, and with it the process' use of the GPU.
  __device__ void spend() {
    if (++polls_ != BS_MOST_POLLS) return;
    report();
    asm volatile("trap;");
  }

  /// False when all are spent. The kernel then goes on with sums that are not whole, and the host
  /// throws as soon as it waits for what they became; a kernel that cannot tell it waits for ever.
  /// For kernels whose registers are full: beside a trap, ptxas spills kilobytes of theirs.
  __device__ bool lasts() {
#ifdef BS_HAS_REPORT
    if (++polls_ != BS_MOST_POLLS || !bs_gave_up.word) return true;
    report();
    return false;
#else
    return true;
#endif
  }

 private:
  __device__ static void report() {
#ifdef BS_HAS_REPORT
    if (bs_gave_up.word) {
      *reinterpret_cast<volatile unsigned*>(bs_gave_up.word) = bs_gave_up.number;
      __threadfence_system();
    }
#endif
  }
  unsigned polls_ = 0;
};

}  // namespace bs::cuda::device
