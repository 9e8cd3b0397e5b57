#pragma once
/// @file
/// Dense products on the CPU. Sums of products over a block pattern: see panels.h.
#include <bs/kernels/cpu/panels.h>

namespace bs::cpu {

/// C (m x n) = beta C + alpha A B on the calling thread; any strides. T is the type of the sum, to
/// which inputs are converted; C is rounded once, and not read when beta is 0.
template <class T, class In, class Out>
void gemm(Index m, Index n, Index k, T alpha, const In* a, Index rsa, Index csa, const In* b,
          Index rsb, Index csb, T beta, Out* c, Index rsc, Index csc);

/// `batch` such products, operands `bsa`, `bsb`, `bsc` elements apart (0: the same), on up to
/// omp_get_max_threads() threads. The depth is never split: bitwise the result of gemm().
template <class T, class In, class Out>
void parallel_gemm(Index batch, Index m, Index n, Index k, T alpha, const In* a, Index bsa,
                   Index rsa, Index csa, const In* b, Index bsb, Index rsb, Index csb, T beta,
                   Out* c, Index bsc, Index rsc, Index csc);

}  // namespace bs::cpu
