#pragma once
/** @file Whole numbers in whole steps. */
#include <cstdint>

namespace bs {

/** @brief How many steps of `step` cover `n`; both are not negative, and `step` is not 0. */
constexpr int64_t ceil_div(int64_t n, int64_t step) { return (n + step - 1) / step; }
/** @brief The smallest multiple of `step` that is not below `n`. */
constexpr int64_t round_up(int64_t n, int64_t step) { return ceil_div(n, step) * step; }

}  // namespace bs
