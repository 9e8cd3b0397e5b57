#pragma once
/** @file Differentiable systems with a Kronecker product; see kernels/kron_solve.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/kron_solve.h>

namespace bs {

/** @brief x with x (W_N kron ... kron W_1) = b. Saves x, the factors and their inverses. */
Variable kron_solve(const Variable& b, const std::vector<Variable>& factors,
                    const KronSolveOptions& options = {});
/** @brief log |det (W_N kron ... kron W_1)|, [] or [groups]. */
Variable kron_logdet(const std::vector<Variable>& factors);

/** @brief x with x (K + shift I) = b for symmetric factors.
 *  @param[in] eigh kron_eigh of the factors' values, with the order of the factors */
Variable kron_shifted_solve(const Variable& b, const std::vector<Variable>& factors,
                            const Variable& shift, const KronEigh& eigh);
/** @brief log det (K + shift I) for symmetric factors. @param[in] eigh likewise */
Variable kron_shifted_logdet(const std::vector<Variable>& factors, const Variable& shift,
                             const KronEigh& eigh);

}  // namespace bs
