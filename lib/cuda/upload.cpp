#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/cuda/upload.h>

#include <algorithm>
#include <atomic>

namespace bs::cuda {

namespace {

bool captured(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  BS_CUDA_CHECK(cudaStreamIsCapturing(native(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

Tensor upload(std::span<const int32_t> values, Device device) {
  Tensor to = Tensor::empty({static_cast<int64_t>(values.size())}, i32, device);
  if (values.empty()) return to;
  if (device.is_cpu()) {
    std::copy(values.begin(), values.end(), to.data<int32_t>());
    return to;
  }
  const DeviceGuard guard(device);
  // Of memory that is not pinned, the runtime takes a copy before it returns.
  BS_CUDA_CHECK(cudaMemcpyAsync(to.data(), values.data(), values.size_bytes(),
                                cudaMemcpyHostToDevice, native(current_stream(device))));
  return to;
}

struct Milestone::Event {
  Stream stream;
  cudaEvent_t event = nullptr;
  std::atomic<bool> passed = false;

  explicit Event(Stream on) : stream(on) {
    const DeviceGuard guard(on.device());
    BS_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    BS_CUDA_CHECK(cudaEventRecord(event, native(on)));
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (cudaEventDestroy(event) != cudaSuccess) cudaGetLastError();  // at exit: no driver
  }
};

Milestone::Milestone(Stream stream) {
  if (stream.device().is_cpu()) return;
  BS_CHECK(!captured(stream),
           "layout: tables of a layout cannot be made while {} is captured: run once before",
           stream.device());
  event_ = std::make_shared<Event>(stream);
}

void Milestone::wait(Stream stream) const {
  if (!event_ || event_->stream == stream || event_->passed || captured(stream)) return;
  const cudaError_t status = cudaEventQuery(event_->event);
  if (status == cudaSuccess) {
    event_->passed = true;
    return;
  }
  if (status != cudaErrorNotReady) BS_CUDA_CHECK(status);
  cudaGetLastError();
  BS_CUDA_CHECK(cudaStreamWaitEvent(native(stream), event_->event));
}

}  // namespace bs::cuda
