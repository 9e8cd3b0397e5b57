#include <bs/kernels/transducer_joint.h>
#include <bs/lib/philox.h>
#include <bs/kernels/cuda/device/arithmetic.cuh>
#include <bs/kernels/cuda/device/pack.cuh>
#include <bs/kernels/cuda/transducer_lattice.cuh>

#include <algorithm>
#include <bit>
#include <limits>

namespace bs::cuda {

namespace {

using device::narrow;
using device::Pack;
using device::Raw;
using device::wide;
using device::widen;

constexpr int threads = 256;
constexpr int bits_group = 8;      ///< columns that share one block of random bits
constexpr int frames_at_once = 4;  ///< that a thread has: it reads a row of g once for all of them
constexpr int warps = threads / 32;

/// Columns of a thread: 16 bytes of T, so that the threads of a warp move whole sectors.
template <class T>
inline constexpr int group = device::pack_size<T>;
/// Sizes, rules and where utterances lie.
struct Joint {
  Utterances utterances;
  int frames, columns;  ///< padded; columns: labels + 1
  int64_t n;
  bool relu;
  unsigned limit;  ///< of 65536: elements dropped; 0 for none
  float scale;
  RandomState state;
  int64_t first_utterance;

  /// Multiplies the values of one group of row (b, t, u) by their factors.
  template <class W, int G>
  __device__ void drop(W (&values)[G], int b, int t, int u, int64_t which) const {
    if (limit == 0) return;
    const int64_t row = ((first_utterance + b) * frames + t) * columns + u;
    const int64_t blocks = (n + bits_group - 1) / bits_group;
    const PhiloxBlock bits = philox(
        state.seed, static_cast<uint64_t>(row * blocks + which * G / bits_group), state.offset);
    const int part = G == bits_group ? 0 : static_cast<int>(which % (bits_group / G));
#pragma unroll
    for (int i = 0; i < G; ++i) {
      unsigned word = bits.word[i / 2];
#pragma unroll
      for (int k = 1; k < bits_group / G; ++k)
        if (part == k) word = bits.word[(k * G + i) / 2];
      word = word >> (16 * (i % 2)) & 0xffffU;
      values[i] = word < limit ? W(0) : values[i] * W(scale);
    }
  }
};

/// One group of columns of a row of n, as 16 bytes where rows allow it. G: those of T by default.
template <class T, bool aligned, int G = group<T>>
struct Group {
  Raw<T, G> raw;

