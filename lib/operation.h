#pragma once
/** @file How operations tell a Profiler what they do. While none records, that is one atomic load.
 */
#include <bs/lib/tensor.h>
#include <bs/lib/trace.h>

#include <atomic>
#include <span>
#include <type_traits>
#include <vector>

namespace bs {

/** @brief What an operation does, as far as its front door knows. */
struct Work {
  double flops = 0;    ///< additions and multiplications; 0: not counted
  double bytes = 0;    ///< read and written; 0: those of its tensors, each once
  double density = 0;  ///< share of a pattern's blocks that are kept; 0: nothing is sparse

  /** @brief Each element of `result` is a sum of `depth` products. */
  static Work product(const Tensor& result, int64_t depth, double density = 0) {
    return {.flops = 2.0 * static_cast<double>(result.numel()) * static_cast<double>(depth),
            .density = density};
  }
};

namespace detail {
extern std::atomic<bool> profiler_records;

/// A range of this thread begins or ends. @param[in] owner tells ranges apart while they last
void begin_range(const void* owner, const char* name);
void end_range(const void* owner);
/// The innermost range of this thread is an operation on `device`.
void note_operation(Device device, const Work& work);
/// It reads or writes `tensor`.
void note_tensor(const Tensor& tensor);
/// The same for what stands for tensors among an operation's arguments; all else says nothing.
template <class T>
void note_argument(const T& argument) {
  if constexpr (std::is_convertible_v<const T&, const Tensor&>) {
    note_tensor(argument);
  } else if constexpr (std::is_convertible_v<const T&, std::span<const Tensor>>) {
    for (const Tensor& tensor : std::span<const Tensor>(argument)) note_tensor(tensor);
  }
}
}  // namespace detail

/** @brief Whether a Profiler records. */
inline bool profiling() { return detail::profiler_records.load(std::memory_order_relaxed); }

}  // namespace bs
