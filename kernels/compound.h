#pragma once
/** @file a += b and its kin on tensors: a names a new tensor, a + b; other handles to the old one
 *  keep their values. kernels/binary.h has the rules. */
#include <bs/kernels/binary.h>

namespace bs {

inline Tensor& operator+=(Tensor& a, const Tensor& b) { return a = add(a, b); }
inline Tensor& operator+=(Tensor& a, Scalar b) { return a = add(a, b); }
inline Tensor& operator-=(Tensor& a, const Tensor& b) { return a = sub(a, b); }
inline Tensor& operator-=(Tensor& a, Scalar b) { return a = sub(a, b); }
inline Tensor& operator*=(Tensor& a, const Tensor& b) { return a = mul(a, b); }
inline Tensor& operator*=(Tensor& a, Scalar b) { return a = mul(a, b); }
inline Tensor& operator/=(Tensor& a, const Tensor& b) { return a = div(a, b); }
inline Tensor& operator/=(Tensor& a, Scalar b) { return a = div(a, b); }

}  // namespace bs
