#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/handles.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/recording.h>

#include <map>
#include <mutex>

namespace bs::cuda {

void check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  BS_THROW(CudaError, "{}: {} ({}:{})", call, cublas().status_string(status), file, line);
}

namespace {
/// What cuBLAS takes for itself on Hopper.
constexpr size_t blas_workspace = size_t{32} << 20;

/// Handles of threads that have ended, for those to come. None is ever destroyed: cuBLAS waits for
/// the whole device to do that, which would end captures of other threads.
class LeftHandles {
 public:
  /// Null for none.
  cublasHandle_t take(int device) {
    const std::lock_guard lock(mutex_);
    const auto handle = of_device_.extract(device);
    return handle ? handle.mapped() : nullptr;
  }
  void leave(std::map<int, cublasHandle_t>& handles) noexcept {
    const std::lock_guard lock(mutex_);
    of_device_.merge(handles);
  }

 private:
  std::mutex mutex_;
  std::multimap<int, cublasHandle_t> of_device_;
};
LeftHandles& left_handles() {
  static auto* const all = new LeftHandles;
  return *all;
}

struct Handles {
  std::map<int, cublasHandle_t> of_device;
  ~Handles() { left_handles().leave(of_device); }
};
thread_local Handles handles;
}  // namespace

cublasHandle_t cublas_handle(Stream stream) {
  cublasHandle_t& handle = handles.of_device[stream.device().index()];
  if (!handle) handle = left_handles().take(stream.device().index());
  if (!handle) {
    const DeviceGuard guard(stream.device());
    const RelaxedCapture relaxed;  // it takes memory
    BS_CUBLAS_CHECK(cublas().create(&handle));
    // The default keeps f32 in f32, TF32 being asked for explicitly, and lets 16-bit types use the
    // tensor cores. Partial sums of theirs must not be rounded to 16 bits on the way.
    constexpr unsigned mode =
        unsigned{CUBLAS_DEFAULT_MATH} | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    BS_CUBLAS_CHECK(cublas().set_math_mode(handle, static_cast<cublasMath_t>(mode)));
  }
  BS_CUBLAS_CHECK(cublas().set_stream(handle, static_cast<cudaStream_t>(stream.handle())));
  // Its own workspace is the handle's, which other work uses beside a graph, or memory that the
  // graph would take anew at each replay.
  if (Recording* recording = Recording::current(stream.device()); recording && is_captured(stream))
    BS_CUBLAS_CHECK(
        cublas().set_workspace(handle, recording->workspace(blas_workspace), blas_workspace));
  return handle;
}

}  // namespace bs::cuda
