#include <bs/kernels/cuda/norm/group_norm_rows.h>
#include <bs/kernels/group_norm.h>
#include <bs/kernels/reduce.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/norm/channel_norm.cuh>

#include <algorithm>
#include <limits>

namespace bs::cuda {

namespace {

using device::Raw;
using device::wide;

constexpr int warp = 32;
constexpr int most_warps = 16;  ///< of a block

/// dy where a ReLU let through, whose results have these signs, else zeros.
template <class T, int N>
__device__ Raw<T, N> passed(const Raw<T, N>& dy, const wide<T> (&signs)[N]) {
  wide<T> v[N];
  device::widen_pack<T, N>(dy, v);
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] = signs[j] > 0 ? v[j] : wide<T>(0);
  const auto pack = device::narrow_pack<T, N>(v);
  return reinterpret_cast<const Raw<T, N>&>(pack);
}

/// Groups of planes, whose warps have a channel, or a part of one, each.
template <class T>
struct GroupGradients {
  using W = wide<T>;
  const T *x, *dy, *y;  ///< y null where x tells a ReLU's signs, or there is none
  T *dx, *dresidual;
  const W *mean, *rstd;
  ChannelVector<T> weight, bias;
  bool relu;
  W* sums;  ///< of each image's channels: of dz, then of dz h
  unsigned sets, of_group, packs;
  Divisor groups;  ///< of an image
  int log_warps;   ///< of a channel
  W count;         ///< elements of a group

  /// dy, less what y tells that the ReLU stopped.
  template <int N>
  __device__ Raw<T, N> slope(int64_t at) const {
    const Raw<T, N> raw = reinterpret_cast<const Raw<T, N>*>(dy)[at];
    if (!y) return raw;
    W sign[N];
    device::widen_pack<T, N>(reinterpret_cast<const Raw<T, N>*>(y)[at], sign);
    return passed<T, N>(raw, sign);
  }
};

/// The sums of all channels of this thread's group, times their weights. The first thread of each
/// channel leaves its own.
template <class T, class W>
__device__ Two<W> merge_channels(const GroupGradients<T>& g, Two<W> sum, unsigned set) {
  __shared__ Two<W> of_warps[most_warps];
#pragma unroll
  for (int offset = warp / 2; offset > 0; offset /= 2)
    sum = sum + Two<W>{__shfl_xor_sync(0xffffffffU, sum.a, offset),
                       __shfl_xor_sync(0xffffffffU, sum.b, offset)};
  Two<W>* const mine = of_warps + threadIdx.z * blockDim.y;
  if (threadIdx.x == 0) mine[threadIdx.y] = sum;
  __syncthreads();
  const unsigned warps = 1U << g.log_warps;
  const unsigned first = (set - g.groups.divide(set) * g.groups.number) * g.of_group;
  Two<W> all{};
  for (unsigned c = 0; c < g.of_group; ++c) {
    Two<W> one{};
    for (unsigned w = 0; w < warps; ++w) one = one + mine[c * warps + w];
    const W weight = g.weight.at(first + c, 1);
    all = all + Two<W>{weight * one.a, weight * one.b};
    if (threadIdx.x > 0 || threadIdx.y != c * warps || set >= g.sets) continue;
    g.sums[set * g.of_group + c] = one.a;
    g.sums[(g.sets + set) * g.of_group + c] = one.b;
  }
  return all;
}

/// With h = (x - mean) rstd: dx = rstd (weight dz - (sum of weight dz + h sum of weight dz h) /
/// count), of a group that is read once.
template <class T, int N, int held>
__global__ void __launch_bounds__(most_warps* warp)
    group_norm_backward_kernel(const __grid_constant__ GroupGradients<T> g) {
  using W = wide<T>;
  const unsigned set = blockIdx.x * blockDim.z + threadIdx.z;
  const unsigned some = min(set, g.sets - 1);  // where there is none
  const unsigned channel = threadIdx.y >> g.log_warps;
  const unsigned part = threadIdx.y & ((1U << g.log_warps) - 1);
  const int64_t plane = int64_t{some * g.of_group + channel} * g.packs;
  const auto pack = [&](int k) {
    return ((static_cast<unsigned>(k) << g.log_warps) + part) * warp + threadIdx.x;
  };
  Raw<T, N> x[held], dz[held];
#pragma unroll
  for (int k = 0; k < held; ++k) {
    if (pack(k) >= g.packs) continue;
    x[k] = reinterpret_cast<const Raw<T, N>*>(g.x)[plane + pack(k)];
    dz[k] = g.template slope<N>(plane + pack(k));
  }
  const W mean = g.mean[some], rstd = g.rstd[some];
  const unsigned first = (some - g.groups.divide(some) * g.groups.number) * g.of_group;
  const W scale = rstd * g.weight.at(first + channel, 1);
  if (g.relu && !g.y) {
    const W shift = g.bias.at(first + channel, 0);
#pragma unroll
    for (int k = 0; k < held; ++k) {
      if (pack(k) >= g.packs) continue;
      W z[N];
      device::widen_pack<T, N>(x[k], z);
#pragma unroll
      for (int j = 0; j < N; ++j) z[j] = (z[j] - mean) * scale + shift;
      dz[k] = passed<T, N>(dz[k], z);
    }
  }
  const auto for_each = [&](auto&& f) {
#pragma unroll
    for (int k = 0; k < held; ++k) {
      if (pack(k) >= g.packs) continue;
      W v[N], slope[N];
      device::widen_pack<T, N>(x[k], v);
      device::widen_pack<T, N>(dz[k], slope);
      f(k, v, slope);
    }
  };
  Two<W> sum{};
  for_each([&](int, const W(&v)[N], const W(&slope)[N]) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      sum.a += slope[j];
      sum.b += slope[j] * (v[j] - mean);
    }
  });
  sum.b *= rstd;
  sum = merge_channels(g, sum, set);
  if (set >= g.sets) return;
  const W offset = -rstd * (sum.a / g.count), factor = -rstd * (rstd * (sum.b / g.count));
  for_each([&](int k, W(&v)[N], const W(&slope)[N]) {
    if (g.dresidual) reinterpret_cast<Raw<T, N>*>(g.dresidual)[plane + pack(k)] = dz[k];
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = slope[j] * scale + offset + factor * (v[j] - mean);
    store_pack<N>(g.dx + (plane + pack(k)) * N, v);
  });
}

