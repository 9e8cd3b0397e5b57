#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/handles.h>
#include <bs/lib/cuda/runtime.h>

#include <map>

namespace bs::cuda {

void check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  BS_THROW(CudaError, "{}: {} ({}:{})", call, cublasGetStatusString(status), file, line);
}

namespace {
struct Handles {
  std::map<int, cublasHandle_t> cublas;
  ~Handles() {
    for (auto& [device, handle] : cublas) cublasDestroy(handle);
  }
};
thread_local Handles handles;
}  // namespace

cublasHandle_t cublas_handle(Stream stream) {
  cublasHandle_t& handle = handles.cublas[stream.device().index()];
  if (!handle) {
    const DeviceGuard guard(stream.device());
    BS_CUBLAS_CHECK(cublasCreate(&handle));
    // f32 means f32: TF32 is a choice a caller makes, not a default.
    BS_CUBLAS_CHECK(cublasSetMathMode(handle, CUBLAS_PEDANTIC_MATH));
  }
  BS_CUBLAS_CHECK(cublasSetStream(handle, static_cast<cudaStream_t>(stream.handle())));
  return handle;
}

}  // namespace bs::cuda
