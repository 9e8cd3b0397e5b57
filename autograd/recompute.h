#pragma once
/** @file Activation checkpointing: what a part of a network saved is computed again in backward. */
#include <bs/autograd/variable.h>
#include <bs/lib/random.h>

#include <functional>
#include <vector>

namespace bs {

/** @brief What `part` makes of `inputs`, with nothing of its inside kept for backward: only the
 *  inputs. Backward runs `part` once more and then goes back through it (Chen et al., 2016): memory
 *  for the price of a second forward. Gradients are the same bits, parameters that `part` captures
 *  get theirs too, and numbers drawn from `generator` are drawn alike again. A hook of such a
 *  parameter runs once for each part that uses it, on that part's share of the gradient.
 *
 *  Where no input requires a gradient `part` is run and recorded as without this call.
 *  Guards such as TF32Guard or nn::EvalMode hold for both runs only if they hold in backward too.
 *  @param[in] part called twice, so it must not move from what it captures or change it
 *  @param[in] generator the one `part` draws from, in this thread */
Variable recompute(std::function<Variable(const std::vector<Variable>&)> part,
                   const std::vector<Variable>& inputs, Generator& generator = default_generator());

}  // namespace bs
