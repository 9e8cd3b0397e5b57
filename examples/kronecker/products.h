#pragma once
/** @file The same product in three ways. */
#include <bs/autograd/variable.h>

#include <functional>
#include <string>
#include <vector>

namespace bs::example {

/** @brief Told of each part of a product as it is done. */
using Watch = std::function<Variable(const char* part, const std::function<Variable()>& work)>;
/** @brief Does it, and tells nobody. */
Variable unwatched(const char* part, const std::function<Variable()>& work);

/** @brief A way to compute x (W_N kron ... kron W_1), factors square. */
struct Product {
  const char* name;
  const char* what;
  Variable (*apply)(const Variable& x, const std::vector<Variable>& factors, const Watch& watch);
};

/** @brief steps, flat and fused. */
const std::vector<Product>& products();

}  // namespace bs::example
