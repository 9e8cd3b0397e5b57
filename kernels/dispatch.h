#pragma once
/** @file From a front door to its twin. `cpu::f` and `cuda::f` share one signature: inputs, then
 *  outputs, then options, the stream last. A twin that is missing is an error of the linker. */
#include <bs/lib/check.h>
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>
#include <bs/lib/trace.h>
#if BS_WITH_CUDA
#include <bs/lib/cuda/runtime.h>
#endif

/** Declares the two twins of an operation. */
#define BS_BACKENDS(...) \
  namespace cpu {        \
  __VA_ARGS__;           \
  }                      \
  namespace cuda {       \
  __VA_ARGS__;           \
  }

/** Calls the twin of `function` for `device_`, with the current stream as the last argument. */
#if BS_WITH_CUDA
#define BS_DISPATCH(device_, function, ...)                         \
  do {                                                              \
    const ::bs::Device bs_device = (device_);                       \
    const ::bs::TraceRange bs_range(#function);                     \
    const ::bs::Stream bs_stream = ::bs::current_stream(bs_device); \
    if (bs_device.is_cuda()) {                                      \
      const ::bs::cuda::DeviceGuard bs_guard(bs_device);            \
      ::bs::cuda::function(__VA_ARGS__, bs_stream);                 \
    } else {                                                        \
      ::bs::cpu::function(__VA_ARGS__, bs_stream);                  \
    }                                                               \
  } while (false)
#else
#define BS_DISPATCH(device_, function, ...)                                \
  do {                                                                     \
    const ::bs::Device bs_device = (device_);                              \
    BS_CHECK(bs_device.is_cpu(), "{}: this build has no CUDA", #function); \
    ::bs::cpu::function(__VA_ARGS__, ::bs::Stream(bs_device, nullptr));    \
  } while (false)
#endif

namespace bs {

/** @brief Throws an Error naming `op` unless both tensors are on one device. */
inline void check_same_device(const char* op, const Tensor& a, const Tensor& b) {
  BS_CHECK(a.device() == b.device(), "{}: tensors on {} and {}", op, a.device(), b.device());
}
/** @brief Throws an Error naming `op` unless both tensors have one dtype. */
inline void check_same_dtype(const char* op, const Tensor& a, const Tensor& b) {
  BS_CHECK(a.dtype() == b.dtype(), "{}: dtypes {} and {} differ", op, a.dtype(), b.dtype());
}
/** @brief Throws an Error naming `op` unless both tensors have one shape. */
inline void check_same_shape(const char* op, const Tensor& a, const Tensor& b) {
  BS_CHECK(a.shape() == b.shape(), "{}: shapes {} and {} differ", op, a.shape(), b.shape());
}
/** @brief Throws an Error naming `op` unless shape, dtype and device are the same. */
inline void check_alike(const char* op, const Tensor& a, const Tensor& b) {
  check_same_shape(op, a, b);
  check_same_dtype(op, a, b);
  check_same_device(op, a, b);
}

}  // namespace bs
