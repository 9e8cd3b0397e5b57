#include <bs/bench/measure.h>
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>

#include <algorithm>
#include <chrono>
#include <memory>
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

double run_on_cpu(const Work& work) {
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

  double run(const Work& work) const {
    const Stream stream = current_stream(wash_.device());
    auto* native = static_cast<cudaStream_t>(stream.handle());
    // The GPU is busy for as long as the host needs to queue a step over hundreds of tensors, some
    // 200 us: otherwise it would wait between the events.
    constexpr int washes = 6;
    for (int i = 0; i < washes; ++i) cuda::fill_zero(wash_.data(), wash_.bytes(), stream);
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

std::vector<Timing> repeat(const std::vector<Work>& works, const MeasureOptions& options,
                           const std::function<double(const Work&)>& run) {
  for (int warm_up = 0; warm_up < 2; ++warm_up)
    for (const Work& work : works) run(work);
  std::vector<std::vector<double>> seconds(works.size());
  const double enough = options.seconds * static_cast<double>(works.size());
  const Clock::time_point start = Clock::now();
  for (int round = 0; round < std::max(options.runs, 1) || since(start) < enough; ++round)
    for (size_t i = 0; i < works.size(); ++i) seconds[i].push_back(run(works[i]));
  std::vector<Timing> timings;
  timings.reserve(seconds.size());
  for (std::vector<double>& of_one : seconds) timings.push_back(summary(std::move(of_one)));
  return timings;
}

void wait_for(Device device) {
#if BS_WITH_CUDA
  if (device.is_cuda()) cuda::synchronize(current_stream(device));
#else
  static_cast<void>(device);
#endif
}

}  // namespace

std::vector<Timing> interleave(Device device, const std::vector<Work>& works,
                               const MeasureOptions& options) {
  check_usable("measure", device);
#if BS_WITH_CUDA
  if (device.is_cuda()) {
    const CudaTimer timer(device);
    return repeat(works, options, [&](const Work& work) { return timer.run(work); });
  }
#endif
  return repeat(works, options, run_on_cpu);
}

Timing measure(Device device, const Work& work, const MeasureOptions& options) {
  return interleave(device, {work}, options).front();
}

double once(Device device, const Work& work) {
  wait_for(device);
  const Clock::time_point start = Clock::now();
  work();
  wait_for(device);
  return since(start);
}

Timing summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const size_t n = seconds.size();
  return {seconds[n / 2], seconds[n / 4], seconds[n * 3 / 4], static_cast<int>(n)};
}

double host_seconds(Device device, const Work& work, int calls) {
  work();
  wait_for(device);
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < calls; ++i) work();
  const double seconds = since(start) / calls;
  wait_for(device);
  return seconds;
}

}  // namespace bs::bench
