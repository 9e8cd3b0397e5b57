#pragma once
/** @file The fields of an aggregate, in order, without naming them. */
#include <tuple>
#include <type_traits>

namespace bs::test {

/** @brief Stands for a field of any type. */
struct AnyField {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor): the implicit direction is the point
};

/** @brief How many fields can be initialised, in order. */
template <class T, class... Before>
constexpr int field_count() {
  if constexpr (requires { T{Before{}..., AnyField{}}; })
    return field_count<T, Before..., AnyField>();
  else
    return static_cast<int>(sizeof...(Before));
}

/** Binds the fields to the names given. */
#define BS_BIND(...)              \
  {                               \
    auto& [__VA_ARGS__] = t;      \
    return std::tie(__VA_ARGS__); \
  }

/** @brief References to the fields of `t`, at most 24. */
template <class T>
auto fields(T& t) {
  constexpr int count = field_count<std::remove_const_t<T>>();
  static_assert(count <= 24, "fields() lists no more");
  // clang-format off
  if constexpr (count == 0) return std::tie();
  else if constexpr (count == 1) BS_BIND(a)
  else if constexpr (count == 2) BS_BIND(a, b)
  else if constexpr (count == 3) BS_BIND(a, b, c)
  else if constexpr (count == 4) BS_BIND(a, b, c, d)
  else if constexpr (count == 5) BS_BIND(a, b, c, d, e)
  else if constexpr (count == 6) BS_BIND(a, b, c, d, e, f)
  else if constexpr (count == 7) BS_BIND(a, b, c, d, e, f, g)
  else if constexpr (count == 8) BS_BIND(a, b, c, d, e, f, g, h)
  else if constexpr (count == 9) BS_BIND(a, b, c, d, e, f, g, h, i)
  else if constexpr (count == 10) BS_BIND(a, b, c, d, e, f, g, h, i, j)
  else if constexpr (count == 11) BS_BIND(a, b, c, d, e, f, g, h, i, j, k)
  else if constexpr (count == 12) BS_BIND(a, b, c, d, e, f, g, h, i, j, k, l)
  else if constexpr (count == 13) BS_BIND(a, b, c, d, e, f, g, h, i, j, k, l, m)
  else if constexpr (count == 14) BS_BIND(a, b, c, d, e, f, g, h, i, j, k, l, m, n)
  else if constexpr (count == 15) BS_BIND(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
  else if constexpr (count == 16) BS_BIND(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
  else if constexpr (count == 17) BS_BIND(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q)
  else if constexpr (count == 18) BS_BIND(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r)
  else if constexpr (count == 19) BS_BIND(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s)
  else if constexpr (count == 20) BS_BIND(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, u)
  else if constexpr (count == 21) BS_BIND(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, u, v)
  else if constexpr (count == 22) BS_BIND(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, u, v, w)
  else if constexpr (count == 23) BS_BIND(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, u, v, w, x)
  else if constexpr (count == 24) BS_BIND(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, u, v, w, x, y)
  // clang-format on
}
#undef BS_BIND

}  // namespace bs::test
