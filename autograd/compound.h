#pragma once
/** @file a += b and its kin on variables: a names the result, a + b. What was recorded with the old
 *  a keeps its values, so that gradients stay right. */
#include <bs/autograd/binary.h>

namespace bs {

inline Variable& operator+=(Variable& a, const Variable& b) { return a = add(a, b); }
inline Variable& operator+=(Variable& a, Scalar b) { return a = add(a, b); }
inline Variable& operator-=(Variable& a, const Variable& b) { return a = sub(a, b); }
inline Variable& operator-=(Variable& a, Scalar b) { return a = sub(a, b); }
inline Variable& operator*=(Variable& a, const Variable& b) { return a = mul(a, b); }
inline Variable& operator*=(Variable& a, Scalar b) { return a = mul(a, b); }
inline Variable& operator/=(Variable& a, const Variable& b) { return a = div(a, b); }
inline Variable& operator/=(Variable& a, Scalar b) { return a = div(a, b); }

}  // namespace bs
