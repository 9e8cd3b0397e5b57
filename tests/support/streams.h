#pragma once
/** @file Streams of a GPU as tests want them: held up, and recorded in graphs. */
#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/cuda/launch.h>

#include <atomic>

namespace bs::test {

/** @brief Holds up a stream, by a kernel, so that whoever waits for it is found out: until
 * released, or for some seconds. */
class HeldStream {
 public:
  explicit HeldStream(Stream stream) : stream_(stream) {
    BS_CUDA_CHECK(
        cudaHostAlloc(reinterpret_cast<void**>(&words_), 2 * sizeof(int), cudaHostAllocMapped));
    words_[0] = words_[1] = 0;
    const cuda::jit::Kernel& kernel = cuda::jit::kernel({"hold", source, {}}, stream.device());
    cuda::jit::launch(kernel, {.grid = dim3(1), .block = dim3(1)}, stream, words_);
  }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;
  ~HeldStream() {
    release();
    cudaFreeHost(words_);
  }

  /** @brief Lets it go on; whether it was held until now. */
  bool release() {
    std::atomic_ref(words_[0]).store(1);
    stream_.synchronize();
    return words_[1] == 0;
  }

 private:
  /// Notes whether it gave up.
  static constexpr const char* source = R"(
__device__ unsigned long long nanoseconds() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}
extern "C" __global__ void hold(volatile int* words) {
  const unsigned long long end = nanoseconds() + 3000000000ull;
  while (words[0] == 0)
    if (nanoseconds() > end) {
      words[1] = 1;
      return;
    }
}
)";

  Stream stream_;
  int* words_ = nullptr;
};

/** @brief What `queue()` queues on a stream, to be run any number of times. */
class Recorded {
 public:
  template <class Queue>
  Recorded(Stream stream, const Queue& queue) : stream_(cuda::native(stream)) {
    BS_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
    queue();
    cudaGraph_t graph = nullptr;
    BS_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
    BS_CUDA_CHECK(cudaGraphInstantiate(&executable_, graph, 0));
    BS_CUDA_CHECK(cudaGraphDestroy(graph));
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  ~Recorded() { cudaGraphExecDestroy(executable_); }

  void run() const { BS_CUDA_CHECK(cudaGraphLaunch(executable_, stream_)); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace bs::test
