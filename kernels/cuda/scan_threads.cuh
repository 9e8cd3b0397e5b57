#pragma once
// Scans over the threads of a row, which are lanes of a warp or all of a block.

namespace bs::cuda {

/// What scans make of two numbers.
struct ScanSum {
  template <class W>
  static constexpr W identity = 0;
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a + b;
  }
};
struct ScanProduct {
  template <class W>
  static constexpr W identity = 1;
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a * b;
  }
};

/// What Op makes of the values of the row's threads before this one, or of those behind it. Every
/// thread of the block takes part.
template <bool behind, class Op, class W>
__device__ W scan_threads(W own) {
  constexpr unsigned warp = 32, all = 0xffffffffU;
  constexpr W identity = Op::template identity<W>;
  constexpr Op op;
  const unsigned width = blockDim.x < warp ? blockDim.x : warp, lane = threadIdx.x % width;
  const auto other = [&](W value, unsigned offset) {
    const W from = behind ? __shfl_down_sync(all, value, offset, width)
                          : __shfl_up_sync(all, value, offset, width);
    return (behind ? lane + offset < width : lane >= offset) ? from : identity;
  };
  for (unsigned offset = 1; offset < width; offset *= 2) own = op(own, other(own, offset));
  const W of_lanes = other(own, 1);
  if (blockDim.x <= warp) return of_lanes;
  __shared__ W of_warp[warp];
  const unsigned mine = threadIdx.x / warp, warps = blockDim.x / warp;
  __syncthreads();  // an earlier call may still be reading
  if (lane == (behind ? 0 : warp - 1)) of_warp[mine] = own;
  __syncthreads();
  W of_warps = identity;
  for (unsigned w = behind ? mine + 1 : 0; w < (behind ? warps : mine); ++w)
    of_warps = op(of_warps, of_warp[w]);
  return op(of_warps, of_lanes);
}

/// Threads of a row that hold `each` of its n elements, and rows of a block: as many as share a
/// warp, and some warps; or one.
inline dim3 row_of_threads(int64_t n, int64_t each) {
  constexpr unsigned together = 128;
  unsigned threads = 1;
  while (threads * each < n) threads *= 2;
  return dim3(threads, threads <= 32 ? together / threads : 1);
}

}  // namespace bs::cuda
