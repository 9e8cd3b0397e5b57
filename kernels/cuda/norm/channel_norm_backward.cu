#include <bs/kernels/cuda/norm/channel_norm.cuh>

namespace bs::cuda {

namespace {

using device::Raw;
using device::wide;

template <class W>
struct Sums {
  W plain = 0, centred = 0;
  __device__ void merge(const Sums& other) {
    plain += other.plain;
    centred += other.centred;
  }
};

/// Packs of x, dy and y on their way.
template <class T, int N>
struct Loaded {
  Raw<T, N> x, dy, y;

  __device__ void load(const T* x_, const T* dy_, const T* y_, int64_t at) {
    if (x_) x = *reinterpret_cast<const Raw<T, N>*>(x_ + at);
    dy = *reinterpret_cast<const Raw<T, N>*>(dy_ + at);
    if (y_) y = *reinterpret_cast<const Raw<T, N>*>(y_ + at);
  }
  /// x, and dz: dy where the ReLU let through, which y tells, or x without it.
  template <class Affine>
  __device__ void widen(const Affine& affine, const T* has_x, const T* has_y, bool relu,
                        wide<T> (&v)[N], wide<T> (&dz)[N]) const {
    using W = wide<T>;
    if (has_x) device::widen_pack<T, N>(x, v);
    device::widen_pack<T, N>(dy, dz);
    if (!relu) return;
    W sign[N];
    if (has_y) {
      device::widen_pack<T, N>(y, sign);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) sign[k] = affine.z(v[k], k);
    }
#pragma unroll
    for (int k = 0; k < N; ++k) dz[k] = sign[k] > 0 ? dz[k] : W(0);
  }
};

/// Calls f(place, x, dz) for the packs of a share, two of which are on their way at once.
template <class T, int N, bool rows, int K, class F>
__device__ void for_each_loaded(const ChannelShare<N, rows>& share,
                                const ChannelAffine<T, K>& affine, const T* x, const T* dy,
                                const T* y, bool relu, F&& f) {
  constexpr unsigned ahead = 2;
  for (unsigned i = 0; i < share.count; i += ahead) {
    Loaded<T, N> loaded[ahead];
#pragma unroll
    for (unsigned u = 0; u < ahead; ++u)
      if (i + u < share.count) loaded[u].load(x, dy, y, share.first + (i + u) * share.step);
#pragma unroll
    for (unsigned u = 0; u < ahead; ++u) {
      if (i + u >= share.count) break;
      wide<T> v[N] = {}, dz[N];
      loaded[u].widen(affine, x, y, relu, v, dz);
      f(share.first + (i + u) * share.step, v, dz);
    }
  }
}

/// Leaves sums of dz and dz (x - mean) of each slot and part, [outer, parts, inner].
template <class T, int N, bool rows>
__global__ void __launch_bounds__(channel_threads, 2)
    sums_kernel(const T* x, const T* dy, const T* y, const __grid_constant__ ChannelGrid g,
                const __grid_constant__ ChannelVectors<T> vectors, bool relu, Sums<wide<T>>* sums) {
  using W = wide<T>;
  constexpr int K = rows ? N : 1;
  const ChannelShare<N, rows> share(g);
  const ChannelAffine<T, K> affine(g, vectors, share.slot);
  Sums<W> of[K];
  for_each_loaded<T>(share, affine, x, dy, y, relu, [&](int64_t, const W(&v)[N], W(&dz)[N]) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int at = rows ? k : 0;
      of[at].plain += dz[k];
      of[at].centred += dz[k] * (v[k] - affine.mean[at]);
    }
  });
  let_next_launch_begin();
  merge_channel_states<rows>(of);
  if (!share.any || (rows ? threadIdx.y : threadIdx.x) != 0) return;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const unsigned slot = share.slot + k, o = slot / g.inner;
    sums[(int64_t{o} * g.parts + share.part) * g.inner + (slot - o * g.inner)] = of[k];
  }
}

/// Sums of the slots of each channel, or of each set times the weights. Where sets are channels
/// both are made at once.
template <class T>
struct MergedSums {
  using W = wide<T>;
  T* of_channels = nullptr;       ///< [2, results], or null
  W* of_channels_wide = nullptr;  ///< the same where that is their dtype
  W* of_sets = nullptr;           ///< [2, results], or null

