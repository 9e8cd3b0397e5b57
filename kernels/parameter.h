#pragma once
/** @file What the optimisers ask of a parameter and its state. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief The dtype in which the state of a parameter of `dtype` is kept and its step is done. */
inline DType state_dtype(DType dtype) { return dtype == f64 ? f64 : f32; }

/** @brief Throws an Error naming `op` unless `value` can be a parameter and `gradient` its own. */
void check_parameter(const char* op, const Tensor& value, const Tensor& gradient);
/** @brief Throws an Error naming `op` and the tensor's `name` unless `state` fits `value`. */
void check_state(const char* op, const char* name, const Tensor& value, const Tensor& state);
/** @brief Throws an Error naming `op` unless `numbers` is undefined or holds `count` of f64 on
 *  `device`: what a step takes from there rather than from the host. */
void check_numbers(const char* op, const Tensor& numbers, int64_t count, Device device);
/** @brief Throws an Error naming `op` unless `master` is undefined or fits a 16-bit `value`. */
void check_master(const char* op, const Tensor& value, const Tensor& master);

}  // namespace bs
