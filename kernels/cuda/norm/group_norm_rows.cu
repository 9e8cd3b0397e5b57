#include <bs/kernels/cuda/norm/group_norm_rows.h>
#include <bs/kernels/reduce.h>
#include <bs/lib/cuda/grid.h>
#include <bs/lib/cuda/occupancy.h>
#include <bs/kernels/cuda/device/ptx/async_copy.cuh>
#include <bs/kernels/cuda/norm/channel_norm.cuh>

#include <limits>
#include <numeric>

namespace bs::cuda {

namespace {

using device::Raw;
using device::wide;

constexpr unsigned most_threads = 256;
constexpr size_t most_sum_bytes = size_t{8} * most_threads * sizeof(float);

/// The cut of images into blocks: `width` neighbouring channels of all pixels. A block has a thread
/// for each pack of `lines` pixels; thread c < width knows of channel c besides.
struct RowBlocks {
  unsigned pixels = 0, channels = 0, of_group = 0;
  unsigned width = 0;   ///< 0 where there is no such cut
  Divisor slices = {};  ///< of an image

  dim3 threads(int N) const { return {width / N, most_threads / (width / N)}; }
  __host__ __device__ unsigned packs(int N) const { return pixels * (width / N); }
  /// Bytes that sums need.
  size_t sum_bytes(int N, size_t element) const {
    const dim3 block = threads(N);
    return size_t{block.y} * width * element;
  }
};

/// Blocks that hold `tensors` images of elements of so many bytes: three on a multiprocessor, or
/// two of narrow ones. Each has at least 32 bytes of a pixel, and there are enough for all.
RowBlocks row_blocks(const ChannelSlots& s, int N, size_t tensors, size_t element, Device device) {
  RowBlocks b{.pixels = static_cast<unsigned>(s.n),
              .channels = static_cast<unsigned>(s.channels),
              .of_group = static_cast<unsigned>(s.neighbours)};
  const auto step = static_cast<size_t>(std::lcm<int64_t>(s.neighbours, N));
  const auto channels = static_cast<size_t>(s.channels), pixels = static_cast<size_t>(s.n);
  const DeviceProperties& gpu = device_properties(device);
  const auto busy = static_cast<size_t>(gpu.multiprocessors) * 2;
  const auto shared = static_cast<size_t>(gpu.shared_memory_optin);
  const size_t most_width = std::min<size_t>(most_threads, channels);
  const auto fits = [&](size_t width, size_t blocks) {
    const size_t bytes = pixels * width * element * tensors + most_sum_bytes;
    return channels % width == 0 && width * element >= 32 && bytes <= shared / blocks &&
           pixels * width / static_cast<size_t>(N) >= most_threads &&
           static_cast<size_t>(s.outer) * (channels / width) >= busy;
  };
  size_t width = 0;
  for (size_t w = step; w <= most_width; w += step)
    if (fits(w, 3) || (width == 0 && fits(w, 2))) width = w;
  b.width = static_cast<unsigned>(width);
  b.slices = Divisor(width == 0 ? 1 : s.channels / static_cast<int64_t>(width));
  return b;
}

/// Where a block and a thread of it are.
template <class T>
struct RowPlace {
  static constexpr int N = device::pack_size<T>;
  using W = wide<T>;
  unsigned image, first;  ///< the block's, and its first channel
  unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  unsigned width, of_group;

  __device__ explicit RowPlace(const RowBlocks& b)
      : image(b.slices.divide(blockIdx.x)),
        first((blockIdx.x - image * b.slices.number) * b.width),
        width(b.width),
        of_group(b.of_group) {}

  __device__ unsigned channel() const { return first + threadIdx.x * N; }
  /// Calls f(held pack, element of the image's tensors) for the packs of this thread.
  template <class F>
  __device__ void for_each(const RowBlocks& b, F&& f) const {
    const int64_t from = int64_t{image} * b.pixels * b.channels + channel();
#pragma unroll 4
    for (unsigned line = threadIdx.y; line < b.pixels; line += blockDim.y)
      f(line * blockDim.x + threadIdx.x, from + int64_t{line} * b.channels);
  }

