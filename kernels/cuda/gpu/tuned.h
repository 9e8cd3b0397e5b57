#pragma once
/** @file Which of several ways a GPU is soonest done by: timed once, and kept beside the compiled
 *  kernels. No GPU is needed for what is here. */
#include <bs/kernels/cuda/gpu/gpu_model.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bs::cuda {

/** @brief What a choice holds for. */
struct TunedKey {
  GpuKey gpu = {};
  std::string problem = {};  ///< a line
};

/** @brief The first, unless another takes at least a fiftieth less time. Times that are no number
 *  count as endless. */
size_t soonest(std::span<const double> times);

/** @brief The name of the file that a choice is kept in, its text, and what such a text says:
 *  nothing where it is not what format_choice() writes for this key. */
std::string choice_file(const TunedKey& key);
std::string format_choice(const TunedKey& key, std::string_view name);
std::optional<std::string> parse_choice(std::string_view text, const TunedKey& key);

/** @brief The choice kept in the folder of compiled kernels; and keeps one there. */
std::optional<std::string> kept_choice(const TunedKey& key);
void keep_choice(const TunedKey& key, std::string_view name);

/** @brief The way that was chosen before, or the one that is soonest done now, which is kept.
 *  @param[in] make the way of a name, if there is such; all(): all of them, each with `name` and
 * `plan`
 *  @param[in] time what one takes */
template <class Make, class All, class Time>
auto tuned(const TunedKey& key, const Make& make, const All& all, const Time& time) {
  if (const std::optional<std::string> name = kept_choice(key))
    if (auto plan = make(*name)) return *std::move(plan);
  auto ways = all();
  std::vector<double> times;
  if (ways.size() > 1)
    for (const auto& way : ways) times.push_back(time(way.plan));
  const size_t best = soonest(times);
  keep_choice(key, ways[best].name);
  return std::move(ways[best].plan);
}

}  // namespace bs::cuda
