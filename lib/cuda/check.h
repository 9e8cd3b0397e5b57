#pragma once
/** @file Checked calls into CUDA. Include from lib/cuda, kernels/cuda and tests only. */
#include <bs/lib/check.h>
#include <cuda_runtime_api.h>

namespace bs::cuda {

/** @brief Throws CudaError with the call's text and CUDA's own words unless `status` is success. */
void check(cudaError_t status, const char* call, const char* file, int line);

}  // namespace bs::cuda

#define BS_CUDA_CHECK(call) ::bs::cuda::check((call), #call, __FILE__, __LINE__)
/** Checks the launch just made; `op` names the operation. */
#define BS_CUDA_CHECK_LAUNCH(op) ::bs::cuda::check(cudaGetLastError(), op, __FILE__, __LINE__)
