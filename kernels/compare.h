#pragma once
/** @file Comparisons, with broadcasting and type promotion; the result is bool. */
#include <bs/kernels/dispatch.h>
#include <bs/kernels/operand.h>

namespace bs {

/** @name a op b
 *  Operands are compared in the dtype that arithmetic on them would use (see binary.h). NaN differs
 *  from everything and is in no order. Integers beyond i32 compare with i32 and u8 as they are. Any
 *  strides.
 *  @throws Error when shapes do not broadcast or devices differ.
 *  @{ */
Tensor eq(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, Scalar b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, Scalar b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, Scalar b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, Scalar b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, Scalar b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, Scalar b);
/** @} */

inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<(const Tensor& a, Scalar b) { return lt(a, b); }
inline Tensor operator<(Scalar a, const Tensor& b) { return gt(b, a); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator<=(const Tensor& a, Scalar b) { return le(a, b); }
inline Tensor operator<=(Scalar a, const Tensor& b) { return ge(b, a); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>(const Tensor& a, Scalar b) { return gt(a, b); }
inline Tensor operator>(Scalar a, const Tensor& b) { return lt(b, a); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
inline Tensor operator>=(const Tensor& a, Scalar b) { return ge(a, b); }
inline Tensor operator>=(Scalar a, const Tensor& b) { return le(b, a); }

BS_BACKENDS(void eq(const Operand& a, const Operand& b, const Tensor& y, Stream stream);
            void ne(const Operand& a, const Operand& b, const Tensor& y, Stream stream);
            void lt(const Operand& a, const Operand& b, const Tensor& y, Stream stream);
            void le(const Operand& a, const Operand& b, const Tensor& y, Stream stream))

}  // namespace bs
