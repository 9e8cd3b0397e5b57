#pragma once
/** @file Launch arithmetic and the device twins of the host's element types. For .cu files. */
#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/dtype.h>
#include <bs/lib/integers.h>
#include <bs/lib/stream.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

namespace bs::cuda {

inline cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.handle()); }

/** @brief The type device code uses for a host element type. */
template <class T>
struct DeviceTypeOf {
  using type = T;
};
template <>
struct DeviceTypeOf<half> {
  using type = __half;
};
template <>
struct DeviceTypeOf<bfloat16> {
  using type = __nv_bfloat16;
};
template <class T>
using device_type = typename DeviceTypeOf<T>::type;

/** @brief Pointer to the elements of a tensor as device code sees them. */
template <class T, class TensorLike>
device_type<T>* pointer(const TensorLike& tensor) {
  return reinterpret_cast<device_type<T>*>(tensor.template data<T>());
}

/** @brief Blocks for a grid-stride loop over `work` items: enough to fill the GPU, no more. */
inline unsigned grid_size(int64_t work, int threads, Device device, int blocks_per_sm = 8) {
  const int64_t most = int64_t{device_properties(device).multiprocessors} * blocks_per_sm;
  return static_cast<unsigned>(std::clamp<int64_t>(ceil_div(work, threads), 1, most));
}

}  // namespace bs::cuda
