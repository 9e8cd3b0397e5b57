#pragma once
/** @file Cross entropy of logits against class indices, fused with log-softmax. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief What becomes of the losses of the single rows. */
enum class Reduction : uint8_t { mean, sum, none };
std::string to_string(Reduction reduction);

struct CrossEntropyOptions {
  int64_t ignore_index = -100;  ///< rows of this target have no loss and no gradient
  double label_smoothing = 0;   ///< share of the target's probability spread over all classes
  Reduction reduction = Reduction::mean;
};

/** @brief A loss and what its backward needs: no probabilities are kept. */
struct CrossEntropyResult {
  Tensor loss;    ///< scalar, or of the targets' shape for Reduction::none; f32 (f64 for f64)
  Tensor lse;     ///< log(sum(exp(logits))) of each row, of the loss' dtype
  Tensor weight;  ///< of the mean alone: scalar, 1 / rows counted
  /// What rounding took from lse, which is much where logits are large; none where undefined.
  Tensor lse_rest = {};
};

/** @brief loss_r = (1 - s) * (lse_r - x_rt) + s * (lse_r - mean_j x_rj), t the target of row r, s
 *  the label smoothing; then the mean over rows that are not ignored, the sum, or all of them.
 *  @param[in] logits [..., v], floating, any strides
 *  @param[in] targets [...] of i64 or i32, on the same device
 *  @throws Error for targets outside [0, v) other than ignore_index on the CPU. On CUDA, which the
 *  host does not wait for, such a row's loss and gradient are NaN. The mean over no rows is NaN, as
 *  in PyTorch. */
CrossEntropyResult cross_entropy(const Tensor& logits, const Tensor& targets,
                                 const CrossEntropyOptions& options = {});

/** @brief dlogits_rj = d_r * (softmax_rj - (1 - s) * [j = t] - s / v), 0 for ignored rows.
 *  @param[in] result what cross_entropy returned for these logits, targets and options
 *  @param[in] dloss gradient of the loss, of its shape and dtype */
Tensor cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                              const CrossEntropyResult& result, const Tensor& dloss,
                              const CrossEntropyOptions& options = {});

/// Inputs contiguous. lse + lse_rest is the log of the sum; its backward may lack `lse_rest`, which
/// is no larger than the log of the classes. `losses` are the rows' own; their sum or mean goes to
/// `loss`, and for a mean 1 / rows counted to `weight`, where these are defined.
BS_BACKENDS(void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& lse,
                               const Tensor& lse_rest, const Tensor& losses, const Tensor& loss,
                               const Tensor& weight, const CrossEntropyOptions& options,
                               Stream stream);
            void cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                                        const Tensor& lse, const Tensor& lse_rest,
                                        const Tensor& weight, const Tensor& dloss,
                                        const Tensor& dlogits, const CrossEntropyOptions& options,
                                        Stream stream))

}  // namespace bs
