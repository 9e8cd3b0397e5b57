#include <bs/kernels/nonzero.h>
#include <bs/lib/cuda/launch.h>

#include <thrust/iterator/counting_iterator.h>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_select.cuh>

namespace bs::cuda {

namespace {

struct IsTrue {
  __device__ int64_t operator()(uint8_t byte) const { return byte != 0 ? 1 : 0; }
};
struct Plus {
  __device__ int64_t operator()(int64_t a, int64_t b) const { return a + b; }
};

const uint8_t* flags(const Tensor& x) { return static_cast<const uint8_t*>(x.data()); }

/// Calls f(space, bytes) to learn the bytes that it needs, and again with as many.
template <class F>
void with_space(Device device, const F& f) {
  size_t bytes = 0;
  BS_CUDA_CHECK(f(nullptr, bytes));
  const Tensor space = Tensor::empty({static_cast<int64_t>(bytes)}, u8, device);
  BS_CUDA_CHECK(f(space.data(), bytes));
}

}  // namespace

void count_nonzero(const Tensor& x, const Tensor& count, Stream stream) {
  with_space(x.device(), [&](void* space, size_t& bytes) {
    return cub::DeviceReduce::TransformReduce(space, bytes, flags(x), count.data<int64_t>(),
                                              x.numel(), Plus{}, IsTrue{}, int64_t{0},
                                              native(stream));
  });
}

void nonzero(const Tensor& x, const Tensor& positions, Stream stream) {
  const Tensor count = Tensor::empty({1}, i64, x.device());
  with_space(x.device(), [&](void* space, size_t& bytes) {
    return cub::DeviceSelect::FlaggedIf(space, bytes, thrust::counting_iterator<int64_t>(0),
                                        flags(x), positions.data<int64_t>(), count.data<int64_t>(),
                                        x.numel(), IsTrue{}, native(stream));
  });
}

}  // namespace bs::cuda
