#pragma once
// The kernel of optimisers whose rule looks at one element at a time.
#include <bs/kernels/parameter.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/optim/tensor_table.cuh>

#include <utility>

namespace bs::cuda {

inline constexpr int step_threads = 256;

/// Steps N neighbours from element i on. The last `optional` tensors of state may not be there;
/// they are zero in each step.
template <class T, int N, class Step, size_t... k>
__device__ void step_pack(const SteppedParameter<T, Step::states>& p, int64_t i, const Step& step,
                          device::wide<T> clip, std::index_sequence<k...>) {
  using Narrow = device::Pack<T, N>;
  using Full = device::Pack<device::wide<T>, N>;
  constexpr int required = static_cast<int>(Step::states - Step::optional);
  const auto g = *reinterpret_cast<const Narrow*>(p.gradient + i);
  // One more than there are, since an array of none is no array.
  Full state[Step::states + 1] = {};
  [[maybe_unused]] const auto has = [&](int s) { return s < required || p.moment[s] != nullptr; };
  ((has(k) ? void(state[k] = *reinterpret_cast<const Full*>(p.moment[k] + i)) : void()), ...);
  Narrow value;
  Full w;
  p.template weights<N>(i, w);
#pragma unroll
  for (int n = 0; n < N; ++n) {
    step(w.at[n], clip * device::widen(g.at[n]), state[k].at[n]...);
    value.at[n] = device::narrow<T>(w.at[n]);
  }
  *reinterpret_cast<Narrow*>(p.value + i) = value;
  ((has(k) ? void(*reinterpret_cast<Full*>(p.moment[k] + i) = state[k]) : void()), ...);
  if (p.master) *reinterpret_cast<Full*>(p.master + i) = w;
}

template <class T, class Step>
__global__ void __launch_bounds__(step_threads)
    step_elements_kernel(const __grid_constant__ TensorTable<Step::states + 3> table, Step step,
                         const double* numbers, ClipView clip_by) {
  if (clip_by.skips()) return;
  step.set(numbers);
  constexpr std::make_index_sequence<Step::states> all;
  const Chunk c = table.chunk(blockIdx.x);
  const SteppedParameter<T, Step::states> p(table, c.tensor);
  const auto clip = static_cast<device::wide<T>>(clip_by.factor());
  int64_t at = c.begin;
  if (p.takes_packs()) {
    const int64_t packs_end = c.begin + (c.end - c.begin) / 4 * 4;
    for (int64_t i = c.begin + 4 * threadIdx.x; i < packs_end; i += 4 * step_threads)
      step_pack<T, 4>(p, i, step, clip, all);
    at = packs_end;
  }
  for (int64_t i = at + threadIdx.x; i < c.end; i += step_threads)
    step_pack<T, 1>(p, i, step, clip, all);
}

/// Puts a parameter and its state into a table.
template <class Table, class Parameter>
void add_to_table(Table& table, const Parameter& p) {
  constexpr int states = static_cast<int>(Parameter::states.size());
  std::array<void*, states + 3> addresses;
  addresses[0] = p.value.data();
  addresses[1] = p.gradient.data();
  for (int i = 0; i < states; ++i)
    addresses[static_cast<size_t>(2 + i)] =
        address_of(p.*Parameter::states[static_cast<size_t>(i)]);
  addresses[states + 2] = address_of(p.master);
  table.add(addresses, p.value.numel());
}

/// One step of all parameters. Rule<W> is made of `given` for the type W that is computed in, takes
/// other numbers by set(), and steps one element with its state by operator().
template <template <class> class Rule, class Parameter, class... Given>
void step_elements(const char* op, std::span<const Parameter> parameters, const GradientClip& clip,
                   const Tensor& numbers, Stream stream, const Given&... given) {
  const ClipView clip_by = {static_cast<const double*>(address_of(clip.norm)), clip.max_norm,
                            clip.skip_nonfinite, 1 / clip.scale};
  constexpr size_t states = Rule<float>::states;
  using Table = TensorTable<states + 3>;
  for (DType dtype : floating_dtypes)
    visit_floating(op, dtype, [&]<class T>(Type<T>) {
      using D = device_type<T>;
      for_each_table<states + 3>(
          parameters, [=](const Parameter& p) { return p.value.dtype() == dtype; },
          add_to_table<Table, Parameter>,
          [&](const Table& table) {
            const Rule<device::wide<D>> rule(given...);
            step_elements_kernel<D><<<table.chunks(), step_threads, 0, native(stream)>>>(
                table, rule, numbers_of(numbers), clip_by);
            BS_CUDA_CHECK_LAUNCH(op);
          });
    });
}

}  // namespace bs::cuda