  __device__ bool has_channels() const { return of_channels || of_channels_wide; }
  __device__ void put(unsigned result, unsigned results, const Sums<W>& all,
                      const ChannelVector<T>& weight) const {
    if (of_channels) {
      of_channels[result] = device::narrow<T>(all.plain);
      of_channels[results + result] = device::narrow<T>(all.centred);
    }
    if (of_channels_wide) {
      of_channels_wide[result] = all.plain;
      of_channels_wide[results + result] = all.centred;
    }
    if (of_sets) {
      const W factor = has_channels() ? weight.at(result, 1) : W(1);
      of_sets[result] = factor * all.plain;
      of_sets[results + result] = factor * all.centred;
    }
  }
};

template <class T>
__global__ void __launch_bounds__(merge_threads)
    merge_sums_kernel(const Sums<wide<T>>* sums, const __grid_constant__ ChannelLists lists,
                      const __grid_constant__ ChannelGrid g,
                      const __grid_constant__ ChannelVectors<T> vectors,
                      const __grid_constant__ MergedSums<T> to) {
  using W = wide<T>;
  const bool weighs = !to.has_channels();
  wait_for_previous_launch();
  const auto all =
      merge_lists<Sums<W>>(lists, [&](Sums<W>& state, unsigned slot, unsigned, int64_t at) {
        const Sums<W> part = sums[at];
        const W factor = weighs ? vectors.weight.at(g.channel_of(slot), 1) : W(1);
        state.merge({factor * part.plain, factor * part.centred * vectors.rstd[g.set_of(slot)]});
      });
  const unsigned results = lists.results_of_block(), result = blockIdx.x * results + threadIdx.x;
  if (threadIdx.x < results && result < lists.results)
    to.put(result, lists.results, all, vectors.weight);
}

/// The sums that dx takes, [2, sets], or null.
template <class T>
struct SetSums {
  using W = wide<T>;
  const W* data;
  unsigned sets;
  W count;
  bool weighs;

  SetSums(const ChannelSlots& slots, const ChannelGradient& gradient)
      : data(maybe<W>(gradient.sums)),
        sets(static_cast<unsigned>(slots.sets())),
        count(static_cast<W>(gradient.count)),
        weighs(gradient.weighs) {}
  /// The offset and the slope of a slot.
  __device__ void get(unsigned set, W weight, W rstd, W& offset, W& slope) const {
    const W factor = weighs ? weight : W(1);
    offset = -rstd * (factor * data[set] / count);
    slope = -rstd * (rstd * (factor * data[sets + set] / count));
  }
};

/// dx = scale dz + offset + slope (x - mean); without sums only the first.
template <class T, int N, bool rows>
__global__ void __launch_bounds__(channel_threads, 2)
    channel_norm_backward_kernel(const T* x, const T* dy, const T* y, T* dx, T* dresidual,
                                 const __grid_constant__ ChannelGrid g,
                                 const __grid_constant__ ChannelVectors<T> vectors, bool relu,
                                 const __grid_constant__ SetSums<T> sums) {
  using W = wide<T>;
  constexpr int K = rows ? N : 1;
  const ChannelShare<N, rows> share(g);
  if (share.count == 0) return;
  const ChannelAffine<T, K> affine(g, vectors, share.slot);
  W offset[K] = {}, slope[K] = {};
  if (sums.data) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const unsigned slot = share.slot + k, set = g.set_of(slot);
      const W weight = sums.weighs ? vectors.weight.at(g.channel_of(slot), 1) : W(1);
      sums.get(set, weight, vectors.rstd[set], offset[k], slope[k]);
    }
  }
  for_each_loaded<T>(share, affine, x, dy, y, relu, [&](int64_t at, const W(&v)[N], W(&dz)[N]) {
    if (dresidual) store_pack<N>(dresidual + at, dz);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int of = rows ? k : 0;
      dz[k] *= affine.scale[of];
      if (sums.data) dz[k] += offset[of] + slope[of] * (v[k] - affine.mean[of]);
    }
    store_pack<N>(dx + at, dz);
  });
}

/// What dx takes of K slots. Of elements of 16 bits the mean's part is in the offset already: that
/// is as exact as in ChannelAffine.
template <class T, int K>
struct DxTerms {
  using W = wide<T>;
  static constexpr bool is_joined = ChannelAffine<T, K>::is_joined;
  static constexpr int numbers = is_joined ? 3 : 4;  ///< of a slot
  W scale[K], slope[K], offset[K], mean[K];

