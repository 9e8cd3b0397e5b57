#include <bs/bench/measure.h>
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>
#if BS_WITH_CUDA
#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/runtime.h>
#endif

namespace bs::bench {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double run_on_cpu(const std::function<void()>& work) {
  const Clock::time_point start = Clock::now();
  work();
  return since(start);
}

#if BS_WITH_CUDA
/// A pair of events around work, and memory to wash the L2 cache with.
class CudaTimer {
 public:
  explicit CudaTimer(Device device)
      : wash_(Tensor::empty({4 * cuda::device_properties(device).l2_bytes}, u8, device)) {
    for (cudaEvent_t& event : events_) BS_CUDA_CHECK(cudaEventCreate(&event));
  }
  ~CudaTimer() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  CudaTimer(const CudaTimer&) = delete;
  CudaTimer& operator=(const CudaTimer&) = delete;

  double run(const std::function<void()>& work) const {
    const Stream stream = current_stream(wash_.device());
    auto* native = static_cast<cudaStream_t>(stream.handle());
    cuda::fill_zero(wash_.data(), wash_.bytes(), stream);
    BS_CUDA_CHECK(cudaEventRecord(events_[0], native));
    work();
    BS_CUDA_CHECK(cudaEventRecord(events_[1], native));
    BS_CUDA_CHECK(cudaEventSynchronize(events_[1]));
    float milliseconds = 0;
    BS_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]));
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  Tensor wash_;
  cudaEvent_t events_[2] = {};
};
#endif

std::vector<double> repeat(const MeasureOptions& options, const std::function<double()>& run) {
  for (int warm_up = 0; warm_up < 2; ++warm_up) run();
  std::vector<double> seconds;
  const Clock::time_point start = Clock::now();
  while (static_cast<int>(seconds.size()) < options.runs || since(start) < options.seconds)
    seconds.push_back(run());
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

}  // namespace

Timing measure(Device device, const std::function<void()>& work, const MeasureOptions& options) {
  check_usable("measure", device);
  std::vector<double> seconds;
#if BS_WITH_CUDA
  if (device.is_cuda()) {
    const CudaTimer timer(device);
    seconds = repeat(options, [&] { return timer.run(work); });
  }
#endif
  if (device.is_cpu()) seconds = repeat(options, [&] { return run_on_cpu(work); });
  const size_t n = seconds.size();
  return {seconds[n / 2], seconds[n / 4], seconds[n * 3 / 4], static_cast<int>(n)};
}

}  // namespace bs::bench
