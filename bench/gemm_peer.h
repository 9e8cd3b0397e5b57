#pragma once
/** @file The dense product of the vendor's library, to compare with. */
#include <bs/bench/measure.h>
#include <bs/lib/tensor.h>

namespace bs::bench {

/** @brief d = a b by cuBLASLt, with the algorithm it proposes first and 64 MiB to work in; on the
 * CPU by matmul. Matrices of one floating dtype, each dense by rows or by columns, d by rows. f32
 * stays f32. Everything is prepared here; the work only launches. */
Work gemm_peer(const Tensor& a, const Tensor& b, const Tensor& d);

}  // namespace bs::bench
