#include <bs/kernels/nonzero.h>
#include <bs/lib/cuda/launch.h>

#include <thrust/iterator/counting_iterator.h>
#include <cub/device/device_select.cuh>

namespace bs::cuda {

void nonzero(const Tensor& x, const Tensor& positions, const Tensor& count, Stream stream) {
  const auto run = [&](void* space, size_t& bytes) {
    BS_CUDA_CHECK(cub::DeviceSelect::Flagged(space, bytes, thrust::counting_iterator<int64_t>(0),
                                             x.data<bool>(), positions.data<int64_t>(),
                                             count.data<int64_t>(), x.numel(), native(stream)));
  };
  size_t bytes = 0;
  run(nullptr, bytes);
  const Tensor space = Tensor::empty({static_cast<int64_t>(bytes)}, u8, x.device());
  run(space.data(), bytes);
}

}  // namespace bs::cuda
