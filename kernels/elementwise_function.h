#pragma once
/** @file Front doors of functions of one element, and of their gradients. */
#include <bs/kernels/copy.h>
#include <bs/kernels/dispatch.h>

/** Defines function(x) of floats. What is none is computed in f32. */
#define BS_FLOATING_FUNCTION(function)                                                          \
  ::bs::Tensor function(const ::bs::Tensor& x) {                                                \
    const ::bs::Tensor in =                                                                     \
        ::bs::elementwise_operand(::bs::is_floating(x.dtype()) ? x : ::bs::cast(x, ::bs::f32)); \
    ::bs::Tensor y = ::bs::Tensor::empty_like(in);                                              \
    if (y.numel() > 0) BS_DISPATCH(y.device(), function, in, y);                                \
    return y;                                                                                   \
  }

/** Defines function(saved, dy), a gradient by what its function saved. */
#define BS_FUNCTION_BACKWARD(function)                                       \
  ::bs::Tensor function(const ::bs::Tensor& saved, const ::bs::Tensor& dy) { \
    ::bs::check_alike(#function, saved, dy);                                 \
    ::bs::Tensor dx = ::bs::Tensor::empty_like(dy);                          \
    if (dx.numel() > 0)                                                      \
      BS_DISPATCH(dx.device(), function, ::bs::elementwise_operand(saved),   \
                  ::bs::elementwise_operand(dy), dx);                        \
    return dx;                                                               \
  }
