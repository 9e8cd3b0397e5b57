#include <bs/kernels/cuda/lstm_config.h>
#include <bs/kernels/cuda/lstm_persistent.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/lstm_persistent.cuh>

namespace bs::cuda {

namespace {

using device::PersistentLstm;
using device::PersistentShape;

/// Directions side by side, by blockIdx.y.
template <class T>
struct Directions {
  PersistentLstm<T> at[2];
};

template <class T, int KS, int NT, int NG>
__global__ void __launch_bounds__(PersistentShape::threads, 1)
    persistent_kernel(const __grid_constant__ Directions<T> d) {
  device::lstm_persistent<T, KS, NT, NG>(d.at[blockIdx.y]);
}

/// All CTAs of a cooperative launch run at once, which waiting for each other presumes.
template <class T, int KS, int NT, int NG>
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
  BS_CUDA_CHECK(cudaLaunchKernelEx(&config, persistent_kernel<T, KS, NT, NG>, d));
}

template <class T, int KS>
void launch(const Directions<T>& d, int count, Stream stream) {
  switch (lstm_persistent_tiles(d.at[0].batch)) {
    case 2:
      return launch<T, KS, 2, 1>(d, count, stream);
    case 4:
      return launch<T, KS, 4, 1>(d, count, stream);
    default:
      return launch<T, KS, 4, 2>(d, count, stream);
  }
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
void run(std::span<const LSTMSteps> directions, Stream stream) {
  using D = device_type<T>;
  const LSTMSteps& first = directions.front();
  const int64_t rows = 8 * int64_t{lstm_persistent_tiles(static_cast<int>(first.batch()))};
  const int64_t exchange = 2 * rows * first.cells() * static_cast<int64_t>(sizeof(D));
  const int64_t counters = PersistentShape::warps * PersistentShape::counter_step *
                           static_cast<int64_t>(sizeof(unsigned));
  const auto count = static_cast<int64_t>(directions.size());
  const Tensor memory = Tensor::empty({count * (exchange + counters)}, u8, stream.device());
  BS_CUDA_CHECK(cudaMemsetAsync(memory.data(), 0, memory.bytes(), native(stream)));
  Directions<D> all{};
  for (size_t i = 0; i < directions.size(); ++i) {
    const LSTMSteps& s = directions[i];
    auto* own = memory.data<uint8_t>() + static_cast<int64_t>(i) * (exchange + counters);
    all.at[i] = {pointer<T>(s.gates),
                 pointer<T>(s.h),
                 s.c.data<float>(),
                 pointer<T>(s.hh),
                 reinterpret_cast<D*>(own),
                 reinterpret_cast<unsigned*>(own + exchange),
                 static_cast<int>(s.steps()),
                 static_cast<int>(s.batch()),
                 s.reverse,
                 s.rule.hard};
  }
  launch<D>(all, static_cast<int>(count), first.cells(), stream);
}

}  // namespace

void lstm_persistent(std::span<const LSTMSteps> directions, Stream stream) {
  const int multiprocessors = device_properties(stream.device()).multiprocessors;
  const auto together =
      static_cast<size_t>(lstm_persistent_directions(directions.front().cells(), multiprocessors));
  for (size_t i = 0; i < directions.size(); i += together) {
    const auto some = directions.subspan(i, std::min(together, directions.size() - i));
    if (some.front().gates.dtype() == f16) {
      run<half>(some, stream);
    } else {
      run<bfloat16>(some, stream);
    }
  }
}

}  // namespace bs::cuda
