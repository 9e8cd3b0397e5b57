#include <bs/kernels/cuda/norm/channel_norm.cuh>

namespace bs::cuda {

namespace {

using device::Raw;
using device::wide;

template <class W>
using Moments = MomentState<W>;

/// Leaves mean and squares of each slot and part in `means` and `squares` [outer, parts, inner].
template <class T, int N, bool rows>
__global__ void __launch_bounds__(channel_threads)
    moments_kernel(const T* x, const __grid_constant__ ChannelGrid g, wide<T>* means,
                   wide<T>* squares) {
  using W = wide<T>;
  constexpr int ahead = 4, K = rows ? N : 1;
  const ChannelShare<N, rows> share(g);
  Moments<W> of[K];
  W seen = 0;
  const T* from = x + share.first;
  for (unsigned i = 0; i < share.count; i += ahead) {
    Raw<T, N> raw[ahead];
#pragma unroll
    for (unsigned u = 0; u < ahead; ++u)
      if (i + u < share.count)
        raw[u] = *reinterpret_cast<const Raw<T, N>*>(from + (i + u) * share.step);
#pragma unroll
    for (unsigned u = 0; u < ahead; ++u) {
      if (i + u >= share.count) break;
      W v[N];
      device::widen_pack<T, N>(raw[u], v);
      if constexpr (rows) {
        seen += 1;
        const W part = device::reciprocal_of(seen);
#pragma unroll
        for (int k = 0; k < N; ++k) of[k].add(v[k], 0, part);
      } else {
        of[0].add_pack(v, 0);
      }
    }
  }
  let_next_launch_begin();
  merge_channel_states<rows>(of);
  if (!share.any || (rows ? threadIdx.y : threadIdx.x) != 0) return;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const unsigned slot = share.slot + k, o = slot / g.inner;
    const int64_t at = (int64_t{o} * g.parts + share.part) * g.inner + (slot - o * g.inner);
    means[at] = of[k].mean;
    squares[at] = of[k].squares;
  }
}

/// What is left of the statistics of each set, and the averages that they are added to.
template <class W>
struct Results {
  W *mean, *squares, *rstd;
  W *running_mean, *running_var;
  int64_t* batches;
  W eps, momentum;

