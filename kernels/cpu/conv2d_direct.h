#pragma once
/** @file Convolutions of few channels on the CPU: images are copied once into frames of zeros, and
 * read there in place. Packing, as conv2d_gather.cpp does it, copies a pixel for each tap, which
 * takes long beside its products where few channels go in and out. */
#include <bs/kernels/cpu/conv2d.h>

namespace bs::cpu {

/** @brief Whether a pass is one of few channels. Looks at extents alone: the same sums for any
 *  number of threads. */
bool is_direct(const ConvGather& g);

/** @brief result = epilogue(gathered source * weight). */
void run_direct(const ConvGather& g, const Tensor& source, const Tensor& weight,
                const ConvWeight& strides, const Conv2dEpilogue& epilogue, const Tensor& result);

/** @brief The gradient of the weight [K, C, R, S] of forward pass `g`.
 *  @param[in] dy channels-last */
void direct_backward_w(const ConvGather& g, const Tensor& x, const Tensor& dy,
                       const Tensor& dweight);

}  // namespace bs::cpu
