// The device, its errors and its properties: an H200 with less memory.
#include <bs/tests/emulator/runtime/state.h>

#include <cstring>
#include <string>
#include <utility>

namespace bs::emulator {

namespace {
thread_local cudaError_t last_error = cudaSuccess;
}

cudaError_t noted(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace bs::emulator

using namespace bs::emulator;

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorNoKernelImageForDevice:
      return "cudaErrorNoKernelImageForDevice";
    default:
      return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : cudaGetErrorName(error);
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return noted(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return noted(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "NVIDIA H200");
  properties->major = 9;
  properties->totalGlobalMem = memory_bytes;
  properties->multiProcessorCount = multiprocessors;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = most_threads;
  properties->maxThreadsPerMultiProcessor = threads_of_multiprocessor;
  properties->sharedMemPerBlockOptin = shared_of_cta;
  properties->sharedMemPerMultiprocessor = shared_of_multiprocessor;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return noted(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = multiprocessors;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = most_threads;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = threads_of_multiprocessor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = shared_of_cta;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = shared_of_multiprocessor;
      break;
    case cudaDevAttrL2CacheSize:
      *value = 60 << 20;
      break;
    case cudaDevAttrClockRate:
      *value = 1980000;  // kHz, as the next
      break;
    case cudaDevAttrMemoryClockRate:
      *value = 3201000;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = 6144;
      break;
    default:
      *value = 1;  // what a GPU can do, it can
  }
  return cudaSuccess;
}

}  // extern "C"
