#pragma once
/** @file Whether sanitizers watch. They judge accesses, which a few calls show; an ordinary build
 *  judges numbers. */
#include <cstdlib>

namespace bs::test {

/** @brief Those that the build is for, or compute-sanitizer, for which BS_TEST_SANITIZED is set. */
#if BS_SANITIZED
constexpr bool sanitized = true;
#else
inline const bool sanitized = std::getenv("BS_TEST_SANITIZED") != nullptr;
#endif

/** @brief Of so many cases of a long sweep sanitizers see one, an ordinary build all. It is prime,
 * so that it cuts across the axes of the sweep. */
inline const int sweep_share = sanitized ? 7 : 1;

/** @brief How many random cases are tried, of `all`. */
template <class Int>
Int sampled(Int all) {
  return all / sweep_share;
}

/** @brief Whether a sweep's case is tried. */
inline bool is_sampled(int number) { return number % sweep_share == 0; }

}  // namespace bs::test
