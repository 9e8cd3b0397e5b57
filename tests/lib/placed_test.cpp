#include <bs/lib/placed.h>
#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

using namespace bs;

namespace {

struct Part : Placed {
  int value = 0;
  using Placed::has_place;
};

/// An owner of a part of itself and of one elsewhere, that moves.
struct Owner {
  Part inside;
  std::unique_ptr<Part> outside = std::make_unique<Part>();
  std::unique_ptr<OwnedPlace> to_inside = std::make_unique<OwnedPlace>(this, inside);
  std::unique_ptr<OwnedPlace> to_outside = std::make_unique<OwnedPlace>(this, *outside);

  Owner() = default;
  Owner(Owner&& other) noexcept
      : inside((other.to_inside->set_owner(this), other.to_outside->set_owner(this),
                std::move(other.inside))),
        outside(std::move(other.outside)),
        to_inside(std::move(other.to_inside)),
        to_outside(std::move(other.to_outside)) {}
};

}  // namespace

TEST_CASE("placed: a part is found where its owner moved, and what lies elsewhere stays") {
  static_assert(std::is_nothrow_move_constructible_v<Part>);
  std::optional<Owner> from(std::in_place);
  Part* const outside = from->outside.get();
  CHECK(from->to_inside->object() == &from->inside);
  Owner to = std::move(*from);
  CHECK(to.to_inside->object() == &to.inside);
  CHECK(to.to_outside->object() == outside);
  CHECK_FALSE(from->inside.has_place());
  from.reset();
  CHECK(to.to_inside->object() == &to.inside);
  const Owner third = std::move(to);
  CHECK(third.to_inside->object() == &third.inside);
}

TEST_CASE("placed: neither a copy, nor an assignment, nor a move alone changes the place") {
  Owner owner;
  Part copy = owner.inside;
  CHECK_FALSE(copy.has_place());
  copy.value = 3;
  owner.inside = copy;
  CHECK(owner.inside.value == 3);
  CHECK(owner.to_inside->object() == &owner.inside);
  owner.inside = std::move(copy);
  const Part alone = std::move(owner.inside);
  CHECK_FALSE(alone.has_place());
  CHECK(owner.to_inside->object() == &owner.inside);
}

TEST_CASE("placed: several places lead to one object, each until one of both is no more") {
  const int owner = 0;
  std::optional<Part> part(std::in_place);
  const OwnedPlace first(&owner, *part);
  std::optional<OwnedPlace> second(std::in_place, &owner, *part);
  const OwnedPlace third(&owner, *part);
  second.reset();
  CHECK(first.object() == &*part);
  CHECK(third.object() == &*part);
  part.reset();
  CHECK(first.object() == nullptr);
  CHECK(third.object() == nullptr);
}
