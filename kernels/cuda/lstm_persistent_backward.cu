#include <bs/kernels/cuda/lstm_config.h>
#include <bs/kernels/cuda/lstm_persistent.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/lstm_persistent_backward.cuh>

namespace bs::cuda {

namespace {

using device::PersistentLstmBackward;
using device::PersistentShape;

/// Directions side by side, by blockIdx.y.
template <class T>
struct Directions {
  PersistentLstmBackward<T> at[2];
};

template <class T, int KS, int MT>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(PersistentShape::threads, 1)
    persistent_backward_kernel(const __grid_constant__ Directions<T> d) {
  device::lstm_persistent_backward<T, KS, MT>(d.at[blockIdx.y]);
}

/// All CTAs of a cooperative launch run at once, which waiting for each other presumes.
template <class T, int KS, int MT>
void launch(const Directions<T>& d, int count, Stream stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(128 * KS / PersistentShape::cells, static_cast<unsigned>(count));
  config.blockDim = dim3(PersistentShape::threads);
  config.stream = native(stream);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  BS_CUDA_CHECK(cudaLaunchKernelEx(&config, persistent_backward_kernel<T, KS, MT>, d));
}

template <class T, int KS>
void launch(const Directions<T>& d, int count, Stream stream) {
  if (d.at[0].batch <= 16) return launch<T, KS, 1>(d, count, stream);
  launch<T, KS, 2>(d, count, stream);
}

template <class T>
void launch(const Directions<T>& d, int count, int64_t cells, Stream stream) {
  switch (cells) {
    case 128:
      return launch<T, 1>(d, count, stream);
    case 256:
      return launch<T, 2>(d, count, stream);
    case 512:
      return launch<T, 4>(d, count, stream);
    case 768:
      return launch<T, 6>(d, count, stream);
    default:
      return launch<T, 8>(d, count, stream);
  }
}

template <class T>
void run(std::span<const LSTMBackwardSteps> directions, Stream stream) {
  using D = device_type<T>;
  const LSTMSteps& first = directions.front().forward;
  const int64_t rows = first.batch() <= 16 ? 16 : 32;
  const int64_t exchange = 2 * rows * 4 * first.cells() * static_cast<int64_t>(sizeof(D));
  const int64_t counters = 2 * PersistentShape::warps * PersistentShape::counter_step *
                           static_cast<int64_t>(sizeof(unsigned));
  const auto count = static_cast<int64_t>(directions.size());
  const Tensor memory = Tensor::empty({count * (exchange + counters)}, u8, stream.device());
  BS_CUDA_CHECK(cudaMemsetAsync(memory.data(), 0, memory.bytes(), native(stream)));
  Directions<D> all{};
  for (size_t i = 0; i < directions.size(); ++i) {
    const LSTMBackwardSteps& s = directions[i];
    auto* own = memory.data<uint8_t>() + static_cast<int64_t>(i) * (exchange + counters);
    all.at[i] = {pointer<T>(s.forward.gates),
                 s.forward.c.data<float>(),
                 pointer<T>(s.forward.hh),
                 s.dy.defined() ? pointer<T>(s.dy) : nullptr,
                 s.dcells.defined() ? s.dcells.data<float>() : nullptr,
                 s.dh.data<float>(),
                 s.dc.data<float>(),
                 pointer<T>(s.dgates),
                 reinterpret_cast<D*>(own),
                 reinterpret_cast<unsigned*>(own + exchange),
                 static_cast<int>(s.forward.steps()),
                 static_cast<int>(s.forward.batch()),
                 s.forward.reverse,
                 s.forward.rule.hard};
  }
  launch<D>(all, static_cast<int>(count), first.cells(), stream);
}

}  // namespace

void lstm_persistent_backward(std::span<const LSTMBackwardSteps> directions, Stream stream) {
  const LSTMSteps& first = directions.front().forward;
  const int multiprocessors = device_properties(stream.device()).multiprocessors;
  const auto together =
      static_cast<size_t>(lstm_persistent_directions(first.cells(), multiprocessors));
  for (size_t i = 0; i < directions.size(); i += together) {
    const auto some = directions.subspan(i, std::min(together, directions.size() - i));
    if (first.gates.dtype() == f16) {
      run<half>(some, stream);
    } else {
      run<bfloat16>(some, stream);
    }
  }
}

}  // namespace bs::cuda
