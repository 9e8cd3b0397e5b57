#include <bs/kernels/cuda/gpu/work_time.h>
#include <bs/lib/check.h>
#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/recording.h>

#include <algorithm>
#include <limits>

namespace bs::cuda {

namespace {

/// Two events.
class Watch {
 public:
  explicit Watch(Stream stream) : stream_(stream), guard_(stream.device()) {
    for (cudaEvent_t& event : events_) BS_CUDA_CHECK(cudaEventCreate(&event));
  }
  ~Watch() {
    for (cudaEvent_t event : events_)
      if (event) cudaEventDestroy(event);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  double time(const std::function<void()>& work) const {
    BS_CUDA_CHECK(cudaEventRecord(events_[0], native(stream_)));
    work();
    BS_CUDA_CHECK(cudaEventRecord(events_[1], native(stream_)));
    BS_CUDA_CHECK(cudaEventSynchronize(events_[1]));
    float milliseconds = 0;
    BS_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]));
    return 1e6 * double{milliseconds};
  }

 private:
  Stream stream_;
  RelaxedCapture relaxed_;
  DeviceGuard guard_;
  cudaEvent_t events_[2] = {};
};

}  // namespace

double time_of(Stream stream, const std::function<void()>& work) {
  constexpr int times = 5;
  double best = std::numeric_limits<double>::infinity();
  try {
    const Watch watch(stream);
    watch.time(work);
    for (int i = 0; i < times; ++i) best = std::min(best, watch.time(work));
  } catch (const OutOfMemory&) {
    return std::numeric_limits<double>::infinity();
  }
  return best;
}

bool may_time(Stream stream) { return !Recording::current() && !is_captured(stream); }

}  // namespace bs::cuda
