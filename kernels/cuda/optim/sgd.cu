#include <bs/kernels/sgd_step.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/optim/tensor_table.cuh>

namespace bs::cuda {

namespace {

using device::narrow;
using device::wide;
using device::widen;

constexpr int threads = 256;

/// Its moment is the momentum.
template <class T>
using Parameter = SteppedParameter<T, 1>;

/// Steps N neighbours from element i on.
template <class T, int N>
__device__ void step_pack(const Parameter<T>& p, int64_t i, const SgdStep<wide<T>>& step,
                          wide<T> clip) {
  using Narrow = device::Pack<T, N>;
  using Full = device::Pack<wide<T>, N>;
  const auto g = *reinterpret_cast<const Narrow*>(p.gradient + i);
  Narrow value;
  Full w, b;
  p.template weights<N>(i, w);
  if (p.moment[0]) b = *reinterpret_cast<const Full*>(p.moment[0] + i);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const wide<T> slope = clip * widen(g.at[k]);
    if (p.moment[0]) {
      step(w.at[k], slope, b.at[k]);
    } else {
      step(w.at[k], slope);
    }
    value.at[k] = narrow<T>(w.at[k]);
  }
  *reinterpret_cast<Narrow*>(p.value + i) = value;
  if (p.moment[0]) *reinterpret_cast<Full*>(p.moment[0] + i) = b;
  if (p.master) *reinterpret_cast<Full*>(p.master + i) = w;
}

template <class T>
__global__ void __launch_bounds__(threads)
    sgd_kernel(const __grid_constant__ TensorTable<4> table, SgdStep<wide<T>> step,
               const double* rate, ClipView clip_by) {
  using W = wide<T>;
  if (clip_by.skips()) return;
  step.set(rate);
  const Chunk c = table.chunk(blockIdx.x);
  const Parameter<T> p(table, c.tensor);
  const auto clip = static_cast<W>(clip_by.factor());
  int64_t at = c.begin;
  if (p.takes_packs()) {
    const int64_t packs_end = c.begin + (c.end - c.begin) / 4 * 4;
    for (int64_t i = c.begin + 4 * threadIdx.x; i < packs_end; i += 4 * threads)
      step_pack<T, 4>(p, i, step, clip);
    at = packs_end;
  }
  for (int64_t i = at + threadIdx.x; i < c.end; i += threads) step_pack<T, 1>(p, i, step, clip);
}

}  // namespace

void sgd(std::span<const SgdParameter> parameters, const SgdOptions& options,
         const GradientClip& clip, const Tensor& rate, Stream stream) {
  const ClipView clip_by = {static_cast<const double*>(address_of(clip.norm)), clip.max_norm,
                            clip.skip_nonfinite, 1 / clip.scale};
  for (DType dtype : floating_dtypes)
    visit_floating("sgd", dtype, [&]<class T>(Type<T>) {
      using W = wide<device_type<T>>;
      for_each_table<4>(
          parameters, [=](const SgdParameter& p) { return p.value.dtype() == dtype; },
          [](TensorTable<4>& table, const SgdParameter& p) {
            table.add(
                {p.value.data(), p.gradient.data(), address_of(p.momentum), address_of(p.master)},
                p.value.numel());
          },
          [&](const TensorTable<4>& table) {
            sgd_kernel<device_type<T>><<<table.chunks(), threads, 0, native(stream)>>>(
                table, SgdStep<W>(options), numbers_of(rate), clip_by);
            BS_CUDA_CHECK_LAUNCH("sgd");
          });
    });
}

}  // namespace bs::cuda