/// Calls f with packs of a lane for planes of so many, and the logarithm of a channel's warps: four
/// where there are warps enough, or up to eight. Says whether such a group fits a block.
template <class F>
bool visit_held_packs(unsigned packs, unsigned channels, F&& f) {
  constexpr unsigned usual = 4, most = 8;
  for (const unsigned held : {usual, most})
    for (int log_warps = 0; channels << log_warps <= most_warps; ++log_warps) {
      const unsigned each = static_cast<unsigned>(ceil_div(packs, int64_t{warp} << log_warps));
      if (each > held) continue;
      if (each == 1) {
        f(std::integral_constant<int, 1>{}, log_warps);
      } else if (each == 2) {
        f(std::integral_constant<int, 2>{}, log_warps);
      } else if (each <= usual) {
        f(std::integral_constant<int, usual>{}, log_warps);
      } else {
        f(std::integral_constant<int, most>{}, log_warps);
      }
      return true;
    }
  return false;
}

/// Where groups are planes that a block holds; says whether they are.
template <class T>
bool planes_backward(const ChannelSlots& slots, const ChannelNorm& norm,
                     const ChannelGradient& gradient, const Tensor& channel_sums, const Tensor& dx,
                     const Tensor& dresidual, Stream stream) {
  using D = device_type<T>;
  using W = wide<D>;
  constexpr int N = device::pack_size<D>;
  const int64_t packs = slots.n / N;
  const bool planes = slots.inner == 1 && slots.neighbours > 0 && slots.n % N == 0;
  if (!planes || std::max(packs, slots.slots()) > std::numeric_limits<int32_t>::max() ||
      slots.neighbours > most_warps || !aligned16(norm.x, gradient.dy, gradient.y, dx, dresidual))
    return false;
  const int64_t images = slots.slots() / slots.channels;
  const Tensor sums = Tensor::empty({2, images, slots.channels}, dtype_of<W>, dx.device());
  GroupGradients<D> g{pointer<T>(norm.x),
                      pointer<T>(gradient.dy),
                      maybe<T>(gradient.y),
                      pointer<T>(dx),
                      maybe<T>(dresidual),
                      pointer<W>(norm.mean),
                      pointer<W>(norm.rstd),
                      ChannelVector<D>(norm.weight),
                      ChannelVector<D>(norm.bias),
                      norm.relu,
                      pointer<W>(sums),
                      static_cast<unsigned>(slots.sets()),
                      static_cast<unsigned>(slots.neighbours),
                      static_cast<unsigned>(packs),
                      Divisor(slots.channels / slots.neighbours),
                      0,
                      static_cast<W>(gradient.count)};
  const bool done = visit_held_packs(
      g.packs, g.of_group, [&]<int held>(std::integral_constant<int, held>, int log_warps) {
        constexpr unsigned enough = 4;
        g.log_warps = log_warps;
        const unsigned warps = g.of_group << log_warps, groups = std::max(1U, enough / warps);
        group_norm_backward_kernel<D, N, held>
            <<<grid_of("group_norm_backward", ceil_div(g.sets, groups)), dim3(warp, warps, groups),
               0, native(stream)>>>(g);
        BS_CUDA_CHECK_LAUNCH("group_norm_backward");
      });
  if (done) sum(sums, channel_sums, 1, stream);
  return done;
}

}  // namespace

void group_norm_backward(const ChannelSlots& slots, const ChannelNorm& norm,
                         const ChannelGradient& gradient, const Tensor& channel_sums,
                         const Tensor& dx, const Tensor& dresidual, Stream stream) {
  const bool done = visit_floating("group_norm_backward", dx.dtype(), [&]<class T>(Type<T>) {
    return planes_backward<T>(slots, norm, gradient, channel_sums, dx, dresidual, stream);
  });
  if (done || group_norm_rows_backward(slots, norm, gradient, channel_sums, dx, dresidual, stream))
    return;
  channel_norm_sums(slots, norm, gradient, channel_sums, stream);
  channel_norm_backward(slots, norm, gradient, dx, dresidual, stream);
}

}  // namespace bs::cuda
