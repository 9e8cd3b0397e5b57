#pragma once
/** @file What the handles of the C interface hold, and how its functions end: internal. */
#include <bs/c/bs.h>
#include <bs/lib/layout.h>

#include <memory>
#include <utility>

struct bs_tensor {
  bs::Tensor value;
};
struct bs_layout {
  bs::LayoutPtr value;
};

namespace bs::c {

/** @brief A bs_dtype as a DType. @throws Error for another number. */
DType dtype_of_number(const char* op, int dtype);

/** @brief Keeps the text of the exception that is being handled, and tells its status. */
bs_status failed() noexcept;

/** @brief Runs `body`; what it throws becomes a status. */
template <class Body>
bs_status guarded(const Body& body) noexcept {
  try {
    body();
    return BS_OK;
  } catch (...) {
    return failed();
  }
}

/** @brief What a handle holds. @throws Error where it is NULL. */
template <class Handle>
const auto& value(const char* op, const char* name, const Handle* handle) {
  BS_CHECK(handle != nullptr, "{}: {} is NULL", op, name);
  return handle->value;
}
/** @brief What a handle holds that may be NULL. */
inline Tensor optional(const bs_tensor* handle) { return handle ? handle->value : Tensor(); }

/** @brief A handle that goes to the caller once nothing can fail any more; null if undefined. */
using NewTensor = std::unique_ptr<bs_tensor>;
inline NewTensor handle(Tensor t) {
  return t.defined() ? NewTensor(new bs_tensor{std::move(t)}) : NewTensor();
}
/** @brief The handle of what `make()` returns, if the caller has a place for it. */
template <class Make>
NewTensor wanted(bs_tensor** place, const Make& make) {
  return place ? handle(make()) : NewTensor();
}

/** @brief Sets a result to NULL. @throws Error for no place. */
template <class Handle>
void place(const char* op, Handle** out) {
  BS_CHECK(out != nullptr, "{}: the place of a result is NULL", op);
  *out = nullptr;
}
/** @brief Sets those results to NULL that have a place. */
template <class... Handle>
void clear(Handle**... out) {
  ((out ? void(*out = nullptr) : void()), ...);
}
/** @brief Hands over, where there is a place. */
inline void give(bs_tensor** place, NewTensor& made) {
  if (place) *place = made.release();
}

}  // namespace bs::c
