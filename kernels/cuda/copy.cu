#include <bs/kernels/copy.h>
#include <bs/kernels/strided.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/arithmetic.cuh>

namespace bs::cuda {

namespace {

template <class From, class To>
__device__ To convert(From value) {
  if constexpr (std::is_same_v<From, To>) {
    return value;
  } else if constexpr (std::is_same_v<To, __half> || std::is_same_v<To, __nv_bfloat16>) {
    return device::narrow<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<From, __half> || std::is_same_v<From, __nv_bfloat16>) {
    return static_cast<To>(device::widen(value));
  } else {
    return static_cast<To>(value);
  }
}

template <class From, class To>
__global__ void copy_kernel(const From* from, To* to, StridedLoop<2> loop, int64_t total) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < total; i += step) {
    int64_t rest = i;
    int64_t source = 0;
    int64_t target = 0;
    for (int axis = loop.rank - 1; axis >= 0; --axis) {
      const int64_t at = rest % loop.shape[axis];
      rest /= loop.shape[axis];
      source += at * loop.strides[0][axis];
      target += at * loop.strides[1][axis];
    }
    to[target] = convert<From, To>(from[source]);
  }
}

}  // namespace

void copy(const Tensor& from, const Tensor& to, Stream stream) {
  constexpr int threads = 256;
  const StridedLoop<2> loop(from.shape(), {from.strides(), to.strides()});
  const int64_t total = loop.numel();
  visit_any(from.dtype(), [&]<class From>(Type<From>) {
    visit_any(to.dtype(), [&]<class To>(Type<To>) {
      copy_kernel<<<grid_size(total, threads, to.device()), threads, 0, native(stream)>>>(
          pointer<From>(from), pointer<To>(to), loop, total);
    });
  });
  BS_CUDA_CHECK_LAUNCH("copy");
}

}  // namespace bs::cuda