  __device__ Pack<T, G> values() const { return std::bit_cast<Pack<T, G>>(raw); }
  __device__ void load(const T* row, int64_t which, int64_t n) {
    if constexpr (aligned) {
      raw = reinterpret_cast<const Raw<T, G>*>(row)[which];
    } else {
      Pack<T, G> some;
#pragma unroll
      for (int i = 0; i < G; ++i) some.at[i] = which * G + i < n ? row[which * G + i] : T{};
      raw = std::bit_cast<Raw<T, G>>(some);
    }
  }
  template <class W>
  static __device__ void store(T* row, int64_t which, int64_t n, const W (&values)[G]) {
    constexpr int N = device::pack_size<T> < G ? device::pack_size<T> : G;
    if constexpr (aligned) {
#pragma unroll
      for (int k = 0; k < G / N; ++k) {
        W some[N];
#pragma unroll
        for (int i = 0; i < N; ++i) some[i] = values[k * N + i];
        reinterpret_cast<Pack<T, N>*>(row + which * G)[k] = device::narrow_pack<T>(some);
      }
    } else {
#pragma unroll
      for (int i = 0; i < G; ++i)
        if (which * G + i < n) row[which * G + i] = narrow<T>(values[i]);
    }
  }
};

/// d where f + g > 0, else zero. Rounding a sum of two 16-bit floats to 16 bits never changes its
/// sign nor makes it zero, so that pairs of them need no conversion.
template <class T, int N>
__device__ void cut_off(Raw<T, N>& d, const Raw<T, N>& f, const Raw<T, N>& g) {
  if constexpr (sizeof(T) == 2) {
    using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    const auto two = [](const unsigned& word) { return reinterpret_cast<const Two&>(word); };
    const unsigned none = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      d.at[i] &= __hgt2_mask(__hadd2(two(f.at[i]), two(g.at[i])), two(none));
  } else {
    auto kept = std::bit_cast<Pack<T, N>>(d);
    const auto x = std::bit_cast<Pack<T, N>>(f);
    const auto y = std::bit_cast<Pack<T, N>>(g);
#pragma unroll
    for (int i = 0; i < N; ++i) kept.at[i] = x.at[i] + y.at[i] > T(0) ? kept.at[i] : T(0);
    d = std::bit_cast<Raw<T, N>>(kept);
  }
}

/// How the forward is cut: a block has `frames_at_once` frames and `labels` columns of one
/// utterance.
struct Tiles {
  int frame_tiles, label_tiles, labels;
};

/// Rows of h: threads go through (label, group), groups fastest.
template <class T, bool aligned>
__global__ void __launch_bounds__(threads)
    joint_kernel(const T* f, const T* g, T* h, Joint joint, Tiles tiles) {
  using W = wide<T>;
  constexpr int G = group<T>;
  int rest = static_cast<int>(blockIdx.x);
  const int label_tile = rest % tiles.label_tiles;
  rest /= tiles.label_tiles;
  const int t0 = rest % tiles.frame_tiles * frames_at_once;
  const int b = rest / tiles.frame_tiles;
  const Utterance one = joint.utterances[b];
  const int count = (joint.utterances.packed ? one.frames : joint.frames) - t0;  // frames with rows
  const T* f_rows = f + (int64_t{b} * joint.frames + t0) * joint.n;
  const T* g_rows = g + int64_t{b} * joint.columns * joint.n;
  T* h_rows = h + (one.row + int64_t{t0} * one.stride) * joint.n;
  const int groups = static_cast<int>((joint.n + G - 1) / G);
  const int end = count > 0 ? min((label_tile + 1) * tiles.labels, one.stride) : 0;
  int u = label_tile * tiles.labels + static_cast<int>(threadIdx.x) / groups;
  int which = static_cast<int>(threadIdx.x) % groups;
  const int whole = threads / groups;
  const int rest_of_row = threads % groups;
  while (u < end) {
    const bool labelled = u <= one.labels;
    Group<T, aligned> y;
    if (labelled) y.load(g_rows + u * joint.n, which, joint.n);
#pragma unroll
    for (int r = 0; r < frames_at_once; ++r) {
      if (r >= count) break;
      W values[G] = {};
      if (labelled && t0 + r < one.frames) {
        Group<T, aligned> x;
        x.load(f_rows + r * joint.n, which, joint.n);
        const Pack<T, G> of_frame = x.values();
        const Pack<T, G> of_label = y.values();
#pragma unroll
        for (int i = 0; i < G; ++i) {
          values[i] = widen(of_frame.at[i]) + widen(of_label.at[i]);
          if (joint.relu && values[i] < W(0)) values[i] = W(0);
        }
        joint.drop(values, b, t0 + r, u, which);
      }
      Group<T, aligned>::store(h_rows + (int64_t{r} * one.stride + u) * joint.n, which, joint.n,
                               values);
    }
    u += whole;
    which += rest_of_row;
    if (which >= groups) {
      which -= groups;
      ++u;
    }
  }
}

/// How the backward is cut: a block sums over `frames` frames and `labels` labels of one slice of
/// columns. Where a sum takes several blocks, they leave parts of it in W, which another launch
/// adds up in their order.
struct Cut {
  int slices, frames, frame_parts, labels, label_parts;
};

/// Where a block leaves sums: the result itself, or its part of them.
template <class T>
struct Sums {
  T* result;
  wide<T>* parts;  ///< null: there is but one
  int64_t size;    ///< elements of a part

