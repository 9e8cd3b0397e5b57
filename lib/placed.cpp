#include <bs/lib/placed.h>

#include <cstdint>
#include <utility>

namespace bs {

namespace {
std::ptrdiff_t distance(const void* from, const void* to) {
  return static_cast<std::ptrdiff_t>(reinterpret_cast<uintptr_t>(to) -
                                     reinterpret_cast<uintptr_t>(from));
}
}  // namespace

void Placed::follow(Placed& other) noexcept {
  for (OwnedPlace *place = other.places_, *next; place != nullptr; place = next) {
    next = place->next_;
    if (distance(place->owner_, this) != place->distance_) continue;
    place->unlink();
    place->link(*this);
  }
}

void Placed::vanish() noexcept {
  while (places_ != nullptr) places_->unlink();
}

OwnedPlace::OwnedPlace(const void* owner, Placed& object) noexcept
    : owner_(owner), distance_(distance(owner, &object)) {
  link(object);
}

OwnedPlace::~OwnedPlace() {
  if (object_ != nullptr) unlink();
}

void OwnedPlace::link(Placed& object) noexcept {
  object_ = &object;
  next_ = std::exchange(object.places_, this);
}

void OwnedPlace::unlink() noexcept {
  OwnedPlace** at = &object_->places_;
  while (*at != this) at = &(*at)->next_;
  *at = next_;
  object_ = nullptr;
}

}  // namespace bs
