#pragma once
/** @file Values that are made once for a key, and kept while they are used. */
#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <typeindex>
#include <utility>

namespace bs {

/** @brief One place of a Cache: a key, and the value once it is made. */
struct CacheSlot {
  CacheSlot(std::type_index key_of, std::type_index value_of)
      : key_type(key_of), value_type(value_of) {}
  std::type_index key_type, value_type;
  std::shared_ptr<const void> key;
  std::once_flag once;
  std::shared_ptr<const void> value;
  std::atomic<bool> pinned = false;
};

/** @brief A value of a Cache, which lives as long as its holders do. */
template <class T>
class Kept {
 public:
  explicit Kept(std::shared_ptr<CacheSlot> slot) : slot_(std::move(slot)) {}
  /** @brief A value that is in no cache. */
  static Kept of(T value) {
    const auto slot = std::make_shared<CacheSlot>(typeid(void), typeid(T));
    slot->value = std::make_shared<const T>(std::move(value));
    return Kept(slot);
  }
  const T& operator*() const { return *static_cast<const T*>(slot_->value.get()); }
  const T* operator->() const { return &**this; }
  /** @brief The cache never drops the value from now on: work that nobody waits for may read it. */
  void pin() const { slot_->pinned = true; }

 private:
  std::shared_ptr<CacheSlot> slot_;
};

/** @brief Values by keys of any types that have `==`. At most `most` that are not pinned are kept;
 *  the one least recently asked for goes first. Thread-safe: threads that want the same value wait
 *  for one of them to make it, and no other thread waits. */
class Cache {
 public:
  explicit Cache(size_t most) : most_(most) {}

  /** @brief The value of `key` and T: `make()` at the first call. `make` may ask for others. */
  template <class T, class Key, class Make>
  Kept<T> get(const Key& key, const Make& make) {
    const std::shared_ptr<CacheSlot> slot = find(
        typeid(Key), typeid(T),
        [&](const void* other) { return *static_cast<const Key*>(other) == key; },
        [&] { return std::make_shared<const Key>(key); });
    std::call_once(slot->once, [&] { slot->value = std::make_shared<const T>(make()); });
    return Kept<T>(slot);
  }

  /** @brief How many values are kept. */
  size_t size() const;

 private:
  std::shared_ptr<CacheSlot> find(std::type_index key, std::type_index value,
                                  const std::function<bool(const void*)>& equals,
                                  const std::function<std::shared_ptr<const void>()>& copy);
  void drop_oldest();

  const size_t most_;
  mutable std::mutex mutex_;
  std::list<std::shared_ptr<CacheSlot>> slots_;  ///< the one last asked for is first
};

}  // namespace bs
