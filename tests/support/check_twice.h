#pragma once
/** @file Checks of derivatives of derivatives, in f64 on the device of the tests. */
#include <bs/autograd/variable.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace bs::test {

using Inputs = std::vector<Variable>;
using Function = std::function<Variable(const Inputs&)>;
using One = std::function<Variable(const Variable&)>;
using Two = std::function<Variable(const Variable&, const Variable&)>;

/** @brief Random numbers that require a gradient. */
Variable random_leaf(const Shape& shape, uint64_t seed, double low = -1, double high = 1);
inline Variable positive(const Shape& shape, uint64_t seed) {
  return random_leaf(shape, seed, 0.3, 2);
}

/** @brief The recorded gradients are the others, and their own gradients, for inputs and for dy,
 *  are differences of them. Inputs that require no gradient stay what they are. */
void check_twice(const char* name, const Function& f, const Inputs& inputs);
void check_one(const char* name, const One& f, const Variable& x);
/** @brief With a gradient for both, and for each alone. */
void check_two(const char* name, const Two& f, const Variable& a, const Variable& b);

/** @brief The square of f, which makes a linear f one with second derivatives. */
One squared(const One& f);

}  // namespace bs::test
