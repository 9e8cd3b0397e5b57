#include <bs/lib/changes.h>

#include <bs/lib/overlap.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <utility>

namespace bs {

namespace {

/// Parts of memory whose changes are known, at most. Each change adds three of them at most.
constexpr size_t most_parts = 1 << 16, added_at_once = 3;

/// Room for the nodes of a map, so that noting a change takes no memory that might be missing.
class NodeRoom {
 public:
  void* take() noexcept {
    if (!free_) return nodes_[used_++].bytes;
    Node* const node = free_;
    free_ = node->next;
    return node->bytes;
  }
  void give(void* bytes) noexcept {
    auto* const node = static_cast<Node*>(bytes);
    node->next = free_;
    free_ = node;
  }
  static constexpr size_t node_bytes = 64;

 private:
  union Node {
    Node* next;
    std::byte bytes[node_bytes];
  };
  Node* free_ = nullptr;
  size_t used_ = 0;
  Node nodes_[most_parts + added_at_once] = {};
};
constinit NodeRoom room;

template <class T>
struct NodeAllocator {
  using value_type = T;
  NodeAllocator() = default;
  template <class U>
  explicit(false) NodeAllocator(const NodeAllocator<U>&) {}
  T* allocate(size_t) {
    static_assert(sizeof(T) <= NodeRoom::node_bytes && alignof(T) <= alignof(void*));
    return static_cast<T*>(room.take());
  }
  void deallocate(T* node, size_t) noexcept { room.give(node); }
  friend bool operator==(const NodeAllocator&, const NodeAllocator&) { return true; }
};

/// The last change of each part of memory: ranges that don't overlap, by their first byte. It knows
/// addresses, not storages: two tensors may borrow the same memory, and no tensor pays for it.
class LastChanges {
 public:
  void note(ByteRange where, const char* operation, uint64_t number) noexcept {
    const Change change{where.end, number, operation};
    const auto known = parts_.find(where.begin);
    if (known != parts_.end() && known->second.end == where.end) {
      known->second = change;  // as most are: parameters, step by step
      return;
    }
    cut(where.begin);
    cut(where.end);
    parts_.erase(parts_.lower_bound(where.begin), parts_.lower_bound(where.end));
    parts_.emplace(where.begin, change);
    if (parts_.size() > most_parts) forget(number - most_parts / 4);
  }

  const char* last(ByteRange where, uint64_t moment) const {
    auto part = parts_.upper_bound(where.begin);
    if (part != parts_.begin()) --part;
    for (; part != parts_.end() && part->first < where.end; ++part)
      if (part->second.end > where.begin && part->second.number > moment)
        return part->second.operation;
    return moment < forgotten_ ? "an operation too long ago to tell" : nullptr;
  }

 private:
  struct Change {
    uintptr_t end;
    uint64_t number;
    const char* operation;
  };
  /// Parts begin at `address`, or end there, but none goes across.
  void cut(uintptr_t address) {
    const auto next = parts_.lower_bound(address);
    if (next == parts_.begin()) return;
    Change& before = std::prev(next)->second;
    if (before.end <= address) return;
    parts_.emplace_hint(next, address, before);
    before.end = address;
  }
  /// Leaves half of them at most: a change adds itself, and what it cuts off.
  void forget(uint64_t until) {
    std::erase_if(parts_, [&](const auto& part) { return part.second.number <= until; });
    forgotten_ = until;
  }

  std::map<uintptr_t, Change, std::less<>, NodeAllocator<std::pair<const uintptr_t, Change>>>
      parts_;
  uint64_t forgotten_ = 0;  ///< of changes up to it some are
};

constinit std::mutex mutex;
constinit std::atomic<uint64_t> count = 0;

/// Never destroyed: tensors may outlive any destructor of ours.
LastChanges& changes() {
  alignas(LastChanges) static std::byte memory[sizeof(LastChanges)];
  static auto* const all = new (memory) LastChanges;
  return *all;
}

}  // namespace

void note_change(const Tensor& x, const char* operation) {
  if (!x.defined() || x.use_count() == 1) return;  // nobody else can have saved it
  const ByteRange where = byte_range(x);
  if (where.begin == where.end) return;
  const std::lock_guard lock(mutex);
  const uint64_t number = count.load(std::memory_order_relaxed) + 1;
  changes().note(where, operation, number);
  count.store(number, std::memory_order_release);
}

uint64_t change_count() { return count.load(std::memory_order_acquire); }

const char* changed_since(const Tensor& x, uint64_t moment) {
  if (change_count() == moment) return nullptr;
  const ByteRange where = byte_range(x);
  if (where.begin == where.end) return nullptr;
  const std::lock_guard lock(mutex);
  return changes().last(where, moment);
}

}  // namespace bs