  template <bool aligned>
  __device__ void store(int part, int64_t row, int64_t which, int64_t n,
                        const wide<T> (&values)[group<T>]) const {
    if (parts) {
      Group<wide<T>, aligned, group<T>>::store(parts + part * size + row * n, which, n, values);
    } else {
      Group<T, aligned>::store(result + row * n, which, n, values);
    }
  }
};

/// df and dg of one slice of columns, X groups wide. A thread has one group and every (threads /
/// X)th label: its sums over frames are its own, in shared memory, those over labels are added up
/// across the block once in `frames_at_once` frames. What it reads next is always on its way.
template <class T, bool aligned, int X>
__global__ void __launch_bounds__(threads, sizeof(T) == 8 || !aligned ? 1 : 2)
    joint_backward_kernel(const T* __restrict__ f, const T* __restrict__ g,
                          const T* __restrict__ dh, Sums<T> df, Sums<T> dg, Joint joint, Cut cut) {
  using W = wide<T>;
  constexpr int G = group<T>;
  constexpr int C = 16 / sizeof(W);  // values of an access to shared memory
  constexpr int parts = G / C;
  constexpr int Y = threads / X;
  extern __shared__ __align__(16) unsigned char memory[];
  // [label][part of a group][group] and [warp][frame][part][group], which keeps banks apart.
  auto* over_frames = reinterpret_cast<Pack<W, C>*>(memory);
  auto* partial = over_frames + cut.labels * parts * X;
  int rest = static_cast<int>(blockIdx.x);
  const int which_slice = rest % cut.slices;
  rest /= cut.slices;
  const int frame_part = rest % cut.frame_parts;
  rest /= cut.frame_parts;
  const int label_part = rest % cut.label_parts;
  const int b = rest / cut.label_parts;
  const Utterance one = joint.utterances[b];
  const int x = static_cast<int>(threadIdx.x) % X;
  const int y = static_cast<int>(threadIdx.x) / X;
  const int64_t which = int64_t{which_slice} * X + x;
  const bool has = which * G < joint.n;
  const int first_label = label_part * cut.labels;
  const int padded_labels = min(cut.labels, joint.columns - first_label);
  const int labels = has ? min(padded_labels, one.columns() - first_label) : 0;
  const int end = min((frame_part + 1) * cut.frames, joint.frames);
  const int stop = min(end, one.frames);  // of the frames within the lengths
  const auto own = [&](int u, int part) -> Pack<W, C>& {
    return over_frames[(u * parts + part) * X + x];
  };
  const auto sum_of_warp = [&](int warp, int frame, int part) -> Pack<W, C>& {
    return partial[((warp * frames_at_once + frame) * parts + part) * X + x];
  };
  for (int u = y; u < padded_labels; u += Y)
#pragma unroll
    for (int part = 0; part < parts; ++part) own(u, part) = {};

  Group<T, aligned> next_d[frames_at_once], next_g;
  const auto fetch = [&](int t, int u) {
    if (u >= labels || t >= stop) return;
    const int label = first_label + u;
    const T* from = dh + (one.row + int64_t{t} * one.stride + label) * joint.n;
#pragma unroll
    for (int r = 0; r < frames_at_once; ++r)
      if (t + r < stop) next_d[r].load(from + int64_t{r} * one.stride * joint.n, which, joint.n);
    next_g.load(g + (int64_t{b} * joint.columns + label) * joint.n, which, joint.n);
  };
  fetch(frame_part * cut.frames, y);
  for (int t0 = frame_part * cut.frames; t0 < end; t0 += frames_at_once) {
    W over_labels[frames_at_once][G] = {};
    const int count = min(frames_at_once, stop - t0);
    if (y < labels && count > 0) {
      Group<T, aligned> f_row[frames_at_once];
#pragma unroll
      for (int r = 0; r < frames_at_once; ++r)
        if (r < count)
          f_row[r].load(f + (int64_t{b} * joint.frames + t0 + r) * joint.n, which, joint.n);
      for (int u = y; u < labels; u += Y) {
        Group<T, aligned> d[frames_at_once];
#pragma unroll
        for (int r = 0; r < frames_at_once; ++r) d[r] = next_d[r];
        const Group<T, aligned> g_row = next_g;
        const bool more = u + Y < labels;
        fetch(more ? t0 : t0 + frames_at_once, more ? u + Y : y);
        W sum[G] = {};
#pragma unroll
        for (int r = 0; r < frames_at_once; ++r) {
          if (r >= count) continue;
          if (joint.relu) cut_off<T, G>(d[r].raw, f_row[r].raw, g_row.raw);
          const Pack<T, G> kept = d[r].values();
          W values[G];
#pragma unroll
          for (int i = 0; i < G; ++i) values[i] = widen(kept.at[i]);
          joint.drop(values, b, t0 + r, first_label + u, which);
#pragma unroll
          for (int i = 0; i < G; ++i) {
            over_labels[r][i] += values[i];
            sum[i] += values[i];
          }
        }
#pragma unroll
        for (int part = 0; part < parts; ++part) {
          Pack<W, C> total = own(u, part);
#pragma unroll
          for (int i = 0; i < C; ++i) total.at[i] += sum[part * C + i];
          own(u, part) = total;
        }
      }
    }
    // Over the threads of a warp that have one group, then over warps.
#pragma unroll
    for (int r = 0; r < frames_at_once; ++r)
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        Pack<W, C> sum;
#pragma unroll
        for (int i = 0; i < C; ++i) {
          sum.at[i] = over_labels[r][part * C + i];
#pragma unroll
          for (int other = X; other < 32; other *= 2)
            sum.at[i] += __shfl_xor_sync(0xffffffffU, sum.at[i], other);
        }
        if (threadIdx.x % 32 < X) sum_of_warp(threadIdx.x / 32, r, part) = sum;
      }
    __syncthreads();
    if (y < frames_at_once && t0 + y < end && has) {
      W values[G] = {};
      for (int w = 0; w < warps; ++w)
#pragma unroll
        for (int i = 0; i < G; ++i) values[i] += sum_of_warp(w, y, i / C).at[i % C];
      df.template store<aligned>(label_part, int64_t{b} * joint.frames + t0 + y, which, joint.n,
                                 values);
    }
    __syncthreads();
  }
  for (int u = y; has && u < padded_labels; u += Y) {
    W values[G];
#pragma unroll
    for (int i = 0; i < G; ++i) values[i] = own(u, i / C).at[i % C];
    dg.template store<aligned>(frame_part, int64_t{b} * joint.columns + first_label + u, which,
                               joint.n, values);
  }
}

/// result = the sum of parts, in their order.
template <class T>
__global__ void __launch_bounds__(threads) add_parts_kernel(Sums<T> sums, int parts) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < sums.size; i += step) {
    wide<T> sum = 0;
    for (int p = 0; p < parts; ++p) sum += sums.parts[p * sums.size + i];
    sums.result[i] = narrow<T>(sum);
  }
}

