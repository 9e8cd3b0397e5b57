#pragma once
/** @file cuBLAS and NVRTC, loaded when first called: so the same program starts where no CUDA
 *  toolkit is. Include from lib/cuda, kernels/cuda and tests only.
 */
#include <cublasLt.h>
#include <cublas_v2.h>
#include <nvrtc.h>

namespace bs::cuda {

/** @brief What is called of libcublas, as its header declares it. */
struct Cublas {
  decltype(&::cublasCreate_v2) create;
  decltype(&::cublasSetStream_v2) set_stream;
  decltype(&::cublasSetWorkspace_v2) set_workspace;
  decltype(&::cublasSetMathMode) set_math_mode;
  decltype(&::cublasGetStatusString) status_string;
  decltype(&::cublasGemmEx_64) gemm;
  decltype(&::cublasGemmStridedBatchedEx_64) gemm_batched;
};

/** @brief What is called of libcublasLt. The three that make things take their sizes, which inline
 *  functions of the header would fill in. */
struct CublasLt {
  decltype(&::cublasLtMatmulDescInit_internal) make_product;
  decltype(&::cublasLtMatmulDescSetAttribute) set_product;
  decltype(&::cublasLtMatrixLayoutInit_internal) make_layout;
  decltype(&::cublasLtMatmulPreferenceInit_internal) make_preference;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) choose;
  decltype(&::cublasLtMatmul) multiply;
};

/** @brief What is called of libnvrtc. */
struct Nvrtc {
  decltype(&::nvrtcGetErrorString) error_string;
  decltype(&::nvrtcVersion) version;
  decltype(&::nvrtcGetNumSupportedArchs) count_architectures;
  decltype(&::nvrtcGetSupportedArchs) architectures;
  decltype(&::nvrtcCreateProgram) create;
  decltype(&::nvrtcDestroyProgram) destroy;
  decltype(&::nvrtcCompileProgram) compile;
  decltype(&::nvrtcGetProgramLogSize) log_size;
  decltype(&::nvrtcGetProgramLog) log;
  decltype(&::nvrtcGetCUBINSize) cubin_size;
  decltype(&::nvrtcGetCUBIN) cubin;
};

/** @brief The functions of a library, which the first call loads for as long as the program runs.
 *  Any thread may call.
 *  @throws CudaError where it is not found, naming all that was tried; the next call tries again.
 */
const Cublas& cublas();
const CublasLt& cublas_lt();
const Nvrtc& nvrtc();

}  // namespace bs::cuda
