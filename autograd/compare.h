#pragma once
/** @file Comparisons of variables. The result is a Tensor of bool, which no gradient passes; see
 *  kernels/compare.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/compare.h>

namespace bs {

#define BS_COMPARISON(function, sign, turned)                                                  \
  inline Tensor function(const Variable& a, const Variable& b) {                               \
    return function(a.data(), b.data());                                                       \
  }                                                                                            \
  inline Tensor function(const Variable& a, Scalar b) { return function(a.data(), b); }        \
  inline Tensor operator sign(const Variable& a, const Variable& b) { return function(a, b); } \
  inline Tensor operator sign(const Variable& a, Scalar b) { return function(a, b); }          \
  inline Tensor operator sign(Scalar a, const Variable& b) { return turned(b.data(), a); }
BS_COMPARISON(lt, <, gt)
BS_COMPARISON(le, <=, ge)
BS_COMPARISON(gt, >, lt)
BS_COMPARISON(ge, >=, le)
#undef BS_COMPARISON

inline Tensor eq(const Variable& a, const Variable& b) { return eq(a.data(), b.data()); }
inline Tensor eq(const Variable& a, Scalar b) { return eq(a.data(), b); }
inline Tensor ne(const Variable& a, const Variable& b) { return ne(a.data(), b.data()); }
inline Tensor ne(const Variable& a, Scalar b) { return ne(a.data(), b); }

}  // namespace bs
