#pragma once
/** @file Cross entropy against weights of all classes: soft targets, weights of classes, and
 * negative log-likelihood. */
#include <bs/kernels/loss.h>
#include <bs/kernels/operand.h>

namespace bs {

/** @brief loss_r = -sum_j w_rj log softmax(logits)_rj, in f32 (f64 for f64), [...]. A class of
 *  weight 0 adds nothing, whatever its logit.
 *  @param[in] logits, weights [..., v]; weights need not sum to 1 */
Tensor soft_cross_entropy(const Tensor& logits, const Tensor& weights);
/** @brief Throws an Error naming `op` unless these are probabilities, of the shape of the logits,
 *  and a smoothing in [0, 1]. Class numbers, or 0 and 1 as integers, are refused as in PyTorch. */
void check_probabilities(const char* op, const Tensor& logits, const Tensor& probabilities,
                         double label_smoothing);
/** @brief dlogits_rj = d_r (softmax_rj sum_k w_rk - w_rj). @param[in] dloss [...] */
Tensor soft_cross_entropy_backward(const Tensor& logits, const Tensor& weights,
                                   const Tensor& dloss);

/** @brief The weights by which class numbers become soft targets: for row r of target t
 *  c_t (1 - s) [j = t] + c_j s / v, with class weights c (1 where undefined) and label smoothing s;
 *  zeros for ignored rows.
 *  @param[in] targets [...], i64 or i32
 *  @throws Error for targets outside [0, v) other than ignore_index on the CPU; on CUDA NaN. */
Tensor target_weights(const Tensor& targets, int64_t classes, const Tensor& class_weights,
                      const CrossEntropyOptions& options, DType dtype);
/** @brief What the mean divides by: the sum over rows of their target's class weight. */
Tensor target_weight_sum(const Tensor& targets, int64_t classes, const Tensor& class_weights,
                         const CrossEntropyOptions& options, DType dtype);

/// Dense rows of the last axis. Weights have the dtype of the logits, or that of the losses and
/// their gradients. Those of targets t are rows_r [j = t_r] + shares_j, and zeros where t_r is
/// `ignored`: rows and shares of their dtype, or numbers where classes weigh alike.
BS_BACKENDS(void soft_cross_entropy(const Tensor& logits, const Tensor& weights, const Tensor& loss,
                                    Stream stream);
            void soft_cross_entropy_backward(const Tensor& logits, const Tensor& weights,
                                             const Tensor& dloss, const Tensor& dlogits,
                                             Stream stream);
            void target_weights(const Tensor& targets, int64_t ignored, const Operand& rows,
                                const Operand& shares, const Tensor& weights, Stream stream))

}  // namespace bs
