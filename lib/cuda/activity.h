#pragma once
/** @file What GPUs did and when, as CUPTI tells it. Its library is looked for when somebody asks.
 */
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace bs::cuda {

/** @brief A kernel, a copy or a fill. */
struct Activity {
  std::string name;
  bool kernel = false;
  int device = 0;
  uint32_t stream = 0;    ///< as CUPTI numbers them
  int64_t begin = 0;      ///< nanoseconds
  int64_t end = 0;        ///< nanoseconds
  int64_t bytes = 0;      ///< that were copied or filled
  uint64_t launched = 0;  ///< the range in which it was launched; 0: in none
};

/** @brief Activities out of CUPTI's records, at most so many. */
class ActivityLog {
 public:
  explicit ActivityLog(int64_t most) : most_(most) {}
  /** @brief Takes a CUpti_Activity of any kind. */
  void add(const void* record);
  /** @brief All that came, by begin, with `shift` added to their times. */
  std::vector<Activity> finish(int64_t shift);
  int64_t dropped() const { return dropped_; }

 private:
  void keep(Activity activity, uint32_t call);
  int64_t most_, dropped_ = 0;
  std::vector<Activity> all_;
  std::vector<uint32_t> calls_;                    ///< that launched them
  std::unordered_map<uint32_t, uint64_t> ranges_;  ///< of calls
};

/** @brief "gemm<float>" of "void bs::(anonymous namespace)::gemm<float>(float*)": a kernel's name
 * as a table shows it. */
std::string short_kernel_name(std::string_view name);

/** @brief Records from now on what GPUs do. @return empty, or why that is not possible. */
std::string start_activities(int64_t most);
/** @brief What this thread launches until the pop belongs to the range of this number. */
void push_activity_range(uint64_t number) noexcept;
void pop_activity_range() noexcept;
/** @brief Waits for the GPUs and ends the recording.
 *  @param[out] dropped activities beyond `most`
 *  @return times in nanoseconds of std::chrono::steady_clock */
std::vector<Activity> stop_activities(int64_t& dropped);

}  // namespace bs::cuda