  __device__ void make(int k, unsigned slot, const ChannelGrid& g, const ChannelVectors<T>& vectors,
                       const SetSums<T>& sums) {
    const unsigned set = g.set_of(slot);
    const W weight = vectors.weight.at(g.channel_of(slot), 1), rstd = vectors.rstd[set];
    mean[k] = vectors.mean[set];
    scale[k] = weight * rstd;
    sums.get(set, weight, rstd, offset[k], slope[k]);
    if (is_joined) offset[k] -= slope[k] * mean[k];
  }
  /// To and from shared memory, where each number has `columns` of them side by side.
  __device__ void give(W* shared, unsigned columns) const {
    shared[0] = scale[0], shared[columns] = slope[0], shared[2 * columns] = offset[0];
    if constexpr (!is_joined) shared[3 * columns] = mean[0];
  }
  __device__ void take(const W* shared, unsigned columns) {
    using Pack = device::Pack<W, K>;
    const auto get = [&](int number) {
      return *reinterpret_cast<const Pack*>(shared + number * columns);
    };
    const Pack packs[] = {get(0), get(1), get(2), get(numbers - 1)};
#pragma unroll
    for (int k = 0; k < K; ++k) {
      scale[k] = packs[0].at[k], slope[k] = packs[1].at[k];
      offset[k] = packs[2].at[k], mean[k] = packs[3].at[k];
    }
  }
  __device__ W dx(W x, W dz, int i) const {
    const int k = K == 1 ? 0 : i;
    if (is_joined) return dz * scale[k] + (offset[k] + slope[k] * x);
    return dz * scale[k] + (offset[k] + slope[k] * (x - mean[k]));
  }
};

/// The terms of a thread's slots. Of rows, whose slots the lines of a block share, each thread
/// makes those of one.
template <class T, int N, bool rows>
__device__ DxTerms<T, rows ? N : 1> terms_of(const ChannelShare<N, rows>& share,
                                             const ChannelGrid& g, const ChannelVectors<T>& vectors,
                                             const SetSums<T>& sums) {
  using W = wide<T>;
  DxTerms<T, rows ? N : 1> terms;
  if constexpr (rows) {
    extern __shared__ uint4 memory[];
    auto* const shared = reinterpret_cast<W*>(memory);
    const unsigned columns = blockDim.x * N, first = blockIdx.y * columns;
    const unsigned before = blockIdx.x / g.parts * g.inner;
    for (unsigned c = threadIdx.y * blockDim.x + threadIdx.x; c < columns && first + c < g.inner;
         c += blockDim.x * blockDim.y) {
      DxTerms<T, 1> one;
      one.make(0, before + first + c, g, vectors, sums);
      one.give(shared + c, columns);
    }
    __syncthreads();
    if (share.count > 0) terms.take(shared + threadIdx.x * N, columns);
  } else {
    if (share.count > 0) terms.make(0, share.slot, g, vectors, sums);
  }
  return terms;
}

/// Blocks on a multiprocessor, as many as leave all in registers.
template <class T, bool rows>
constexpr int dx_blocks = sizeof(wide<T>) == 8 ? 2
                          : !rows              ? 5
                          : sizeof(T) == 2     ? 3
                                               : 4;

/// The same with sums, and without a ReLU or a residual. Some packs are always on their way: the
/// first before a thread finds out about its channels, others before the one in hand is stored.
template <class T, int N, bool rows>
__global__ void __launch_bounds__(channel_threads, dx_blocks<T, rows>)
    channel_norm_dx_kernel(const T* x, const T* dy, T* dx, const __grid_constant__ ChannelGrid g,
                           const __grid_constant__ ChannelVectors<T> vectors,
                           const __grid_constant__ SetSums<T> sums) {
  using W = wide<T>;
  using Pack = Raw<T, N>;
  constexpr unsigned ahead = 2;
  const ChannelShare<N, rows> share(g);
  Pack of_x[ahead], of_dy[ahead];
  const auto load = [&](unsigned u, unsigned i) {
    if (i >= share.count) return;
    const int64_t at = share.first + i * share.step;
    of_x[u] = *reinterpret_cast<const Pack*>(x + at);
    of_dy[u] = *reinterpret_cast<const Pack*>(dy + at);
  };
#pragma unroll
  for (unsigned u = 0; u < ahead; ++u) load(u, u);
  const auto terms = terms_of<T, N, rows>(share, g, vectors, sums);
  for (unsigned i = 0; i < share.count; i += ahead) {
#pragma unroll
    for (unsigned u = 0; u < ahead; ++u) {
      if (i + u >= share.count) break;
      W v[N], dz[N];
      device::widen_pack<T, N>(of_x[u], v);
      device::widen_pack<T, N>(of_dy[u], dz);
      load(u, i + u + ahead);
#pragma unroll
      for (int k = 0; k < N; ++k) dz[k] = terms.dx(v[k], dz[k], k);
      store_pack<N>(dx + share.first + (i + u) * share.step, dz);
    }
  }
}

