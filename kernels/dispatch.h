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
#if BS_FRONT_DOOR  // defined for kernels/*.cpp; what else includes this header dispatches nothing
#include <bs/kernels/dispatch_twin.h>
#endif

/** Declares the two twins of an operation. */
#define BS_BACKENDS(...) \
  namespace cpu {        \
  __VA_ARGS__;           \
  }                      \
  namespace cuda {       \
  __VA_ARGS__;           \
  }

/** Calls the twin of `function` for `device_`, with the current stream as the last argument. A
 *  Profiler sees its name, its time and the tensors among the arguments. */
#define BS_DISPATCH(device_, function, ...) \
  BS_DISPATCH_WORK(device_, ::bs::Work(), function, __VA_ARGS__)

/** The same for an operation that knows what it does: `work` is computed only while a Profiler
 *  records. Without it the bytes of the tensors are counted, and no FLOPs.
 *  @code
 *  BS_DISPATCH_WORK(c.device(), Work::product(c, a.size(-1)), matmul, a, b, c);
 *  @endcode
 *  A work with commas between braces stands in parentheses. */
#define BS_DISPATCH_WORK(device_, work, function, ...)                               \
  do {                                                                               \
    const ::bs::Device bs_device = (device_);                                        \
    const ::bs::TraceRange bs_range(#function);                                      \
    if (::bs::profiling()) ::bs::detail::note_operation(bs_device, work);            \
    ::bs::detail::dispatch(#function, bs_device, BS_FORWARDING(::bs::cpu::function), \
                           BS_FORWARDING(::bs::cuda::function), __VA_ARGS__);        \
  } while (false)

namespace bs {

/** @brief Throws an Error naming `op` unless both tensors are on one device. */
inline void check_same_device(const char* op, const Tensor& a, const Tensor& b) {
  BS_CHECK(a.device(op) == b.device(op), "{}: tensors on {} and {}", op, a.device(), b.device());
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