  /// The sum of all threads' numbers of channel c, for thread c.
  __device__ W channel_sum(const W (&mine)[N], W* shared) const {
    const unsigned lines = blockDim.y, parts = blockDim.x * lines / width;
    const unsigned part = thread / width, c = thread - part * width;
    __syncthreads();  // an earlier call may still be reading
#pragma unroll
    for (int k = 0; k < N; ++k) shared[threadIdx.y * width + threadIdx.x * N + k] = mine[k];
    __syncthreads();
    W sum = 0;
    if (part < parts)
      for (unsigned line = part; line < lines; line += parts) sum += shared[line * width + c];
    __syncthreads();
    if (part < parts) shared[thread] = sum;
    __syncthreads();
    sum = 0;
    if (thread < width)
      for (unsigned p = 0; p < parts; ++p) sum += shared[p * width + c];
    return sum;
  }
  /// The sum of a number of each channel over the channels of a group, for the thread of each.
  __device__ W group_sum(W of_channel, W* shared) const {
    leave(of_channel, shared);
    W sum = 0;
    const unsigned begin = thread - thread % of_group;
    if (thread < width)
      for (unsigned i = 0; i < of_group; ++i) sum += shared[begin + i];
    return sum;
  }
  /// What the threads of channels have, for those of their packs.
  __device__ void spread(W of_channel, W* shared, W (&to)[N]) const {
    leave(of_channel, shared);
#pragma unroll
    for (int k = 0; k < N; ++k) to[k] = shared[threadIdx.x * N + k];
  }

