#pragma once
/** @file Dropout (Srivastava et al., 2014) without a stored mask. */
#include <bs/kernels/activation.h>
#include <bs/kernels/dispatch.h>
#include <bs/lib/random.h>

namespace bs {

/** @brief y_i = x_i / (1 - p) with probability 1 - p, else 0. Whether element i stays depends on
 *  (state, i) alone, so the backward of dropout is dropout of dy with the same state.
 *  @param[in] x floating, any strides; elements count in row-major order
 *  @param[in] p in [0, 1]; 0 returns x itself
 *  @param[in] state the sequence drawn from, see Generator::next
 *  @throws Error for p outside [0, 1]. */
Tensor dropout(const Tensor& x, double p, RandomState state);

/** @brief The same of whole channels of x [N, C, ...], which stay or go together (Tompson et al.,
 *  2015). The result has x's format; see kernels/image.h. */
Tensor dropout2d(const Tensor& x, double p, RandomState state);

/** @brief dropout(f(x), p, state); on a GPU in one pass, where f(x) is not rounded between the two.
 *  @param[in] f relu, gelu or gelu_tanh; else Error */
Tensor activation_dropout(const Tensor& x, Activation f, double p, RandomState state);
/** @brief dx = f'(x) dropout(dy, p, state), likewise. Of relu, x may be the result of the forward.
 */
Tensor activation_dropout_backward(const Tensor& x, const Tensor& dy, Activation f, double p,
                                   RandomState state);

namespace detail {
/// Of gelu and gelu_tanh.
constexpr Gelu gelu_form(Activation f) { return f == Activation::gelu ? Gelu::erf : Gelu::tanh; }
}  // namespace detail

/// All are dense, and 0 < p < 1. x and y may be one. `first`: the number of x's first element among
/// those that `state` is for, a multiple of 4.
BS_BACKENDS(void dropout(const Tensor& x, const Tensor& y, double p, RandomState state,
                         int64_t first, Stream stream);
            /// y = x factor, and 0 where the factor is 0, whatever x is; expanded factors.
            void dropout2d(const Tensor& x, const Tensor& factor, const Tensor& y, Stream stream);
            void activation_dropout(const Tensor& x, const Tensor& y, Activation f, double p,
                                    RandomState state, Stream stream);
            void activation_dropout_backward(const Tensor& x, const Tensor& dy, const Tensor& dx,
                                             Activation f, double p, RandomState state,
                                             Stream stream))

}  // namespace bs
