#pragma once
// What the block-sparse products do with finished sums before they are stored: an emitted
// `struct Epilogue` (kernels/gemm_epilogue.h), or nothing.
#include <bs/kernels/cuda/device/gemm_epilogue.cuh>

namespace bs::cuda::device {

/// Sums are stored as they are.
struct NoEpilogue {};

/// D, and what is staged beside it, of V neighbouring sums of a row. `at` is their place in rows
/// and columns of a matrix, any one inside where they are not, for at least one of them; `in` that
/// in tensors of D's shape, for as many as are inside.
template <class Epilogue, int staged, class Sum, int V>
__device__ __forceinline__ void finish_sums(const BlockSparseEpilogueArguments& e,
                                            const EpiloguePlace& at, const EpiloguePlace& in,
                                            const Sum (&sums)[V], Sum (&out)[staged][V]) {
  if constexpr (same_type<Epilogue, NoEpilogue>) {
#pragma unroll
    for (int v = 0; v < V; ++v) out[0][v] = sums[v];
  } else {
    static_assert(same_type<Sum, typename Epilogue::Compute> && Epilogue::reductions == 0);
    Sum unused[1][V];
    Epilogue::template apply<V>(e.scalars, e.operands, at, in, sums, unused,
                                KeepStored<Sum, staged, V>{out});
  }
}

}  // namespace bs::cuda::device
