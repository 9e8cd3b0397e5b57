#include <bs/kernels/lamb_step.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/reduce.cuh>
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

/// Neighbours of one parameter: four, or one in the first place.
template <class T>
struct Elements {
  using W = wide<T>;
  device::Pack<T, 4> gradient;
  device::Pack<W, 4> first, second, weight;
};
constexpr int at_once = 2;

/// Steps the moments; squares[2 chunk] and the next are the sums of w^2 and u^2 over a chunk.
template <class T>
__global__ void __launch_bounds__(threads)
    lamb_moments_kernel(const __grid_constant__ TensorTable<5> table, LambStep<wide<T>> step,
                        const double* numbers, ClipView clip_by, double* squares) {
  using W = wide<T>;
  if (clip_by.skips()) return;
  step.set(numbers);
  const Chunk c = table.chunk(blockIdx.x);
  const Parameter<T> p(table, c.tensor);
  const auto clip = static_cast<W>(clip_by.factor());
  double w_squares = 0, u_squares = 0;
  Elements<T> elements[at_once];
  for_each_pack<threads, at_once>(
      c, p.takes_packs(),
      [&]<int N>(std::integral_constant<int, N>, int u, int64_t i) {
        Elements<T>& e = elements[u];
        get<N>(p.gradient + i, e.gradient);
        get<N>(p.moment[0] + i, e.first);
        get<N>(p.moment[1] + i, e.second);
        p.template weights<N>(i, e.weight);
      },
      [&]<int N>(std::integral_constant<int, N>, int u, int64_t i) {
        Elements<T>& e = elements[u];
#pragma unroll
        for (int k = 0; k < N; ++k) {
          W m = e.first.at[k], v = e.second.at[k];
          step.moments(clip * widen(e.gradient.at[k]), m, v);
          e.first.at[k] = m;
          e.second.at[k] = v;
          const W w = e.weight.at[k];
          const auto direction = static_cast<double>(step.direction(w, m, v));
          w_squares += static_cast<double>(w) * static_cast<double>(w);
          u_squares += direction * direction;
        }
        put<N>(p.moment[0] + i, e.first);
        put<N>(p.moment[1] + i, e.second);
      });
  w_squares = device::block_reduce(w_squares, device::Sum{}, 0.0);
  u_squares = device::block_reduce(u_squares, device::Sum{}, 0.0);
  if (threadIdx.x == 0) {
    squares[2 * blockIdx.x] = w_squares;
    squares[2 * blockIdx.x + 1] = u_squares;
  }
}

/// One block a tensor: length[tensor] of its chunks' squares.
template <class T>
__global__ void __launch_bounds__(threads)
    lamb_length_kernel(const __grid_constant__ TensorTable<5> table, LambStep<wide<T>> step,
                       const double* numbers, const double* squares, wide<T>* length) {
  step.set(numbers);
  const int tensor = static_cast<int>(blockIdx.x);
  double w_squares = 0, u_squares = 0;
  for (int i = table.first_chunk[tensor] + static_cast<int>(threadIdx.x);
       i < table.first_chunk[tensor + 1]; i += threads) {
    w_squares += squares[2 * i];
    u_squares += squares[2 * i + 1];
  }
  w_squares = device::block_reduce(w_squares, device::Sum{}, 0.0);
  u_squares = device::block_reduce(u_squares, device::Sum{}, 0.0);
  if (threadIdx.x == 0) length[tensor] = step.length(w_squares, u_squares);
}

template <class T>
__global__ void __launch_bounds__(threads)
    lamb_weights_kernel(const __grid_constant__ TensorTable<5> table, LambStep<wide<T>> step,
                        const double* numbers, ClipView clip_by, const wide<T>* length) {
  using W = wide<T>;
  if (clip_by.skips()) return;
  step.set(numbers);
  const Chunk c = table.chunk(blockIdx.x);
  const Parameter<T> p(table, c.tensor);
  const W scale = length[c.tensor];
  Elements<T> elements[at_once];
  for_each_pack<threads, at_once>(
      c, p.takes_packs(),
      [&]<int N>(std::integral_constant<int, N>, int u, int64_t i) {
        Elements<T>& e = elements[u];
        get<N>(p.moment[0] + i, e.first);
        get<N>(p.moment[1] + i, e.second);
        p.template weights<N>(i, e.weight);
      },
      [&]<int N>(std::integral_constant<int, N>, int u, int64_t i) {
        Elements<T>& e = elements[u];
        device::Pack<T, 4> value;
#pragma unroll
        for (int k = 0; k < N; ++k) {
          W& w = e.weight.at[k];
          w -= scale * step.direction(w, e.first.at[k], e.second.at[k]);
          value.at[k] = narrow<T>(w);
        }
        put<N>(p.value + i, value);
        if (p.master) put<N>(p.master + i, e.weight);
      });
}

template <class T>
void step_table(const TensorTable<5>& table, const LambStep<wide<T>>& step, const double* numbers,
                const ClipView& clip_by, Device device, Stream stream) {
  const Tensor squares = Tensor::empty({2 * int64_t{table.chunks()}}, f64, device);
  const Tensor length =
      Tensor::empty({table.groups}, sizeof(wide<T>) == sizeof(double) ? f64 : f32, device);
  auto* scale = static_cast<wide<T>*>(length.data());
  lamb_moments_kernel<T><<<table.chunks(), threads, 0, native(stream)>>>(
      table, step, numbers, clip_by, pointer<double>(squares));
  BS_CUDA_CHECK_LAUNCH("lamb");
  lamb_length_kernel<T><<<static_cast<unsigned>(table.groups), threads, 0, native(stream)>>>(
      table, step, numbers, pointer<double>(squares), scale);
  BS_CUDA_CHECK_LAUNCH("lamb");
  lamb_weights_kernel<T>
      <<<table.chunks(), threads, 0, native(stream)>>>(table, step, numbers, clip_by, scale);
  BS_CUDA_CHECK_LAUNCH("lamb");
}

}  // namespace

void lamb(std::span<const LambParameter> parameters, int64_t step, const LambOptions& options,
          const GradientClip& clip, const Tensor& numbers, Stream stream) {
  const ClipView clip_by = {static_cast<const double*>(address_of(clip.norm)), clip.max_norm,
                            clip.skip_nonfinite, 1 / clip.scale};
  for (DType dtype : floating_dtypes)
    visit_floating("lamb", dtype, [&]<class T>(Type<T>) {
      using D = device_type<T>;
      for_each_table<5>(
          parameters, [=](const LambParameter& p) { return p.value.dtype() == dtype; },
          [](TensorTable<5>& table, const LambParameter& p) {
            table.add({p.value.data(), p.gradient.data(), p.first_moment.data(),
                       p.second_moment.data(), address_of(p.master)},
                      p.value.numel());
          },
          [&](const TensorTable<5>& table) {
            step_table<D>(table, LambStep<wide<D>>(step, options), numbers_of(numbers), clip_by,
                          parameters.front().value.device(), stream);
          });
    });
}

}  // namespace bs::cuda
