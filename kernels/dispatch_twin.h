#pragma once
/** @file What BS_DISPATCH calls. */
#include <bs/lib/check.h>
#include <bs/lib/operation.h>
#include <bs/lib/stream.h>

#include <utility>
#if BS_WITH_CUDA
#include <bs/lib/cuda/runtime.h>
#endif

/** A function object that calls `function`, whichever overload the arguments mean. */
#define BS_FORWARDING(function) \
  [](auto&&... bs_arguments) { function(std::forward<decltype(bs_arguments)>(bs_arguments)...); }

/** What the twin of `function` for `device_` says, which has no stream and starts nothing: front
 * doors ask it what it takes. */
#if BS_WITH_CUDA
#define BS_ASK(device_, function, ...) \
  ((device_).is_cuda() ? ::bs::cuda::function(__VA_ARGS__) : ::bs::cpu::function(__VA_ARGS__))
#else
#define BS_ASK(device_, function, ...) ::bs::cpu::function(__VA_ARGS__)
#endif

namespace bs::detail {

/// Calls the twin for `device` with the current stream after the arguments.
template <class Cpu, class Cuda, class... Arguments>
void dispatch([[maybe_unused]] const char* op, Device device, const Cpu& cpu,
              [[maybe_unused]] const Cuda& cuda, Arguments&&... arguments) {
  if (profiling()) (note_argument(arguments), ...);
#if BS_WITH_CUDA
  const Stream stream = current_stream(device);
  if (device.is_cuda()) {
    const cuda::DeviceGuard guard(device);
    return cuda(std::forward<Arguments>(arguments)..., stream);
  }
  cpu(std::forward<Arguments>(arguments)..., stream);
#else
  BS_CHECK(device.is_cpu(), "{}: this build has no CUDA", op);
  cpu(std::forward<Arguments>(arguments)..., Stream(device, nullptr));
#endif
}

}  // namespace bs::detail
