#include <bs/kernels/transducer_joint.h>
#include <bs/lib/philox.h>
#include <bs/kernels/cuda/device/arithmetic.cuh>
#include <bs/kernels/cuda/device/pack.cuh>
#include <bs/kernels/cuda/transducer_lattice.cuh>

namespace bs::cuda {

namespace {

using device::narrow;
using device::Pack;
using device::wide;
using device::widen;

constexpr int threads = 256;
constexpr int group = 8;         ///< columns of a thread, which share one block of random bits
constexpr int slice_groups = 8;  ///< groups that a block of the backward sums
constexpr int slice = slice_groups * group;
constexpr int frames_at_once = 4;  ///< of the backward, whose sums over labels stay in registers
constexpr int warps = threads / 32;

/// Sizes, rules and where utterances lie.
struct Joint {
  Utterances utterances;
  int frames, columns;  ///< padded; columns: labels + 1
  int64_t n, groups;
  bool relu;
  unsigned limit;  ///< of 65536: elements dropped; 0 for none
  float scale;
  RandomState state;
  int64_t first_utterance;

  /// Multiplies the values of one group of row (b, t, u) by their factors.
  template <class W>
  __device__ void drop(W (&values)[group], int b, int t, int u, int64_t which) const {
    if (limit == 0) return;
    const int64_t row = ((first_utterance + b) * frames + t) * columns + u;
    const PhiloxBlock bits =
        philox(state.seed, static_cast<uint64_t>(row * groups + which), state.offset);
#pragma unroll
    for (int i = 0; i < group; ++i) {
      const unsigned word = bits.word[i / 2] >> (16 * (i % 2)) & 0xffffU;
      values[i] = word < limit ? W(0) : values[i] * W(scale);
    }
  }
};

/// One group of columns of a row of n, in loads of 16 bytes where rows allow it.
template <class T, bool aligned>
struct Group {
  static constexpr int N = aligned ? device::pack_size<T> : 1;  ///< elements of a load

  T at[group];

