#pragma once
/** @file Normalisation of the last axis: layer norm (Ba, Kiros, Hinton, 2016) and RMS norm (Zhang,
 *  Sennrich, 2019). */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief A normalised tensor and what its backward needs. */
struct NormResult {
  Tensor y;     ///< of x's shape and dtype
  Tensor mean;  ///< [...] without the last axis, f32 (f64 for f64); undefined after rms_norm
  Tensor rstd;  ///< 1 / sqrt(variance + eps), alike
  Tensor sum;   ///< of add_layer_norm and add_rms_norm: a + b, which is normalised; else undefined
};
/** @brief Gradients of a normalisation; those of absent inputs are undefined. */
struct NormGradients {
  Tensor dx, dweight, dbias;
};

/** @brief y = (x - mean) * rstd * weight + bias over the last axis, with the biased variance.
 *  @param[in] x [..., n], floating, any strides
 *  @param[in] weight [n] of x's dtype, or undefined for ones
 *  @param[in] bias [n] of x's dtype, or undefined for zeros
 *  @throws Error for rank 0, or when shapes, dtypes or devices differ. */
NormResult layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5);

/** @brief With g = dy * weight and h = (x - mean) * rstd:
 *  dx = rstd * (g - mean(g) - h * mean(g h)), dweight = sum dy h, dbias = sum dy over all rows.
 *  @param[in] weight as given to layer_norm; where undefined, so is dweight
 *  @param[in] wants_bias whether to compute dbias. Sums over rows have a fixed order.
 *  @param[in] dsum of x's shape, added to dx: a gradient that reaches x by another way; or
 * undefined
 */
NormGradients layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean,
                                  const Tensor& rstd, const Tensor& dy, bool wants_bias,
                                  const Tensor& dsum = {});

/** @brief y = x * rstd * weight with rstd = 1 / sqrt(mean(x^2) + eps); see layer_norm. */
NormResult rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-6);
/** @brief With g = dy * weight and h = x * rstd: dx = rstd * (g - h * mean(g h)),
 *  dweight = sum dy h. */
NormGradients rms_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd,
                                const Tensor& dy, const Tensor& dsum = {});

/** @brief layer_norm(a + b), the sum rounded to its dtype and kept: one pass over both. The
 * gradient of a and of b is dx of the backward for x = sum, given the gradient of the sum as
 * `dsum`.
 *  @throws Error unless a and b are alike. */
NormResult add_layer_norm(const Tensor& a, const Tensor& b, const Tensor& weight,
                          const Tensor& bias, double eps = 1e-5);
/** @brief rms_norm(a + b), likewise. */
NormResult add_rms_norm(const Tensor& a, const Tensor& b, const Tensor& weight, double eps = 1e-6);

/// An undefined `mean` stands for RMS norm; undefined weights and gradients are left out. `added`
/// is added to x, and the sum stored and normalised, where it is defined; x of the backward is
/// `sum`.
BS_BACKENDS(void norm(const Tensor& x, const Tensor& added, const Tensor& weight,
                      const Tensor& bias, const NormResult& to, double eps, Stream stream);
            void norm_backward(const NormResult& of, const Tensor& weight, const Tensor& dy,
                               const Tensor& dsum, const NormGradients& to, Stream stream))

}  // namespace bs
