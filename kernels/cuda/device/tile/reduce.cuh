#pragma once
// Reductions over a warp and over a block, result in every thread.

namespace bs::cuda::device {

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

template <class T, class Op>
__device__ inline T warp_reduce(T value, Op op) {
  for (int offset = 16; offset > 0; offset /= 2)
    value = op(value, __shfl_xor_sync(0xffffffffU, value, offset));
  return value;
}

/// blockDim.x must be a multiple of 32; every thread calls and gets the result.
template <class T, class Op>
__device__ inline T block_reduce(T value, Op op, T identity) {
  __shared__ T partial[32];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warps = blockDim.x / 32;
  value = warp_reduce(value, op);
  if (warps == 1) return value;
  __syncthreads();  // an earlier call may still be reading `partial`
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  return warp_reduce(lane < warps ? partial[lane] : identity, op);
}

}  // namespace bs::cuda::device