Joint joint_of(const char* op, const TransducerSizes& s, const Tensor& table,
               const TransducerJointOptions& options, RandomState state) {
  BS_CHECK(s.batch * s.frames <= INT32_MAX && s.labels < INT32_MAX,
           "{}: {} utterances of {} frames are too many", op, s.batch, s.frames);
  const detail::JointDropout dropout = detail::joint_dropout(options.dropout);
  return {utterances(s, table),
          static_cast<int>(s.frames),
          static_cast<int>(s.labels + 1),
          s.classes,
          options.relu,
          dropout.limit,
          static_cast<float>(dropout.scale),
          state,
          options.first_utterance};
}

bool is_aligned(int64_t n, std::initializer_list<const void*> pointers) {
  if (n % bits_group != 0) return false;
  for (const void* p : pointers)
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
  return true;
}

/// Tiles of a few turns of their threads: small, so that no multiprocessor ends long before
/// another.
Tiles tiles_for(const TransducerSizes& s, int columns_a_thread) {
  constexpr int turns = 5;
  const int64_t groups = ceil_div(s.classes, columns_a_thread);
  const int64_t columns = s.labels + 1;
  const int64_t labels = std::clamp<int64_t>(ceil_div(turns * threads, groups), 1, columns);
  return {static_cast<int>(ceil_div(s.frames, frames_at_once)),
          static_cast<int>(ceil_div(columns, labels)), static_cast<int>(labels)};
}

/// No more labels than shared memory has room for beside another block, and so many parts of the
/// frames that the last wave of blocks is nearly full. Each part costs a write and a read of dg.
Cut cut_for(const TransducerSizes& s, int64_t slice_size, size_t element, Device device) {
  constexpr int blocks_each = 2;  // of a multiprocessor
  Cut cut{};
  cut.slices = static_cast<int>(ceil_div(s.classes, slice_size));
  cut.label_parts = static_cast<int>(ceil_div(s.labels + 1, 160));
  cut.labels = static_cast<int>(ceil_div(s.labels + 1, cut.label_parts));
  const int64_t blocks = s.batch * cut.slices * cut.label_parts;
  const int64_t slots = blocks_each * device_properties(device).multiprocessors;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t parts = 1; parts <= std::max<int64_t>(1, s.frames / 32); ++parts) {
    const auto waves = static_cast<double>(ceil_div(blocks * parts, slots));
    const double sums = 8.0 * static_cast<double>(parts) /
                        static_cast<double>(s.frames * static_cast<int64_t>(element));
    const double cost = waves / static_cast<double>(parts) * (1 + sums);
    if (cost >= least) continue;
    least = cost;
    cut.frame_parts = static_cast<int>(parts);
  }
  const int64_t frames = ceil_div(s.frames, cut.frame_parts);
  cut.frames = static_cast<int>(ceil_div(frames, frames_at_once) * frames_at_once);
  cut.frame_parts = static_cast<int>(ceil_div(s.frames, cut.frames));
  return cut;
}