template <class T>
void merge_sums(const Tensor& states, const ChannelSlots& slots, const ChannelGrid& g,
                const ChannelNorm& norm, const MergedSums<T>& to, Stream stream) {
  const bool of_channels = to.of_channels || to.of_channels_wide;
  const ChannelLists lists = channel_lists(slots, g, of_channels);
  const auto blocks = static_cast<unsigned>(ceil_div(lists.results, lists.results_of_block()));
  launch_early(merge_sums_kernel<T>, blocks, merge_threads, 0, stream,
               reinterpret_cast<const Sums<wide<T>>*>(states.data()), lists, g,
               ChannelVectors<T>(norm), to);
  BS_CUDA_CHECK_LAUNCH("channel_norm_sums");
}

}  // namespace

void channel_norm_sums(const ChannelSlots& slots, const ChannelNorm& norm,
                       const ChannelGradient& gradient, const Tensor& channel_sums, Stream stream) {
  const Tensor& x = norm.x;
  const auto run = [&]<class T, int N, bool rows>(Type<T>, std::integral_constant<int, N>,
                                                  std::bool_constant<rows>) {
    using D = device_type<T>;
    using W = wide<D>;
    static const int most = channel_blocks(sums_kernel<D, N, rows>);
    const ChannelGrid g = channel_grid(slots, N, most, ChannelParts::merged, x.device());
    const Tensor states = Tensor::empty({slots.slots() * g.parts, 2}, dtype_of<W>, x.device());
    sums_kernel<D, N, rows><<<g.grid, g.block, 0, native(stream)>>>(
        pointer<T>(x), pointer<T>(gradient.dy), maybe<T>(gradient.y), g, ChannelVectors<D>(norm),
        norm.relu, reinterpret_cast<Sums<W>*>(states.data()));
    BS_CUDA_CHECK_LAUNCH("channel_norm_sums");
    const bool together = slots.neighbours == 0;
    W* const of_sets = maybe<W>(gradient.sums);
    MergedSums<D> to{.of_sets = together ? of_sets : nullptr};
    if (channel_sums.dtype() == dtype_of<W>) {
      to.of_channels_wide = pointer<W>(channel_sums);
    } else {
      to.of_channels = pointer<T>(channel_sums);
    }
    merge_sums<D>(states, slots, g, norm, to, stream);
    if (of_sets && !together) merge_sums<D>(states, slots, g, norm, {.of_sets = of_sets}, stream);
  };
  visit_channels("channel_norm_sums", slots, x.dtype(), aligned16(x, gradient.dy, gradient.y), run);
}

void channel_norm_backward(const ChannelSlots& slots, const ChannelNorm& norm,
                           const ChannelGradient& gradient, const Tensor& dx,
                           const Tensor& dresidual, Stream stream) {
  const auto run = [&]<class T, int N, bool rows>(Type<T>, std::integral_constant<int, N>,
                                                  std::bool_constant<rows>) {
    using D = device_type<T>;
    const SetSums<D> sums(slots, gradient);
    const auto grid = [&](int most) {
      return channel_grid(slots, N, most, ChannelParts::apart, dx.device());
    };
    if (sums.data && !norm.relu && !dresidual.defined()) {
      static const int most = channel_blocks_in_turns(channel_norm_dx_kernel<D, N, rows>);
      const ChannelGrid g = grid(most);
      const size_t shared =
          rows ? g.block.x * N * DxTerms<D, 1>::numbers * sizeof(wide<D>) : size_t{0};
      channel_norm_dx_kernel<D, N, rows><<<g.grid, g.block, shared, native(stream)>>>(
          pointer<T>(norm.x), pointer<T>(gradient.dy), pointer<T>(dx), g, ChannelVectors<D>(norm),
          sums);
    } else {
      static const int most = channel_blocks_in_turns(channel_norm_backward_kernel<D, N, rows>);
      const ChannelGrid g = grid(most);
      // x is of no account where statistics are constants, unless it tells the sign.
      const bool reads_x = sums.data || (norm.relu && !gradient.y.defined());
      channel_norm_backward_kernel<D, N, rows><<<g.grid, g.block, 0, native(stream)>>>(
          reads_x ? pointer<T>(norm.x) : nullptr, pointer<T>(gradient.dy), maybe<T>(gradient.y),
          pointer<T>(dx), maybe<T>(dresidual), g, ChannelVectors<D>(norm), norm.relu, sums);
    }
    BS_CUDA_CHECK_LAUNCH("channel_norm_backward");
  };
  visit_channels("channel_norm_backward", slots, dx.dtype(),
                 aligned16(norm.x, gradient.dy, gradient.y, dx, dresidual), run);
}

}  // namespace bs::cuda