  __device__ void put(unsigned set, const Moments<W>& all) const {
    if (mean) mean[set] = all.mean;
    if (squares) squares[set] = all.squares;
    if (rstd) rstd[set] = 1 / sqrt(all.squares / all.count + eps);
    // `batches` counts this one already.
    const W share = momentum < 0 ? 1 / static_cast<W>(*batches) : momentum;
    if (running_mean) running_mean[set] += share * (all.mean - running_mean[set]);
    if (running_var) running_var[set] += share * (all.squares / (all.count - 1) - running_var[set]);
  }
};

/// Counts a batch, before all else that its statistics are added to.
__global__ void count_batch_kernel(int64_t* batches) { ++*batches; }

template <class W>
__global__ void __launch_bounds__(merge_threads)
    merge_moments_kernel(const W* means, const W* squares,
                         const __grid_constant__ ChannelLists lists, int64_t n, int64_t length,
                         const __grid_constant__ Results<W> to) {
  wait_for_previous_launch();
  const auto all =
      merge_lists<Moments<W>>(lists, [&](Moments<W>& state, unsigned, unsigned part, int64_t at) {
        const int64_t left = n - part * length;
        state.merge({static_cast<W>(left < length ? left : length), means[at], squares[at]});
      });
  const unsigned results = lists.results_of_block(), set = blockIdx.x * results + threadIdx.x;
  if (threadIdx.x < results && set < lists.results) to.put(set, all);
}

/// Blocks on a multiprocessor, as many as leave all in registers.
template <class T, bool rows, bool adds>
constexpr int norm_blocks = sizeof(wide<T>) == 8 ? 2 : (rows ? 4 : 5) - (adds ? 1 : 0);

/// The first packs are on their way before a thread finds out about its channels.
template <class T, int N, bool rows, bool adds>
__global__ void __launch_bounds__(channel_threads, norm_blocks<T, rows, adds>)
    channel_norm_kernel(const T* x, const T* residual, T* y, const __grid_constant__ ChannelGrid g,
                        const __grid_constant__ ChannelVectors<T> vectors, bool relu) {
  using W = wide<T>;
  constexpr int ahead = adds ? 2 : 4;
  const ChannelShare<N, rows> share(g);
  Raw<T, N> raw[ahead], more[adds ? ahead : 1];
  const auto load = [&](unsigned i) {
#pragma unroll
    for (unsigned u = 0; u < ahead; ++u) {
      if (i + u >= share.count) continue;
      const int64_t at = share.first + (i + u) * share.step;
      raw[u] = *reinterpret_cast<const Raw<T, N>*>(x + at);
      if constexpr (adds) more[u] = *reinterpret_cast<const Raw<T, N>*>(residual + at);
    }
  };
  load(0);
  if (share.count == 0) return;
  wait_for_previous_launch();
  const ChannelAffine<T, rows ? N : 1> affine(g, vectors, share.slot);
  for (unsigned i = 0; i < share.count; i += ahead) {
    if (i > 0) load(i);
#pragma unroll
    for (unsigned u = 0; u < ahead; ++u) {
      if (i + u >= share.count) break;
      W v[N];
      device::widen_pack<T, N>(raw[u], v);
#pragma unroll
      for (int k = 0; k < N; ++k) v[k] = affine.z(v[k], k);
      if constexpr (adds) {
        W other[N];
        device::widen_pack<T, N>(more[u], other);
#pragma unroll
        for (int k = 0; k < N; ++k) v[k] += other[k];
      }
      if (relu) {
#pragma unroll
        for (int k = 0; k < N; ++k) v[k] = v[k] < 0 ? W(0) : v[k];
      }
      store_pack<N>(y + share.first + (i + u) * share.step, v);
    }
  }
}

/// K channels from `first` on, where vectors begin.
template <int K, class W>
__device__ device::Pack<W, K> load_channels(const W* from, unsigned first, W absent) {
  if (from) return *reinterpret_cast<const device::Pack<W, K>*>(from + first);
  device::Pack<W, K> all;
#pragma unroll
  for (int k = 0; k < K; ++k) all.at[k] = absent;
  return all;
}

constexpr int row_pack_threads = 128;

/// The same of rows that are a set a channel, of T that is computed in itself: a pack a thread,
/// which knows its channels by four vectors. Loads never wait for stores of earlier packs, as they
/// do in turns. Of 16 bits a pack has twice as many channels, and that costs more than it gains.
template <class T, int N, bool adds>
__global__ void __launch_bounds__(row_pack_threads)
    channel_rows_kernel(const T* x, const T* residual, T* y, Divisor row_packs, uint32_t count,
                        const __grid_constant__ ChannelVectors<T> vectors, bool relu) {
  using Pack = device::Pack<T, N>;
  const uint32_t i = blockIdx.x * row_pack_threads + threadIdx.x;
  if (i >= count) return;
  const int64_t at = int64_t{i} * N;
  Pack v = *reinterpret_cast<const Pack*>(x + at), more;
  if constexpr (adds) more = *reinterpret_cast<const Pack*>(residual + at);
  const unsigned channel = (i - row_packs.divide(i) * row_packs.number) * N;
  const auto vector = [&](const ChannelVector<T>& of, T absent) {
    return load_channels<N>(static_cast<const T*>(of.data), channel, absent);
  };
  const Pack weight = vector(vectors.weight, 1), bias = vector(vectors.bias, 0);
  wait_for_previous_launch();
  const Pack mean = load_channels<N>(vectors.mean, channel, T(0));
  const Pack rstd = load_channels<N>(vectors.rstd, channel, T(0));
#pragma unroll
  for (int k = 0; k < N; ++k) {
    v.at[k] = (v.at[k] - mean.at[k]) * (weight.at[k] * rstd.at[k]) + bias.at[k];
    if constexpr (adds) v.at[k] += more.at[k];
    if (relu) v.at[k] = v.at[k] < 0 ? T(0) : v.at[k];
  }
  *reinterpret_cast<Pack*>(y + at) = v;
}

/// Statistics that are given, in the dtype that they are read in.
template <class T>
__global__ void given_statistics_kernel(ChannelVector<T> mean, ChannelVector<T> var, wide<T> eps,
                                        wide<T>* means, wide<T>* rstds, unsigned channels) {
  let_next_launch_begin();
  const unsigned channel = blockIdx.x * blockDim.x + threadIdx.x;
  if (channel >= channels) return;
  means[channel] = mean.at(channel, 0);
  rstds[channel] = 1 / sqrt(var.at(channel, 0) + eps);
}

/// Whether a row is one set a channel, and vectors of channels begin where those of x do.
bool are_channel_rows(const ChannelSlots& slots, const ChannelNorm& norm) {
  return slots.outer == 1 && slots.neighbours == 0 && slots.inner == slots.channels &&
         norm.x.numel() < int64_t{1} << 31 &&
         aligned16(norm.weight, norm.bias, norm.mean, norm.rstd);
}

template <class T, bool adds>
void launch_channel_rows(int64_t channels, const ChannelNorm& norm, const Tensor& y, bool early,
                         Stream stream) {
  using D = device_type<T>;
  constexpr int N = device::pack_size<D>;
  const int64_t count = y.numel() / N;
  launch_waiting(channel_rows_kernel<D, N, adds>,
                 grid_of("channel_norm", ceil_div(count, row_pack_threads)), row_pack_threads, 0,
                 native(stream), early, pointer<T>(norm.x), maybe<T>(norm.residual), pointer<T>(y),
                 Divisor(channels / N), static_cast<uint32_t>(count), ChannelVectors<D>(norm),
                 norm.relu);
}

/// `early`: while the kernel before, which there is, makes the statistics.
void normalise(const ChannelSlots& slots, const ChannelNorm& norm, const Tensor& y, bool early,
               Stream stream) {
  const auto run = [&]<class T, int N, bool rows>(Type<T>, std::integral_constant<int, N>,
                                                  std::bool_constant<rows>) {
    using D = device_type<T>;
    const auto launch = [&]<bool adds>(std::bool_constant<adds>) {
      if constexpr (rows && N > 1 && std::is_same_v<D, wide<D>>)
        if (are_channel_rows(slots, norm))
          return launch_channel_rows<T, adds>(slots.channels, norm, y, early, stream);
      const auto kernel = channel_norm_kernel<D, N, rows, adds>;
      static const int most = channel_blocks_in_turns(kernel);
      const ChannelGrid g = channel_grid(slots, N, most, ChannelParts::apart, y.device());
      launch_waiting(kernel, g.grid, g.block, 0, native(stream), early, pointer<T>(norm.x),
                     maybe<T>(norm.residual), pointer<T>(y), g, ChannelVectors<D>(norm), norm.relu);
    };
    if (norm.residual.defined()) {
      launch(std::true_type{});
    } else {
      launch(std::false_type{});
    }
    BS_CUDA_CHECK_LAUNCH("channel_norm");
  };
  visit_channels("channel_norm", slots, y.dtype(), aligned16(norm.x, norm.residual, y), run);
}

}  // namespace

