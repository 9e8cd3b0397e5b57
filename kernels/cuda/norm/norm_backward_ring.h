#pragma once
// The backward of norms for rows as wide as a block: what it reads comes through a ring of shared
// memory, and columns are summed in registers.
#include <bs/kernels/norm.h>

namespace bs::cuda {

/// Leaves dx and, where sums are wanted, those of each block: [2, blocks, n] of dy h and dy. Says
/// whether rows are such, by the number of blocks; 0 where they are not.
unsigned norm_backward_ring(const NormResult& of, const Tensor& weight, const Tensor& dy,
                            const Tensor& dsum, const NormGradients& to, Tensor& partial,
                            Stream stream);

}  // namespace bs::cuda
