#pragma once
/** @file Rows of several matrices side by side, which concat.h shows. */
#include <bs/kernels/dispatch.h>

#include <span>

namespace bs {

/// Dense parts [rows, n of each] to a dense y [rows, sum of n], of one dtype.
BS_BACKENDS(void concat(std::span<const Tensor> parts, const Tensor& y, Stream stream))

}  // namespace bs
