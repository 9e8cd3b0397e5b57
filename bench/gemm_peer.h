#pragma once
/** @file The dense product of the vendor's library, to compare with. */
#include <bs/bench/measure.h>
#include <bs/kernels/gemm_element.h>
#include <bs/lib/tensor.h>

namespace bs::bench {

/** @brief d = a b by cuBLASLt, with the algorithm it proposes first and 64 MiB to work in; on the
 * CPU by matmul. Matrices of `operands`, each dense by rows or by columns, d by rows: of the same
 * floating dtype (f32 stays f32), or for 8-bit floats of f16 or bf16, for i8 of i32. Sums of 8-bit
 * floats are the tensor cores' alone, as in GemmOperation. Everything is prepared here; the work
 * only launches. */
Work gemm_peer(const Tensor& a, const Tensor& b, const Tensor& d, Element operands);

}  // namespace bs::bench