 private:
  __device__ void leave(W of_channel, W* shared) const {
    __syncthreads();
    if (thread < width) shared[thread] = of_channel;
    __syncthreads();
  }
};

template <class T>
struct GroupRows {
  using W = wide<T>;
  const T *x, *residual;
  T* y;
  W *means, *rstds;
  ChannelVector<T> weight, bias;
  RowBlocks blocks;
  unsigned images;
  W count, eps;
  bool relu;
};

/// Threads read what they brought themselves, so nothing waits for the whole.
template <class T>
__global__ void __launch_bounds__(most_threads, 3)
    group_norm_rows_kernel(const __grid_constant__ GroupRows<T> g) {
  using W = wide<T>;
  constexpr int N = device::pack_size<T>;
  extern __shared__ uint4 memory[];
  const RowBlocks& b = g.blocks;
  const RowPlace<T> at(b);
  W* const shared = reinterpret_cast<W*>(memory + b.packs(N));
  const auto* const held = reinterpret_cast<const Raw<T, N>*>(memory);
  at.for_each(b, [&](unsigned p, int64_t i) { device::copy_async_16(memory + p, g.x + i, true); });
  device::commit_copies();
  device::wait_copies<0>();
  W mean[N] = {}, scale[N] = {}, shift[N], v[N];
  at.for_each(b, [&](unsigned p, int64_t) {
    device::widen_pack<T, N>(held[p], v);
#pragma unroll
    for (int k = 0; k < N; ++k) scale[k] += v[k];
  });
  const W centre = at.group_sum(at.channel_sum(scale, shared), shared) / g.count;
  at.spread(centre, shared, mean);
#pragma unroll
  for (int k = 0; k < N; ++k) scale[k] = 0;
  at.for_each(b, [&](unsigned p, int64_t) {
    device::widen_pack<T, N>(held[p], v);
#pragma unroll
    for (int k = 0; k < N; ++k) scale[k] += (v[k] - mean[k]) * (v[k] - mean[k]);
  });
  const W squares = at.group_sum(at.channel_sum(scale, shared), shared);
  const W deviation = 1 / sqrt(squares / g.count + g.eps);
  if (at.thread < b.width && at.thread % b.of_group == 0) {
    const unsigned set = (at.image * b.channels + at.first + at.thread) / b.of_group;
    g.means[set] = centre;
    g.rstds[set] = deviation;
  }
  at.spread(deviation, shared, scale);
  W weight[N];
  g.weight.load(at.channel(), W(1), weight);
  g.bias.load(at.channel(), W(0), shift);
#pragma unroll
  for (int k = 0; k < N; ++k) scale[k] *= weight[k];
  at.for_each(b, [&](unsigned p, int64_t i) {
    W other[N];
    get_over(g.residual ? g.residual + i : nullptr, 0, W(0), other);
    device::widen_pack<T, N>(held[p], v);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      v[k] = (v[k] - mean[k]) * scale[k] + shift[k] + other[k];
      if (g.relu) v[k] = v[k] < 0 ? W(0) : v[k];
    }
    store_pack<N>(g.y + i, v);
  });
}

template <class T>
struct GroupRowGradients {
  using W = wide<T>;
  const T *x, *dy, *y;  ///< y null where x tells a ReLU's signs, or there is none
  T *dx, *dresidual;
  const W *mean, *rstd;
  ChannelVector<T> weight, bias;
  W* sums = nullptr;  ///< of each image's channels: of dz, then of dz h
  RowBlocks blocks;
  unsigned images;
  W count;
  bool relu;
};

/// dx as group_norm_backward_kernel has it. dz takes the place of dy.
template <class T>
__global__ void __launch_bounds__(most_threads, 3)
    group_norm_rows_backward_kernel(const __grid_constant__ GroupRowGradients<T> g) {
  using W = wide<T>;
  constexpr int N = device::pack_size<T>;
  extern __shared__ uint4 memory[];
  const RowBlocks& b = g.blocks;
  const RowPlace<T> at(b);
  const auto* const held = reinterpret_cast<const Raw<T, N>*>(memory);
  auto* const slope = reinterpret_cast<Raw<T, N>*>(memory + b.packs(N));
  W* const shared = reinterpret_cast<W*>(memory + 2 * b.packs(N));
  at.for_each(b, [&](unsigned p, int64_t i) {
    device::copy_async_16(memory + p, g.x + i, true);
    device::copy_async_16(slope + p, g.dy + i, true);
  });
  device::commit_copies();
  W mean[N], scale[N], shift[N], rstd[N];
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const unsigned set = (at.image * b.channels + at.channel() + k) / b.of_group;
    mean[k] = g.mean[set];
    rstd[k] = g.rstd[set];
  }
  g.weight.load(at.channel(), W(1), scale);
  g.bias.load(at.channel(), W(0), shift);
#pragma unroll
  for (int k = 0; k < N; ++k) scale[k] *= rstd[k];
  device::wait_copies<0>();
  W plain[N] = {}, centred[N] = {}, v[N], dz[N];
  at.for_each(b, [&](unsigned p, int64_t i) {
    device::widen_pack<T, N>(held[p], v);
    device::widen_pack<T, N>(slope[p], dz);
    if (g.relu) {
      W sign[N];
      if (g.y) {
        device::widen_pack<T, N>(*reinterpret_cast<const Raw<T, N>*>(g.y + i), sign);
      } else {
#pragma unroll
        for (int k = 0; k < N; ++k) sign[k] = (v[k] - mean[k]) * scale[k] + shift[k];
      }
#pragma unroll
      for (int k = 0; k < N; ++k) dz[k] = sign[k] > 0 ? dz[k] : W(0);
      store_pack<N>(reinterpret_cast<T*>(slope + p), dz);
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      plain[k] += dz[k];
      centred[k] += dz[k] * (v[k] - mean[k]);
    }
  });
  W a = at.channel_sum(plain, shared), c = at.channel_sum(centred, shared);
  W of_channel = 0, weight = 0;
  if (at.thread < b.width) {
    const unsigned channel = at.first + at.thread, slot = at.image * b.channels + channel;
    of_channel = g.rstd[slot / b.of_group];
    weight = g.weight.at(channel, 1);
    c *= of_channel;
    g.sums[slot] = a;
    g.sums[g.images * b.channels + slot] = c;
  }
  a = at.group_sum(weight * a, shared);
  c = at.group_sum(weight * c, shared);
  at.spread(-of_channel * (a / g.count), shared, plain);
  at.spread(-of_channel * (of_channel * (c / g.count)), shared, centred);
  at.for_each(b, [&](unsigned p, int64_t i) {
    device::widen_pack<T, N>(held[p], v);
    device::widen_pack<T, N>(slope[p], dz);
    if (g.dresidual) store_pack<N>(g.dresidual + i, dz);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = dz[k] * scale[k] + plain[k] + centred[k] * (v[k] - mean[k]);
    store_pack<N>(g.dx + i, v);
  });
}

