#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/handles.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/recording.h>

#include <map>
#include <mutex>
#include <vector>

namespace bs::cuda {

void check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  BS_THROW(CudaError, "{}: {} ({}:{})", call, cublas().status_string(status), file, line);
}

namespace {
/// What cuBLAS takes for itself on Hopper.
constexpr size_t blas_workspace = size_t{32} << 20;

/// Handles of threads that have ended, of each device: to end one would wait for the device, which
/// ends the captures of other threads. cuBLAS itself keeps the work of streams apart.
class Spare {
 public:
  void put(int device, cublasHandle_t handle) {
    const std::lock_guard lock(mutex_);
    of_device_[device].push_back(handle);
  }
  /// Null where there is none.
  cublasHandle_t take(int device) {
    const std::lock_guard lock(mutex_);
    std::vector<cublasHandle_t>& handles = of_device_[device];
    if (handles.empty()) return nullptr;
    const cublasHandle_t last = handles.back();
    handles.pop_back();
    return last;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<cublasHandle_t>> of_device_;
};
Spare& spare() {
  static auto* const all = new Spare;  // outlives all threads
  return *all;
}

struct Handles {
  std::map<int, cublasHandle_t> of_device;
  ~Handles() {
    for (const auto& [device, handle] : of_device)
      if (handle) spare().put(device, handle);
  }
};
thread_local Handles handles;

cublasHandle_t new_handle(Device device) {
  const DeviceGuard guard(device);
  const RelaxedCapture relaxed;  // it takes memory
  cublasHandle_t handle = nullptr;
  BS_CUBLAS_CHECK(cublas().create(&handle));
  // The default keeps f32 in f32, TF32 being asked for explicitly, and lets 16-bit types use the
  // tensor cores; partial sums of theirs must not be rounded to 16 bits on the way.
  constexpr unsigned mode =
      unsigned{CUBLAS_DEFAULT_MATH} | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  BS_CUBLAS_CHECK(cublas().set_math_mode(handle, static_cast<cublasMath_t>(mode)));
  return handle;
}
}  // namespace

cublasHandle_t cublas_handle(Stream stream) {
  const Device device = stream.device();
  cublasHandle_t& handle = handles.of_device[device.index()];
  if (!handle) handle = spare().take(device.index());
  if (!handle) handle = new_handle(device);
  BS_CUBLAS_CHECK(cublas().set_stream(handle, static_cast<cudaStream_t>(stream.handle())));
  // Its own workspace is the handle's, which other work uses beside a graph, or memory that the
  // graph would take anew at each replay.
  if (Recording* recording = Recording::current(device); recording && is_captured(stream))
    BS_CUBLAS_CHECK(
        cublas().set_workspace(handle, recording->workspace(blas_workspace), blas_workspace));
  return handle;
}

}  // namespace bs::cuda
