#pragma once
/** @file Gradient clipping as the loops of optimisers see it. */
#include <bs/kernels/grad_norm.h>

namespace bs::cpu {

/** @brief The clip with its norm's address. */
inline ClipView view_of(const GradientClip& clip) {
  return {clip.norm.defined() ? clip.norm.data<double>() : nullptr, clip.max_norm,
          clip.skip_nonfinite, 1 / clip.scale};
}

}  // namespace bs::cpu