/// Whether images are rows of whole packs, and 32 bits count their slots.
bool are_rows(const ChannelSlots& s, int N) {
  constexpr int64_t limit = std::numeric_limits<int32_t>::max();
  return s.inner > 1 && s.inner == s.channels && s.neighbours > 0 && s.channels % N == 0 &&
         std::max(s.slots() * 2, s.n * most_threads) < limit;
}

template <class Kernel, class Problem>
void launch_rows(const char* op, Kernel* kernel, const Problem& problem, size_t tensors, int N,
                 Device device, Stream stream) {
  const RowBlocks& b = problem.blocks;
  const size_t bytes = tensors * b.packs(N) * sizeof(uint4) + b.sum_bytes(N, sizeof(problem.count));
  const auto most = static_cast<size_t>(device_properties(device).shared_memory_optin);
  allow_shared_memory(reinterpret_cast<const void*>(kernel), most / 2, device);
  kernel<<<grid_of(op, int64_t{problem.images} * b.slices.number), b.threads(N), bytes,
           native(stream)>>>(problem);
  BS_CUDA_CHECK_LAUNCH(op);
}

}  // namespace

bool group_norm_rows(const ChannelSlots& slots, const ChannelStatistics& to,
                     const ChannelNorm& norm, const Tensor& y, Stream stream) {
  return visit_floating("group_norm", y.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    constexpr int N = device::pack_size<D>;
    if (!are_rows(slots, N) || !aligned16(norm.x, norm.residual, y)) return false;
    GroupRows<D> g{.x = pointer<T>(norm.x),
                   .residual = maybe<T>(norm.residual),
                   .y = pointer<T>(y),
                   .means = pointer<W>(to.mean),
                   .rstds = pointer<W>(to.rstd),
                   .weight = ChannelVector<D>(norm.weight),
                   .bias = ChannelVector<D>(norm.bias),
                   .blocks = row_blocks(slots, N, 1, sizeof(D), y.device()),
                   .images = static_cast<unsigned>(slots.outer),
                   .count = static_cast<W>(slots.count()),
                   .eps = static_cast<W>(to.eps),
                   .relu = norm.relu};
    if (g.blocks.width == 0) return false;
    launch_rows("group_norm", group_norm_rows_kernel<D>, g, 1, N, y.device(), stream);
    return true;
  });
}

bool group_norm_rows_backward(const ChannelSlots& slots, const ChannelNorm& norm,
                              const ChannelGradient& gradient, const Tensor& channel_sums,
                              const Tensor& dx, const Tensor& dresidual, Stream stream) {
  return visit_floating("group_norm_backward", dx.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    constexpr int N = device::pack_size<D>;
    if (!are_rows(slots, N) || !aligned16(norm.x, gradient.dy, gradient.y, dx, dresidual))
      return false;
    GroupRowGradients<D> g{.x = pointer<T>(norm.x),
                           .dy = pointer<T>(gradient.dy),
                           .y = maybe<T>(gradient.y),
                           .dx = pointer<T>(dx),
                           .dresidual = maybe<T>(dresidual),
                           .mean = pointer<W>(norm.mean),
                           .rstd = pointer<W>(norm.rstd),
                           .weight = ChannelVector<D>(norm.weight),
                           .bias = ChannelVector<D>(norm.bias),
                           .blocks = row_blocks(slots, N, 2, sizeof(D), dx.device()),
                           .images = static_cast<unsigned>(slots.outer),
                           .count = static_cast<W>(gradient.count),
                           .relu = norm.relu};
    if (g.blocks.width == 0) return false;
    const Tensor sums = Tensor::empty({2, slots.outer, slots.channels}, dtype_of<W>, dx.device());
    g.sums = pointer<W>(sums);
    launch_rows("group_norm_backward", group_norm_rows_backward_kernel<D>, g, 2, N, dx.device(),
                stream);
    sum(sums, channel_sums, 1, stream);
    return true;
  });
}

}  // namespace bs::cuda
