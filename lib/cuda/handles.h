#pragma once
/** @file Library handles, one a thread and device, set to the current stream when asked for. */
#include <bs/lib/cuda/loaded.h>
#include <bs/lib/stream.h>

namespace bs::cuda {

/** @brief Throws CudaError with cuBLAS' name for the status unless it is success. */
void check(cublasStatus_t status, const char* call, const char* file, int line);
/** @brief The calling thread's cuBLAS handle of the stream's device, with that stream set. */
cublasHandle_t cublas_handle(Stream stream);

}  // namespace bs::cuda

#define BS_CUBLAS_CHECK(call) ::bs::cuda::check((call), #call, __FILE__, __LINE__)
