#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/occupancy.h>

#include <map>
#include <mutex>
#include <shared_mutex>
#include <tuple>

namespace bs::cuda {

namespace {

/// A kernel on a device, with threads, bytes of shared memory and blocks of a cluster.
using Question = std::tuple<const void*, int, int, size_t, int>;

/// Never destroyed: operations may ask as the program ends.
class Answers {
 public:
  /// The answer to a question; `ask()` gives it the first time.
  template <class Ask>
  int get(const Question& question, const Ask& ask) {
    {
      const std::shared_lock lock(mutex_);
      if (const auto known = all_.find(question); known != all_.end()) return known->second;
    }
    const int answer = ask();
    const std::unique_lock lock(mutex_);
    return all_.try_emplace(question, answer).first->second;
  }

 private:
  std::shared_mutex mutex_;
  std::map<Question, int> all_;
};

}  // namespace

void allow_shared_memory(const void* kernel, size_t bytes, Device device) {
  static auto* const answers = new Answers;
  answers->get({kernel, device.index(), 0, bytes, 1}, [&] {
    BS_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(bytes)));
    return 0;
  });
}

int blocks_that_fit(const void* kernel, int threads, size_t shared, Device device) {
  static auto* const answers = new Answers;
  return answers->get({kernel, device.index(), threads, shared, 1}, [&] {
    int blocks = 0;
    BS_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared));
    return blocks;
  });
}

int clusters_that_fit(const void* kernel, int cluster, int threads, size_t shared, Device device) {
  static auto* const answers = new Answers;
  return answers->get({kernel, device.index(), threads, shared, cluster}, [&] {
    cudaLaunchAttribute size{};
    size.id = cudaLaunchAttributeClusterDimension;
    size.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(cluster));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = shared;
    config.attrs = &size;
    config.numAttrs = 1;
    int clusters = 0;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) ==
            cudaSuccess &&
        cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess)
      return clusters;
    cudaGetLastError();
    return 0;
  });
}

}  // namespace bs::cuda