void channel_moments(const ChannelSlots& slots, const Tensor& x, const ChannelStatistics& to,
                     Stream stream) {
  if (to.batches.defined()) {
    count_batch_kernel<<<1, 1, 0, native(stream)>>>(to.batches.data<int64_t>());
    BS_CUDA_CHECK_LAUNCH("channel_moments");
  }
  visit_channels(
      "channel_moments", slots, x.dtype(), aligned16(x),
      [&]<class T, int N, bool rows>(Type<T>, std::integral_constant<int, N>,
                                     std::bool_constant<rows>) {
        using D = device_type<T>;
        using W = wide<D>;
        static const int most = channel_blocks(moments_kernel<D, N, rows>);
        const ChannelGrid g = channel_grid(slots, N, most, ChannelParts::merged, x.device());
        const Tensor states = Tensor::empty({2, slots.slots() * g.parts}, dtype_of<W>, x.device());
        W *means = pointer<W>(states), *squares = means + slots.slots() * g.parts;
        moments_kernel<D, N, rows>
            <<<g.grid, g.block, 0, native(stream)>>>(pointer<T>(x), g, means, squares);
        BS_CUDA_CHECK_LAUNCH("channel_moments");
        const Results<W> results{maybe<W>(to.mean),        maybe<W>(to.squares),
                                 maybe<W>(to.rstd),        maybe<W>(to.running_mean),
                                 maybe<W>(to.running_var), maybe<int64_t>(to.batches),
                                 static_cast<W>(to.eps),   static_cast<W>(to.momentum)};
        const ChannelLists lists = channel_lists(slots, g, false);
        const auto blocks =
            static_cast<unsigned>(ceil_div(lists.results, lists.results_of_block()));
        launch_early(merge_moments_kernel<W>, blocks, merge_threads, 0, stream, means, squares,
                     lists, g.n, g.length, results);
        BS_CUDA_CHECK_LAUNCH("channel_moments");
      });
}

void channel_norm(const ChannelSlots& slots, const ChannelNorm& norm, const Tensor& y,
                  Stream stream) {
  normalise(slots, norm, y, false, stream);
}

void channel_norm_by(const ChannelSlots& slots, const Tensor& mean, const Tensor& var, double eps,
                     const ChannelNorm& norm, const Tensor& y, Stream stream) {
  visit_floating("channel_norm_by", y.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    const auto blocks = static_cast<unsigned>(ceil_div(slots.channels, channel_threads));
    given_statistics_kernel<D><<<blocks, channel_threads, 0, native(stream)>>>(
        ChannelVector<D>(mean), ChannelVector<D>(var), static_cast<W>(eps), pointer<W>(norm.mean),
        pointer<W>(norm.rstd), static_cast<unsigned>(slots.channels));
    BS_CUDA_CHECK_LAUNCH("channel_norm_by");
  });
  if (y.numel() > 0) normalise(slots, norm, y, true, stream);
}

}  // namespace bs::cuda
