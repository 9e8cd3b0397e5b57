#include <bs/lib/cuda/gave_up.h>

#include <bs/lib/check.h>
#include <bs/lib/cuda/runtime.h>
#include <cuda_runtime_api.h>

#include <mutex>
#include <vector>

namespace bs::cuda {

namespace {

/// Never destroyed, since kernels may write until the process ends.
struct Reports {
  std::mutex mutex;
  std::vector<std::string> kernels;  ///< by number - 1
  unsigned* word = nullptr;
};

Reports& reports() {
  static auto* const all = new Reports;
  return *all;
}

}  // namespace

GaveUp gave_up_report(const std::string& kernel, Device device) {
  Reports& all = reports();
  const std::lock_guard lock(all.mutex);
  if (!all.word) {
    const RelaxedCapture relaxed;
    void* memory = nullptr;
    if (cudaHostAlloc(&memory, sizeof(unsigned), cudaHostAllocPortable | cudaHostAllocMapped) !=
        cudaSuccess)
      cudaGetLastError();  // kernels then give up without a word
    all.word = static_cast<unsigned*>(memory);
    if (all.word) *all.word = 0;
  }
  all.kernels.push_back(format("{} on {}", kernel, device));
  return {all.word, static_cast<unsigned>(all.kernels.size())};
}

std::string kernel_that_gave_up() {
  Reports& all = reports();
  const std::lock_guard lock(all.mutex);
  const unsigned number = all.word ? *static_cast<volatile unsigned*>(all.word) : 0;
  return number == 0 || number > all.kernels.size() ? "" : all.kernels[number - 1];
}

void check_gave_up() {
  const std::string kernel = kernel_that_gave_up();
  if (kernel.empty()) return;
  BS_THROW(CudaError,
           "kernel {}: its blocks waited for each other for too long, so it gave up; they were not "
           "all running, or one was stopped. The GPU can be used again by a new process",
           kernel);
}

}  // namespace bs::cuda
