#pragma once
/** @file What the program does. */
#include <bs/examples/kronecker/options.h>

namespace bs::example {

/** @brief Prints norms of results and gradients, and how far the ways are apart.
 *  @throws Error when they are further apart than rounding explains */
void check_products(const KroneckerOptions& options);
/** @brief Prints parts of each way by the time they take, and writes a Chrome trace. */
void profile_products(const KroneckerOptions& options);
/** @brief Prints the work there is and the times that the ways take. */
void bench_products(const KroneckerOptions& options);
/** @brief All of them on small products, in a temporary folder. */
void smoke_products(const KroneckerOptions& options);

}  // namespace bs::example
