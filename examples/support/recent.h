#pragma once
/** @file Values by key, of which those used last are kept. */
#include <algorithm>
#include <cstddef>
#include <list>
#include <utility>

namespace bs::example {

/** @brief At most so many values; the one that was not asked for longest goes first. */
template <class Key, class Value>
class Recent {
 public:
  explicit Recent(size_t most) : most_(most) {}

  /** @brief The value of `key`, a new one where there is none. Good until the next call. */
  Value& at(const Key& key) {
    const auto found = std::ranges::find(entries_, key, &Entry::first);
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
    } else {
      if (entries_.size() == most_) entries_.pop_back();
      entries_.emplace_front(key, Value{});
    }
    return entries_.front().second;
  }
  void clear() { entries_.clear(); }

 private:
  using Entry = std::pair<Key, Value>;
  size_t most_;
  std::list<Entry> entries_;  ///< the last asked for first
};

}  // namespace bs::example
