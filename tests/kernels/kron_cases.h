#pragma once
/** @file Products with Kronecker factors by naive loops in double, and checks against them. */
#include <bs/kernels/kron.h>
#include <bs/tests/support/op_case.h>

#include <vector>

namespace bs::test {

/** @brief [P, Q] of each factor. */
using Extents = std::vector<Shape>;

Reference transposed(const Reference& m);

/** @brief x times the factors one axis after the other, for what is too large for the dense
 * product. Factors slowest first. */
Reference steps_of(Reference x, const References& factors);

/** @brief The gradient of factor f by loops over all entries of the dense product; slowest first.
 */
Reference factor_gradient(const Reference& x, const References& factors, size_t f,
                          const Reference& dy);

/** @brief The product of x, then the factors, then the bias if there is one more. */
Reference kron_reference(const References& in, size_t factors, const KronOptions& options);

/** @brief Forward and backward against double, one axis after the other. `rounding` is that of
 *  operands beyond their dtype's. Of its calls is_sampled() tells which sanitizers see. */
void check_steps(const Extents& extents, int64_t rows, DType dtype, double rounding = 0);

/** @brief Product and gradients of x, whose last axis is set, against kron_reference(). */
void check_kron(const Extents& extents, Shape x, const KronOptions& options, bool bias,
                std::vector<DType> dtypes = {f64, f32, f16, bf16});

}  // namespace bs::test
