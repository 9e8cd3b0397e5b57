#pragma once
/** @file Objects that are found again after they moved together with what they belong to. */
#include <cstddef>

namespace bs {

class OwnedPlace;

/** @brief Base of objects that an OwnedPlace leads to. No place leads to a copy; assignment changes
 * no place. */
class Placed {
 public:
  Placed() = default;
  Placed(const Placed&) noexcept {}
  Placed(Placed&& other) noexcept {
    if (other.places_ != nullptr) follow(other);
  }
  // NOLINTNEXTLINE(bugprone-unhandled-self-assignment): nothing is assigned
  Placed& operator=(const Placed&) noexcept { return *this; }
  Placed& operator=(Placed&&) noexcept { return *this; }
  ~Placed() {
    if (places_ != nullptr) vanish();
  }

 protected:
  bool has_place() const { return places_ != nullptr; }

 private:
  friend class OwnedPlace;
  void follow(Placed& other) noexcept;
  void vanish() noexcept;
  OwnedPlace* places_ = nullptr;  ///< a list
};

/** @brief Leads to an object that belongs to an owner: a part of it, or something that it keeps
 *  elsewhere. A part moves with its owner and is found at the same distance from it. What is moved
 *  out alone leaves its emptied self in the place. */
class OwnedPlace {
 public:
  OwnedPlace(const void* owner, Placed& object) noexcept;
  OwnedPlace(const OwnedPlace&) = delete;
  OwnedPlace& operator=(const OwnedPlace&) = delete;
  ~OwnedPlace();

  /** @brief Null when the object is no more. */
  Placed* object() const { return object_; }
  /** @brief Says where the owner moves to. Its parts move after this. */
  void set_owner(const void* owner) { owner_ = owner; }

 private:
  friend class Placed;
  void link(Placed& object) noexcept;
  void unlink() noexcept;
  const void* owner_;
  std::ptrdiff_t distance_;  ///< from the owner to the object
  Placed* object_ = nullptr;
  OwnedPlace* next_ = nullptr;  ///< of the same object
};

}  // namespace bs
