#pragma once
/** @file A device for tests of pools, on which anything may fail. */
#include <bs/lib/check.h>
#include <bs/lib/ordered_pool.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace bs::test {

/** @brief Writes down what is asked of it, and hands out memory of the host. Tests set and read its
 *  members while no other thread uses it. */
class FakeDevice final : public OrderedMemory {
 public:
  FakeDevice() = default;
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;
  ~FakeDevice() override {
    for (const auto& [pointer, size] : live) std::free(pointer);
  }

  void* take(size_t bytes, Stream stream) override {
    const std::lock_guard lock(mutex_);
    calls.emplace_back("take");
    if (granted > 0) {
      --granted;
    } else if (refused > 0) {
      --refused;
      return nullptr;
    }
    if (held() + static_cast<int64_t>(bytes) > capacity) return nullptr;
    constexpr size_t alignment = 256;
    void* const pointer =
        std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    live[pointer] = static_cast<int64_t>(bytes);
    if (cached_ >= static_cast<int64_t>(bytes)) cached_ -= static_cast<int64_t>(bytes);
    if (capturing.contains(stream.handle())) of_graph.insert(pointer);
    return pointer;
  }
  bool give(void* pointer, Stream stream) noexcept override {
    const std::lock_guard lock(mutex_);
    calls.emplace_back("give");
    const bool foreign = capturing.contains(stream.handle()) && !of_graph.contains(pointer);
    if (foreign) ++foreign_frees;
    if (foreign || gone.contains(stream.handle())) return false;
    given_on = stream;
    const auto found = live.find(pointer);
    if (found == live.end()) {
      ++freed_twice;
      return true;
    }
    if (caching) cached_ += found->second;
    live.erase(found);
    of_graph.erase(pointer);
    std::free(pointer);
    return true;
  }
  bool captured(Stream stream) noexcept override { return capturing.contains(stream.handle()); }
  void wait() override {
    const std::lock_guard lock(mutex_);
    calls.emplace_back("wait");
    if (broken) BS_THROW(CudaError, "device: broken");
    waits_under_capture += capturing.empty() ? 0 : 1;
  }
  void trim(int64_t keep) override {
    const std::lock_guard lock(mutex_);
    calls.emplace_back("trim");
    trimmed_to = keep;
    cached_ = std::clamp<int64_t>(keep - held(), 0, cached_);
  }
  Stream stream() override { return {Device::cpu(), nullptr}; }
  int64_t reserved() const override {
    const std::lock_guard lock(mutex_);
    return held() + cached_;
  }
  int64_t used() const override {
    const std::lock_guard lock(mutex_);
    return held();
  }
  MemoryShares shares() const override {
    const std::lock_guard lock(mutex_);
    return {.total = capacity, .free = 0, .tensors = held(), .reserved = held()};
  }

  /** @brief Bytes taken and not given back. */
  int64_t held() const {
    int64_t bytes = 0;
    for (const auto& [pointer, size] : live) bytes += size;
    return bytes;
  }
  int64_t count(const std::string& call) const { return std::ranges::count(calls, call); }

  std::vector<std::string> calls;
  std::set<void*> capturing, gone;  ///< handles of streams
  std::map<void*, int64_t> live;
  std::set<void*> of_graph;
  int64_t capacity = 1 << 20;
  int64_t granted = 0;  ///< allocations before the next that are refused
  int64_t refused = 0;  ///< of the allocations after those
  int64_t trimmed_to = -1;
  bool broken = false;
  bool caching = false;  ///< whether what is given back stays reserved, for what is taken next
  Stream given_on;
  int foreign_frees = 0, waits_under_capture = 0, freed_twice = 0;

 private:
  mutable std::mutex mutex_;
  int64_t cached_ = 0;
};

}  // namespace bs::test
