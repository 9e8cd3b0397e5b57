#include <bs/kernels/adamw_step.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/optim/tensor_table.cuh>

namespace bs::cuda {

namespace {

using device::narrow;
using device::wide;
using device::widen;

constexpr int threads = 256;

/// Its moments are the first and the second.
template <class T>
using Parameter = SteppedParameter<T, 2>;

/// Steps N neighbours from element i on.
template <class T, int N>
__device__ void step_pack(const Parameter<T>& p, int64_t i, const AdamWStep<wide<T>>& step,
                          wide<T> clip) {
  using W = wide<T>;
  using Narrow = device::Pack<T, N>;
  using Full = device::Pack<W, N>;
  const auto g = *reinterpret_cast<const Narrow*>(p.gradient + i);
  auto m = *reinterpret_cast<const Full*>(p.moment[0] + i);
  auto v = *reinterpret_cast<const Full*>(p.moment[1] + i);
  Narrow value;
  Full w;
  p.template weights<N>(i, w);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    step(w.at[k], clip * widen(g.at[k]), m.at[k], v.at[k]);
    value.at[k] = narrow<T>(w.at[k]);
  }
  *reinterpret_cast<Narrow*>(p.value + i) = value;
  *reinterpret_cast<Full*>(p.moment[0] + i) = m;
  *reinterpret_cast<Full*>(p.moment[1] + i) = v;
  if (p.master) *reinterpret_cast<Full*>(p.master + i) = w;
}

template <class T>
__global__ void __launch_bounds__(threads)
    adamw_kernel(const __grid_constant__ TensorTable<5> table, AdamWStep<wide<T>> step,
                 const double* numbers, ClipView clip_by) {
  using W = wide<T>;
  if (clip_by.skips()) return;
  step.set(numbers);
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

void adamw(std::span<const AdamWParameter> parameters, int64_t step, const AdamWOptions& options,
           const GradientClip& clip, const Tensor& numbers, Stream stream) {
  const ClipView clip_by = {static_cast<const double*>(address_of(clip.norm)), clip.max_norm,
                            clip.skip_nonfinite, 1 / clip.scale};
  for (DType dtype : floating_dtypes)
    visit_floating("adamw", dtype, [&]<class T>(Type<T>) {
      for_each_table<5>(
          parameters, [=](const AdamWParameter& p) { return p.value.dtype() == dtype; },
          [](TensorTable<5>& table, const AdamWParameter& p) {
            table.add({p.value.data(), p.gradient.data(), p.first_moment.data(),
                       p.second_moment.data(), address_of(p.master)},
                      p.value.numel());
          },
          [&](const TensorTable<5>& table) {
            adamw_kernel<device_type<T>><<<table.chunks(), threads, 0, native(stream)>>>(
                table, {step, options}, numbers_of(numbers), clip_by);
            BS_CUDA_CHECK_LAUNCH("adamw");
          });
    });
}

}  // namespace bs::cuda
