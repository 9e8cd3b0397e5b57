#pragma once
/** @file The feed-forward part of a transformer: two linear layers with a GELU between them. Its
 *  backward adds up the first bias' gradient where it takes the GELU's. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief Of the two layers: [hidden, in], [hidden], [out, hidden], [out]; no bias may be
 * undefined. */
struct FeedForwardWeights {
  Tensor weight1, bias1, weight2, bias2;
};
/** @brief The result, and what the backward needs. */
struct FeedForwardResult {
  Tensor y;       ///< [..., out]
  Tensor before;  ///< x weight1^T + bias1, [..., hidden]
  Tensor hidden;  ///< gelu(before)
};
struct FeedForwardGrads {
  Tensor dx, dweight1, dbias1, dweight2, dbias2;
};

/** @brief y = gelu(x weight1^T + bias1) weight2^T + bias2 with the tanh form of GELU.
 *  @param[in] x [..., in], floating, any strides; all tensors have its dtype
 *  @return dense tensors; `hidden` may be of sums that are not rounded yet
 *  @throws Error when shapes do not match, or dtypes or devices differ. */
FeedForwardResult feed_forward(const Tensor& x, const FeedForwardWeights& weights);

/** @brief The gradients of feed_forward, from dy [..., out]. */
FeedForwardGrads feed_forward_backward(const Tensor& x, const FeedForwardWeights& weights,
                                       const FeedForwardResult& forward, const Tensor& dy);

/// All are matrices, and those written dense; no extent is 0.
/// - before = x weight^T + bias, y = gelu(before)
/// - dbefore = (dy weight) * gelu'(before), and dbias the sum of its rows
BS_BACKENDS(void linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias,
                             const Tensor& before, const Tensor& y, Stream stream);
            void linear_gelu_backward(const Tensor& dy, const Tensor& weight, const Tensor& before,
                                      const Tensor& dbefore, const Tensor& dbias, Stream stream))

}  // namespace bs
