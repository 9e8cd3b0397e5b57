#pragma once

namespace bs::cuda {

/// x times y, rounded. A fused multiply-add would leave the product's rounding error where a
/// difference is zero.
__device__ inline float rounded_product(float x, float y) { return __fmul_rn(x, y); }
__device__ inline double rounded_product(double x, double y) { return __dmul_rn(x, y); }

}  // namespace bs::cuda
