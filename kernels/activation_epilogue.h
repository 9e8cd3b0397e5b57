#pragma once
/** @file An activation function as part of a product's epilogue. */
#include <bs/kernels/activation.h>
#include <bs/kernels/gemm_epilogue.h>

namespace bs::epilogue {

/** @brief `activation` of a value; the value itself for Activation::none. */
Value activated(Activation activation, const Value& x);

}  // namespace bs::epilogue
