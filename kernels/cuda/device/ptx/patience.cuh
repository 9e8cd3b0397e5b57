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

/// Seconds that a wait may take, and how many polls it looks at the clock after.
#ifndef BS_MOST_SECONDS
#define BS_MOST_SECONDS 20
#endif
#ifndef BS_POLLS_A_LOOK
#define BS_POLLS_A_LOOK (1u << 19)
#endif

/// Of one wait, in one register: kernels that wait have none to spare. A poll takes a third of a
/// microsecond or more. Time in which the GPU does something else, or is stopped by a debugger,
/// counts as two seconds at most between two looks.
class Patience {
 public:
  __device__ void spend() {
    if (++polls_ == BS_POLLS_A_LOOK % (1u << 19)) look();
  }

 private:
  __device__ void look() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    const auto second = static_cast<unsigned>(now >> 30) % 64;  // of 1.07
    const unsigned passed = (second - last_) % 64;
    if (looked_) spent_ += passed < 2 ? passed : 2;
    if (looked_ && spent_ >= BS_MOST_SECONDS) give_up();
    looked_ = 1;
    last_ = second;
    polls_ = 0;
  }
  /// Ends the kernel, and with it the process' use of the GPU.
  __device__ static void give_up() {
#ifdef BS_HAS_REPORT
    if (bs_gave_up.word) {
      *reinterpret_cast<volatile unsigned*>(bs_gave_up.word) = bs_gave_up.number;
      __threadfence_system();
    }
#endif
    asm volatile("trap;");
  }
  unsigned polls_ : 19 = 0;
  unsigned looked_ : 1 = 0;
  unsigned last_ : 6 = 0;   ///< second of the last look
  unsigned spent_ : 6 = 0;  ///< seconds
};

}  // namespace bs::cuda::device
