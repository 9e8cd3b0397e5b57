#include <bs/kernels/cuda/norm/group_norm_rows.h>
#include <bs/kernels/group_norm.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/norm/channel_norm.cuh>

#include <limits>

namespace bs::cuda {

namespace {

using device::wide;

/// Groups of planes that lie one behind the other: `rows` rows of n elements.
template <class T>
struct PlaneGroups {
  using W = wide<T>;
  const T *x, *residual;
  T* y;
  W *means, *rstds;
  ChannelVector<T> weight, bias;
  int64_t rows, n;
  Divisor pixels, groups;
  unsigned channels;  ///< of a group
  W eps;
  bool relu;

  /// The channel of element `at` of a row.
  __device__ unsigned channel(unsigned row, unsigned at) const {
    return (row - groups.divide(row) * groups.number) * channels + pixels.divide(at);
  }
};

/// A group a row, held in registers: it is read once.
template <class T, class Row>
__global__ void __launch_bounds__(most_row_threads)
    group_norm_kernel(const __grid_constant__ PlaneGroups<T> g) {
  using W = wide<T>;
  constexpr int N = Row::N;
  const int64_t mine = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const bool inside = mine < g.rows;  // lanes outside take part in what the warp reduces
  const int64_t row = inside ? mine : 0;
  Row in;
  in.load(g.x + row * g.n, g.n);
  const auto for_each = [&](auto&& f) {
    Row::for_each_pack(g.n, [&](int k, unsigned p) {
      W v[N];
      in.get(k, p, v);
      f(p, v);
    });
  };
  W sum = 0;
  for_each([&](unsigned, W(&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) sum += v[i];
  });
  W mean = row_sum(sum) / g.n;
  W deviations = 0, squares = 0;
  for_each([&](unsigned, W(&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      deviations += v[i] - mean;
      squares += (v[i] - mean) * (v[i] - mean);
    }
  });
  if constexpr (corrects_mean<T>) {
    const auto moments = corrected_moments(mean, deviations, squares, g.n);
    mean = moments.mean;
    squares = moments.squares;
  } else {
    squares = row_sum(squares);
  }
  const W rstd = 1 / sqrt(squares / g.n + g.eps);
  if (!inside) return;
  if (threadIdx.x == 0) {
    g.means[row] = mean;
    g.rstds[row] = rstd;
  }
  for_each([&](unsigned p, W(&v)[N]) {
    const unsigned channel = g.channel(static_cast<unsigned>(row), p * N);
    const W scale = rstd * g.weight.at(channel, 1), shift = g.bias.at(channel, 0);
    W other[N];
    get_over(g.residual ? g.residual + row * g.n : nullptr, p, W(0), other);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      v[i] = (v[i] - mean) * scale + shift + other[i];
      if (g.relu) v[i] = v[i] < 0 ? W(0) : v[i];
    }
    store_pack(g.y + row * g.n, p, v);
  });
}

/// Normalises planes whose groups fit into the registers of a block, and says whether they are
/// such.
template <class T>
bool norm_planes(const ChannelSlots& slots, const ChannelStatistics& to, const ChannelNorm& norm,
                 const Tensor& y, Stream stream) {
  using D = device_type<T>;
  using W = wide<D>;
  constexpr int64_t limit = std::numeric_limits<int32_t>::max();
  const int64_t n = slots.count(), rows = slots.sets();
  if (slots.inner > 1 || n > limit || rows > limit) return false;
  const PlaneGroups<D> groups{pointer<T>(norm.x),
                              maybe<T>(norm.residual),
                              pointer<T>(y),
                              pointer<W>(to.mean),
                              pointer<W>(to.rstd),
                              ChannelVector<D>(norm.weight),
                              ChannelVector<D>(norm.bias),
                              rows,
                              n,
                              Divisor(slots.n),
                              Divisor(slots.channels / slots.neighbours),
                              static_cast<unsigned>(slots.neighbours),
                              static_cast<W>(to.eps),
                              norm.relu};
  const bool whole = slots.n % device::pack_size<D> == 0;  // packs of one channel
  const bool aligned = whole && aligned16(norm.x, norm.residual, y);
  bool held = false;
  const auto run = [&]<class Row>(Type<Row>, dim3 block) {
    if constexpr (Row::is_held) {
      held = true;
      group_norm_kernel<D, Row>
          <<<grid_of("group_norm", ceil_div(rows, block.y)), block, 0, native(stream)>>>(groups);
      BS_CUDA_CHECK_LAUNCH("group_norm");
    }
  };
  if (!visit_rows_of_lanes<T>(aligned, rows, n, y.device(), run))
    visit_short_row<T, 128>(aligned, rows, n, y.device(), run);
  return held;
}

}  // namespace

void group_norm(const ChannelSlots& slots, const ChannelStatistics& to, const ChannelNorm& norm,
                const Tensor& y, Stream stream) {
  const bool done = visit_floating("group_norm", y.dtype(), [&]<class T>(Type<T>) {
    return norm_planes<T>(slots, to, norm, y, stream);
  });
  if (done || group_norm_rows(slots, to, norm, y, stream)) return;
  channel_moments(slots, norm.x, to, stream);
  channel_norm(slots, norm, y, stream);
}

}  // namespace bs::cuda
