#pragma once
/** @file Differentiable losses; see kernels/loss.h for the formulas. */
#include <bs/autograd/variable.h>
#include <bs/kernels/loss.h>

namespace bs {

/** @brief Cross entropy of logits [..., v] against class numbers [...]. Saves the logits and one
 *  number a row. */
Variable cross_entropy(const Variable& logits, const Tensor& targets,
                       const CrossEntropyOptions& options = {});

}  // namespace bs