  __device__ void load(const T* row, int64_t which, int64_t n) {
    if constexpr (aligned) {
#pragma unroll
      for (int k = 0; k < group / N; ++k) {
        const auto pack = reinterpret_cast<const Pack<T, N>*>(row + which * group)[k];
#pragma unroll
        for (int i = 0; i < N; ++i) at[k * N + i] = pack.at[i];
      }
    } else {
#pragma unroll
      for (int i = 0; i < group; i += N)
        at[i] = which * group + i < n ? row[which * group + i] : T{};
    }
  }
  template <class W>
  static __device__ void store(T* row, int64_t which, int64_t n, const W (&values)[group]) {
    if constexpr (aligned) {
#pragma unroll
      for (int k = 0; k < group / N; ++k) {
        Pack<T, N> pack;
#pragma unroll
        for (int i = 0; i < N; ++i) pack.at[i] = narrow<T>(values[k * N + i]);
        reinterpret_cast<Pack<T, N>*>(row + which * group)[k] = pack;
      }
    } else {
#pragma unroll
      for (int i = 0; i < group; ++i)
        if (which * group + i < n) row[which * group + i] = narrow<T>(values[i]);
    }
  }
};

/// d where f + g > 0, else zero. Rounding a sum of two 16-bit floats to 16 bits never changes its
/// sign nor makes it zero, so that pairs of them need no conversion.
template <class T>
__device__ void cut_off(T (&d)[group], const T (&f)[group], const T (&g)[group]) {
  if constexpr (sizeof(T) == 2) {
    using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    const unsigned none = 0;
#pragma unroll
    for (int i = 0; i < group; i += 2) {
      const Two sum = __hadd2(Two(f[i], f[i + 1]), Two(g[i], g[i + 1]));
      const unsigned mask = __hgt2_mask(sum, reinterpret_cast<const Two&>(none));
      const Two both(d[i], d[i + 1]);
      const unsigned kept = reinterpret_cast<const unsigned&>(both) & mask;
      d[i] = reinterpret_cast<const Two&>(kept).x;
      d[i + 1] = reinterpret_cast<const Two&>(kept).y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < group; ++i) d[i] = f[i] + g[i] > T(0) ? d[i] : T(0);
  }
}

/// h of one frame by one block: its threads go through (label, group), groups fastest.
template <class T, bool aligned>
__global__ void __launch_bounds__(threads) joint_kernel(const T* f, const T* g, T* h, Joint joint) {
  using W = wide<T>;
  const int b = static_cast<int>(blockIdx.x) / joint.frames;
  const int t = static_cast<int>(blockIdx.x) % joint.frames;
  const Utterance one = joint.utterances[b];
  const bool within = t < one.frames;
  if (joint.utterances.packed && !within) return;
  const T* f_row = f + int64_t{blockIdx.x} * joint.n;
  const T* g_rows = g + int64_t{b} * joint.columns * joint.n;
  T* h_rows = h + (one.row + int64_t{t} * one.stride) * joint.n;
  const int groups = static_cast<int>(joint.groups);
  int u = static_cast<int>(threadIdx.x) / groups;
  int which = static_cast<int>(threadIdx.x) % groups;
  const int whole = threads / groups;
  const int rest = threads % groups;
  while (u < one.stride) {
    W values[group] = {};
    if (within && u <= one.labels) {
      Group<T, aligned> x, y;
      x.load(f_row, which, joint.n);
      y.load(g_rows + u * joint.n, which, joint.n);
#pragma unroll
      for (int i = 0; i < group; ++i) {
        values[i] = widen(x.at[i]) + widen(y.at[i]);
        if (joint.relu && values[i] < W(0)) values[i] = W(0);
      }
      joint.drop(values, b, t, u, which);
    }
    Group<T, aligned>::store(h_rows + u * joint.n, which, joint.n, values);
    u += whole;
    which += rest;
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
                        const wide<T> (&values)[group]) const {
    if (parts) {
      Group<wide<T>, aligned>::store(parts + part * size + row * n, which, n, values);
    } else {
      Group<T, aligned>::store(result + row * n, which, n, values);
    }
  }
};

template <class T, bool aligned>
__global__ void __launch_bounds__(threads, sizeof(T) == 8 ? 1 : 2)
    joint_backward_kernel(const T* __restrict__ f, const T* __restrict__ g,
                          const T* __restrict__ dh, Sums<T> df, Sums<T> dg, Joint joint, Cut cut) {
  using W = wide<T>;
  extern __shared__ __align__(16) unsigned char memory[];
  // [label][half of a group][group][4]: a thread's own, in an order that keeps banks apart.
  W* over_frames = reinterpret_cast<W*>(memory);
  W* partial = over_frames + int64_t{cut.labels} * slice;  // [warp][frame][slice]
  int rest = static_cast<int>(blockIdx.x);
  const int which_slice = rest % cut.slices;
  rest /= cut.slices;
  const int frame_part = rest % cut.frame_parts;
  rest /= cut.frame_parts;
  const int label_part = rest % cut.label_parts;
  const int b = rest / cut.label_parts;
  const Utterance one = joint.utterances[b];
  const int x = static_cast<int>(threadIdx.x) % slice_groups;
  const int y = static_cast<int>(threadIdx.x) / slice_groups;
  const int64_t which = int64_t{which_slice} * slice_groups + x;
  const bool has = which < joint.groups;
  const int first_label = label_part * cut.labels;
  const int padded_labels = min(cut.labels, joint.columns - first_label);
  const int labels = min(padded_labels, one.columns() - first_label);
  const int end = min((frame_part + 1) * cut.frames, joint.frames);
  const auto own = [&](int u, int i) -> W& {
    return over_frames[((u * 2 + i / 4) * slice_groups + x) * 4 + i % 4];
  };
  for (int u = y; u < padded_labels; u += threads / slice_groups)
#pragma unroll
    for (int i = 0; i < group; ++i) own(u, i) = W(0);

  for (int t0 = frame_part * cut.frames; t0 < end; t0 += frames_at_once) {
    W over_labels[frames_at_once][group] = {};
    const int count = min(frames_at_once, min(end, one.frames) - t0);  // within the lengths
    if (has && count > 0) {
      Group<T, aligned> f_row[frames_at_once];
#pragma unroll
      for (int r = 0; r < frames_at_once; ++r)
        if (r < count)
          f_row[r].load(f + (int64_t{b} * joint.frames + t0 + r) * joint.n, which, joint.n);
      for (int u = y; u < labels; u += threads / slice_groups) {
        const int label = first_label + u;
        Group<T, aligned> d[frames_at_once], g_row;
        const T* from = dh + (one.row + int64_t{t0} * one.stride + label) * joint.n;
#pragma unroll
        for (int r = 0; r < frames_at_once; ++r)
          if (r < count) d[r].load(from + int64_t{r} * one.stride * joint.n, which, joint.n);
        g_row.load(g + (int64_t{b} * joint.columns + label) * joint.n, which, joint.n);
        W sum[group] = {};
#pragma unroll
        for (int r = 0; r < frames_at_once; ++r) {
          if (r >= count) continue;
          if (joint.relu) cut_off(d[r].at, f_row[r].at, g_row.at);
          W values[group];
#pragma unroll
          for (int i = 0; i < group; ++i) values[i] = widen(d[r].at[i]);
          joint.drop(values, b, t0 + r, label, which);
#pragma unroll
          for (int i = 0; i < group; ++i) {
            over_labels[r][i] += values[i];
            sum[i] += values[i];
          }
        }
#pragma unroll
        for (int i = 0; i < group; ++i) own(u, i) += sum[i];
      }
    }
    // Over the four threads of a warp that have one group, then over warps.
#pragma unroll
    for (int r = 0; r < frames_at_once; ++r)
#pragma unroll
      for (int i = 0; i < group; ++i) {
        W& value = over_labels[r][i];
        value += __shfl_xor_sync(0xffffffffU, value, 8);
        value += __shfl_xor_sync(0xffffffffU, value, 16);
        if (threadIdx.x % 32 < slice_groups)
          partial[((threadIdx.x / 32) * frames_at_once + r) * slice + x * group + i] = value;
      }
    __syncthreads();
    // A thread a group of a frame: 32 of them.
    if (y < frames_at_once && t0 + y < end && has) {
      W values[group] = {};
      for (int w = 0; w < warps; ++w)
#pragma unroll
        for (int i = 0; i < group; ++i)
          values[i] += partial[(w * frames_at_once + y) * slice + x * group + i];
      df.template store<aligned>(label_part, int64_t{b} * joint.frames + t0 + y, which, joint.n,
                                 values);
    }
    __syncthreads();
  }
  for (int u = y; has && u < padded_labels; u += threads / slice_groups) {
    W values[group];
#pragma unroll
    for (int i = 0; i < group; ++i) values[i] = own(u, i);
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
          ceil_div(s.classes, group),
          options.relu,
          dropout.limit,
          static_cast<float>(dropout.scale),
          state,
          options.first_utterance};
}

bool is_aligned(int64_t n, std::initializer_list<const void*> pointers) {
  if (n % group != 0) return false;
  for (const void* p : pointers)
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
  return true;
}

/// Parts enough for a few blocks on every multiprocessor, of not too few frames each, and no more
/// labels than shared memory has room for beside another block.
Cut cut_for(const TransducerSizes& s, size_t size, Device device) {
  Cut cut{};
  cut.slices = static_cast<int>(ceil_div(s.classes, slice));
  cut.label_parts = static_cast<int>(ceil_div(s.labels + 1, size == 8 ? 96 : 256));
  cut.labels = static_cast<int>(ceil_div(s.labels + 1, cut.label_parts));
  const int64_t blocks = s.batch * cut.slices * cut.label_parts;
  const int64_t wanted = ceil_div(8 * device_properties(device).multiprocessors, blocks);
  const int64_t most = std::max<int64_t>(1, s.frames / 32);
  cut.frame_parts = static_cast<int>(std::clamp<int64_t>(wanted, 1, most));
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
    kernel<<<static_cast<unsigned>(s.batch * s.frames), threads, 0, native(stream)>>>(
        pointer<T>(f), pointer<T>(g), pointer<T>(h), joint);
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
    const Cut cut = cut_for(s, sizeof(W), f.device());
    const auto sums = [&](const Tensor& result, const Tensor& parts) {
      return Sums<D>{pointer<T>(result), parts.defined() ? pointer<W>(parts) : nullptr,
                     result.numel()};
    };
    const auto scratch = [&](const Tensor& result, int parts) {
      return parts > 1 ? Tensor::empty({parts, result.numel()}, dtype_of<W>, f.device()) : Tensor();
    };
    const Tensor df_parts = scratch(df, cut.label_parts);
    const Tensor dg_parts = scratch(dg, cut.frame_parts);
    const bool aligned =
        is_aligned(s.classes, {f.data(), g.data(), dh.data(), df.data(), dg.data()});
    const auto kernel = aligned ? joint_backward_kernel<D, true> : joint_backward_kernel<D, false>;
    const size_t bytes =
        sizeof(W) * slice * static_cast<size_t>(cut.labels + warps * frames_at_once);
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
