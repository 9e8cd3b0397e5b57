#include <bs/lib/kept.h>

#include <algorithm>
#include <iterator>

namespace bs {

std::shared_ptr<CacheSlot> Cache::find(std::type_index key, std::type_index value,
                                       const std::function<bool(const void*)>& equals,
                                       const std::function<std::shared_ptr<const void>()>& copy) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const auto& slot) {
    return slot->key_type == key && slot->value_type == value && equals(slot->key.get());
  });
  if (found != slots_.end()) {
    slots_.splice(slots_.begin(), slots_, found);
  } else {
    const auto slot = std::make_shared<CacheSlot>(key, value);
    slot->key = copy();  // may find no memory; a slot that is listed has a key
    slots_.push_front(slot);
    drop_oldest();
  }
  return slots_.front();
}

void Cache::drop_oldest() {
  const auto free =
      std::count_if(slots_.begin(), slots_.end(), [](const auto& slot) { return !slot->pinned; });
  if (static_cast<size_t>(free) <= most_) return;
  const auto oldest =
      std::find_if(slots_.rbegin(), slots_.rend(), [](const auto& slot) { return !slot->pinned; });
  slots_.erase(std::next(oldest).base());
}

size_t Cache::size() const {
  const std::lock_guard lock(mutex_);
  return slots_.size();
}

}  // namespace bs
