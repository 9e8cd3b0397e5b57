#pragma once
/** @file Differentiable pooling of images; see kernels/max_pool2d.h and kernels/avg_pool2d.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/avg_pool2d.h>
#include <bs/kernels/max_pool2d.h>

namespace bs {

/** @brief Saves one byte an output. */
Variable max_pool2d(const Variable& x, const MaxPool2dOptions& options);
/** @brief Saves nothing. */
Variable avg_pool2d(const Variable& x, const AvgPool2dOptions& options);
/** @brief Saves nothing. */
Variable adaptive_avg_pool2d(const Variable& x, Extent2 size);

}  // namespace bs