template <class T>
void add_parts(const Sums<T>& sums, int parts, Device device, Stream stream) {
  if (parts > 1)
    add_parts_kernel<<<grid_size(sums.size, threads, device), threads, 0, native(stream)>>>(sums,
                                                                                            parts);
}

}  // namespace

void transducer_joint(const Tensor& f, const Tensor& g, const Tensor& logit_lengths,
                      const Tensor& target_lengths, const Tensor& h, const TransducerSizes& s,
                      const TransducerJointOptions& options, RandomState state, Stream stream) {
  const char* op = "transducer_joint";
  if (h.numel() == 0 || s.frames == 0) return;
  const Tensor table = Tensor::empty({s.batch + 1, 4}, i64, f.device());
  locate_utterances(s, logit_lengths, target_lengths, table, stream);
  const Joint joint = joint_of(op, s, table, options, state);
  visit_floating(op, f.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    const bool aligned = is_aligned(s.classes, {f.data(), g.data(), h.data()});
    const auto kernel = aligned ? joint_kernel<D, true> : joint_kernel<D, false>;
    const Tiles tiles = tiles_for(s, group<D>);
    const int64_t blocks = s.batch * tiles.frame_tiles * tiles.label_tiles;
    kernel<<<static_cast<unsigned>(blocks), threads, 0, native(stream)>>>(
        pointer<T>(f), pointer<T>(g), pointer<T>(h), joint, tiles);
  });
  BS_CUDA_CHECK_LAUNCH(op);
}

void transducer_joint_backward(const Tensor& f, const Tensor& g, const Tensor& dh,
                               const Tensor& logit_lengths, const Tensor& target_lengths,
                               const Tensor& df, const Tensor& dg, const TransducerSizes& s,
                               const TransducerJointOptions& options, RandomState state,
                               Stream stream) {
  const char* op = "transducer_joint_backward";
  if (s.frames == 0 || s.classes == 0) {
    if (dg.numel() > 0) fill_zero(dg.data(), dg.bytes(), stream);
    return;
  }
  const Tensor table = Tensor::empty({s.batch + 1, 4}, i64, f.device());
  locate_utterances(s, logit_lengths, target_lengths, table, stream);
  const Joint joint = joint_of(op, s, table, options, state);
  visit_floating(op, f.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    const bool aligned =
        is_aligned(s.classes, {f.data(), g.data(), dh.data(), df.data(), dg.data()});
    // Twice as wide slices where they fit as well.
    const int64_t groups = ceil_div(s.classes, group<D>);
    const bool broad = aligned && ceil_div(groups, 16) * 2 == ceil_div(groups, 8);
    const int slice = (broad ? 16 : 8) * group<D>;
    const Cut cut = cut_for(s, slice, sizeof(D), f.device());
    const auto sums = [&](const Tensor& result, const Tensor& parts) {
      return Sums<D>{pointer<T>(result), parts.defined() ? pointer<W>(parts) : nullptr,
                     result.numel()};
    };
    const auto scratch = [&](const Tensor& result, int parts) {
      return parts > 1 ? Tensor::empty({parts, result.numel()}, dtype_of<W>, f.device()) : Tensor();
    };
    const Tensor df_parts = scratch(df, cut.label_parts);
    const Tensor dg_parts = scratch(dg, cut.frame_parts);
    const auto kernel = broad     ? joint_backward_kernel<D, true, 16>
                        : aligned ? joint_backward_kernel<D, true, 8>
                                  : joint_backward_kernel<D, false, 8>;
    const size_t bytes = sizeof(W) * static_cast<size_t>(slice) *
                         static_cast<size_t>(cut.labels + warps * frames_at_once);
    BS_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(bytes)));
    const int64_t blocks = s.batch * cut.slices * cut.frame_parts * cut.label_parts;
    kernel<<<static_cast<unsigned>(blocks), threads, bytes, native(stream)>>>(
        pointer<T>(f), pointer<T>(g), pointer<T>(dh), sums(df, df_parts), sums(dg, dg_parts), joint,
        cut);
    BS_CUDA_CHECK_LAUNCH(op);
    add_parts(sums(df, df_parts), cut.label_parts, f.device(), stream);
    add_parts(sums(dg, dg_parts), cut.frame_parts, f.device(), stream);
  });
  BS_CUDA_CHECK_LAUNCH(op);
}

}  // namespace bs::cuda
