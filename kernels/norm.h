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
 *  @param[in] wants_bias whether to compute dbias. Sums over rows have a fixed order. */
NormGradients layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean,
                                  const Tensor& rstd, const Tensor& dy, bool wants_bias);

/** @brief y = x * rstd * weight with rstd = 1 / sqrt(mean(x^2) + eps); see layer_norm. */
NormResult rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-6);
/** @brief With g = dy * weight and h = x * rstd: dx = rstd * (g - h * mean(g h)),
 *  dweight = sum dy h. */
NormGradients rms_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd,
                                const Tensor& dy);

/// An undefined `mean` stands for RMS norm; undefined weights and gradients are left out.
BS_BACKENDS(void norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
                      const Tensor& mean, const Tensor& rstd, double eps, Stream stream);
            void norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean,
                               const Tensor& rstd, const Tensor& dy, const Tensor& dx,
                               const Tensor& dweight, const Tensor& dbias, Stream stream))

}  // namespace bs
