// df and dg of a transducer's joint: one read of dh, two sums. What blocks have of a sum between
// them is added up by another launch, always in the same order.
#include <bs/lib/cuda/grid.h>
#include <bs/lib/integers.h>
#include <bs/kernels/cuda/early_launch.cuh>
#include <bs/kernels/cuda/transducer/transducer_joint_feed.cuh>
#include <bs/kernels/cuda/transducer/transducer_joint_shares.cuh>

#include <algorithm>

namespace bs::cuda {

namespace joint {

namespace {

constexpr int threads = feed_threads;
constexpr int blocks_each = 2;                               // of a multiprocessor
constexpr size_t most_memory = 233472 / blocks_each - 1024;  // shared, of each

/// A group of sums as it lies in shared memory and in parts of sums.
template <class T>
struct Sums {
  using W = wide<T>;
  static constexpr int G = group<T>;
  static constexpr int C = 16 / sizeof(W);  ///< values of one access
  static constexpr int parts = G / C;

  W at[G];

  __device__ void add(const Sums& other) {
#pragma unroll
    for (int i = 0; i < G; ++i) at[i] += other.at[i];
  }
  /// Adds values to two sums.
  __device__ void add_to(Sums& one, Sums& other) const {
    one.add(*this);
    other.add(*this);
  }
  /// The same of those whose bit of frame r is set.
  __device__ void add_to(Sums& one, Sums& other, unsigned kept, int r) const {
#pragma unroll
    for (int i = 0; i < G; ++i) {
      if ((kept & 1U << detail::JointBits::bit(G, r, i)) == 0) continue;
      one.at[i] += at[i];
      other.at[i] += at[i];
    }
  }
  /// What is kept of a result was not yet multiplied by its factor.
  __device__ void complete(const Joint& joint) {
    const W factor = joint.factor<W>();
#pragma unroll
    for (int i = 0; i < G; ++i) at[i] *= factor;
  }
  /// The parts lie `apart` accesses from each other, which keeps banks apart.
  __device__ void load(const Pack<W, C>* from, int apart) {
#pragma unroll
    for (int p = 0; p < parts; ++p) {
      const Pack<W, C> some = from[p * apart];
#pragma unroll
      for (int i = 0; i < C; ++i) at[p * C + i] = some.at[i];
    }
  }
  __device__ void store(Pack<W, C>* to, int apart) const {
#pragma unroll
    for (int p = 0; p < parts; ++p) {
      Pack<W, C> some;
#pragma unroll
      for (int i = 0; i < C; ++i) some.at[i] = at[p * C + i];
      to[p * apart] = some;
    }
  }
};

/// -x, two 16-bit floats a word.
template <class T, int N>
__device__ Raw<T, N> minus(const Raw<T, N>& x) {
  if constexpr (sizeof(T) == 2) {
    return {x.at[0] ^ 0x80008000U, x.at[1] ^ 0x80008000U, x.at[2] ^ 0x80008000U,
            x.at[3] ^ 0x80008000U};
  } else {
    auto pack = std::bit_cast<Pack<T, N>>(x);
#pragma unroll
    for (int i = 0; i < N; ++i) pack.at[i] = -pack.at[i];
    return std::bit_cast<Raw<T, N>>(pack);
  }
}

/// d where g > -f, which is where f + g > 0, or one is NaN; else zero. Pairs of 16-bit floats need
/// no conversion.
template <class T, int N>
__device__ void cut_off(Raw<T, N>& d, const Raw<T, N>& g, const Raw<T, N>& minus_f) {
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) d.at[i] &= __hgtu2_mask(two<T>(g.at[i]), two<T>(minus_f.at[i]));
  } else {
    auto kept = std::bit_cast<Pack<T, N>>(d);
    const auto x = std::bit_cast<Pack<T, N>>(g);
    const auto y = std::bit_cast<Pack<T, N>>(minus_f);
#pragma unroll
    for (int i = 0; i < N; ++i) kept.at[i] = x.at[i] <= y.at[i] ? T(0) : kept.at[i];
    d = std::bit_cast<Raw<T, N>>(kept);
  }
}

/// Where sums go: results, and parts of them. [part][utterance, frame][slice][group] of df where
/// labels are divided, [part_of][label][slice's group] of dg.
template <class T>
struct Results {
  T *df, *dg;
  wide<T>*df_parts, *dg_parts;
};

/// Number of a share's sums of its last pair, or of its first, which it begins in the midst of.
__device__ inline int64_t part_of(const Cut& cut, int share, int beside, bool last) {
  return 2 * (int64_t{share} * cut.beside + beside) + last;
}

/// Bytes of shared memory: sums over frames and, without dropout, rows of g for each label, sums
/// over labels for each warp, and the ring, with dropout's words of bits.
template <class T, int X, bool drops>
constexpr size_t memory_for(int64_t labels) {
  constexpr size_t sums = sizeof(wide<T>) * group<T> * X;
  constexpr size_t row = frames_at_once * 16 + (drops ? sizeof(unsigned) : 0);
  constexpr size_t ring = feed_depth<T, X, drops> * threads * row;
  return static_cast<size_t>(labels) * (sums + (drops ? 0 : 16 * X)) +
         threads / 32 * frames_at_once * sums + ring;
}

/// X groups of columns of a slice; of the threads that have one group, each has every (threads /
/// X)th label. Its sums over frames are its own, in shared memory, as are its rows of g and the
/// ring through which dh comes; those over labels are added up across the block once a step.
template <class T, bool aligned, int X, bool drops>
__global__ void __launch_bounds__(threads, sizeof(T) == 8 || !aligned ? 1 : blocks_each)
    joint_backward_kernel(const T* __restrict__ f, const T* __restrict__ g,
                          const T* __restrict__ dh, unsigned* __restrict__ kept, Results<T> results,
                          Joint joint, Cut cut) {
  using S = Sums<T>;
  using Row = Raw<T, group<T>>;
  constexpr int G = group<T>;
  constexpr int Y = threads / X;
  extern __shared__ __align__(16) unsigned char memory[];
  auto* const ring = reinterpret_cast<Row*>(memory);
  auto* const g_rows = ring + feed_depth<T, X, drops> * frames_at_once * threads;
  auto* const over_frames =
      reinterpret_cast<Pack<typename S::W, S::C>*>(g_rows + (drops ? 0 : cut.labels * X));
  auto* const partials = over_frames + cut.labels * S::parts * X;
  auto* const words =
      reinterpret_cast<unsigned*>(partials + threads / 32 * frames_at_once * S::parts * X);
  const int x = static_cast<int>(threadIdx.x) % X;
  const int y = static_cast<int>(threadIdx.x) / X;
  const int64_t n = joint.n;
  const auto own = [&](int u) { return over_frames + u * S::parts * X + x; };
  const auto partial = [&](int warp, int r) {
    return partials + (warp * frames_at_once + r) * S::parts * X + x;
  };
  wait_for_previous_launch();
  let_next_launch_begin();
  const Shares shares(joint.utterances, cut, static_cast<int>(gridDim.x) / cut.beside);
  const int share = static_cast<int>(blockIdx.x) / cut.beside;
  const int beside = static_cast<int>(blockIdx.x) % cut.beside;
  if (share >= shares.count) return;
  Walk walk{joint.utterances, cut, beside, shares.begin(share), shares.begin(share + 1)};
  Segment at;
  while (walk.next(at)) {
    const Utterance one = joint.utterances[at.b];
    const int64_t which = int64_t{at.slice} * X + x;
    const bool has = which * G < n;
    const int first_label = at.label_part * cut.labels;
    const int labels = has ? min(cut.labels, one.columns() - first_label) : 0;
    const int end = min(at.last * frames_at_once, one.frames);
    const T* const f_rows = f + int64_t{at.b} * joint.frames * n;
    for (int u = y; u < labels; u += Y) {
      S{}.store(own(u), X);
      if (drops || !joint.relu) continue;
      const T* row = g + (int64_t{at.b} * joint.columns + first_label + u) * n;
      if constexpr (aligned) {
        device::copy_async_16(&g_rows[u * X + x], reinterpret_cast<const Row*>(row) + which, true);
      } else {
        Group<T, aligned> some;
        some.load(row, which, n);
        g_rows[u * X + x] = some.raw;
      }
    }
    Feed<T, aligned, X, drops> feed(
        ring + threadIdx.x, words + threadIdx.x, dh + (one.row + first_label) * n,
        joint.fields<T>(kept, one, at.b) + first_label * joint.layout.groups, n, which, one.stride,
        labels, at.first * frames_at_once, end);
    Row minus_f[frames_at_once];
    constexpr Row nothing = {~0U, ~0U, ~0U, ~0U};  // NaN, whatever T: cuts nothing off
    const auto fetch_frames = [&](int t0) {
      if constexpr (!drops) {
#pragma unroll
        for (int r = 0; r < frames_at_once; ++r) {
          Group<T, aligned> some{};
          if (has && t0 + r < end) some.load(f_rows + int64_t{t0 + r} * n, which, n);
          minus_f[r] = joint.relu ? minus<T, G>(some.raw) : nothing;
        }
      }
    };
    fetch_frames(at.first * frames_at_once);
    for (int step = at.first; step < at.last; ++step) {
      const int t0 = step * frames_at_once;
      S over_labels[frames_at_once] = {};
      for (int u = y; u < labels; u += Y) {
        Row d[frames_at_once];
        const unsigned bits = feed.take(d);
        const Row g_row = !drops && joint.relu ? g_rows[u * X + x] : Row{};
        S sum;
        sum.load(own(u), X);
#pragma unroll
        for (int r = 0; r < frames_at_once; ++r) {
          if constexpr (!drops) cut_off<T, G>(d[r], g_row, minus_f[r]);
          S values;
          device::widen_pack<T>(d[r], values.at);
          if constexpr (drops) {
            values.add_to(over_labels[r], sum, bits, r);
          } else {
            values.add_to(over_labels[r], sum);
          }
        }
        sum.store(own(u), X);
      }
      fetch_frames(t0 + frames_at_once);
      // Over the threads of a warp that have one group, then over warps.
      __syncthreads();  // sums of the step before have been read
#pragma unroll
      for (int r = 0; r < frames_at_once; ++r) {
#pragma unroll
        for (int i = 0; i < G; ++i)
#pragma unroll
          for (int lanes = X; lanes < 32; lanes *= 2)
            over_labels[r].at[i] += __shfl_xor_sync(all_lanes, over_labels[r].at[i], lanes);
        if (threadIdx.x % 32 < X) over_labels[r].store(partial(threadIdx.x / 32, r), X);
      }
      __syncthreads();
      const int r = Y - 1 - y;  // the last threads, which have the fewest labels
      if (r >= frames_at_once || t0 + r >= end || !has) continue;
      S sum = {};
      for (int w = 0; w < threads / 32; ++w) {
        S some;
        some.load(partial(w, r), X);
        sum.add(some);
      }
      if constexpr (drops) sum.complete(joint);
      const int64_t row = int64_t{at.b} * joint.frames + t0 + r;
      if (cut.label_parts == 1) {
        Group<T, aligned>::store(results.df + row * n, which, n, sum.at);
      } else {
        const int64_t rows = int64_t{joint.utterances.batch} * joint.frames;
        const int64_t group_at = (at.label_part * rows + row) * cut.slices * X + which;
        sum.store(reinterpret_cast<Pack<typename S::W, S::C>*>(results.df_parts + group_at * G), 1);
      }
    }
    if (at.first == at.last) continue;
    const int64_t parts_at = part_of(cut, share, beside, at.first == 0) * cut.labels;
    for (int u = y; u < labels; u += Y) {
      S sum;
      sum.load(own(u), X);
      if constexpr (drops) sum.complete(joint);
      if (at.whole) {
        Group<T, aligned>::store(results.dg + (int64_t{at.b} * joint.columns + first_label + u) * n,
                                 which, n, sum.at);
      } else {
        sum.store(reinterpret_cast<Pack<typename S::W, S::C>*>(results.dg_parts +
                                                               ((parts_at + u) * X + x) * G),
                  1);
      }
    }
  }
}

/// What shares left: zeros past the lengths, and sums of parts, of one utterance.
template <class T, bool aligned, int X>
__global__ void __launch_bounds__(threads)
    finish_kernel(Results<T> results, Joint joint, Cut cut, int blocks) {
  using S = Sums<T>;
  using Access = Pack<typename S::W, S::C>;
  constexpr int G = group<T>;
  const int b = static_cast<int>(blockIdx.x);
  const Utterance one = joint.utterances[b];  // the kernel before saw them located
  const Shares shares(joint.utterances, cut, blocks / cut.beside);
  const int64_t before = cost_before(joint.utterances, cut, b);
  const Cost cost = cost_of(one, cut);
  const int groups = static_cast<int>(ceil_div(joint.n, G));
  const int step = static_cast<int>(gridDim.y * threads);
  const int start = static_cast<int>(blockIdx.y * threads + threadIdx.x);
  wait_for_previous_launch();
  for (int i = start; i < joint.columns * groups; i += step) {
    const int u = i / groups;
    const int which = i % groups;
    S sum = {};
    if (u <= one.labels && cost.steps > 0) {
      const int pair = u / cut.labels * cut.slices + which / X;
      const int beside = pair % cut.beside;
      const int64_t begin = before + pair / cut.beside * cost.all();
      const int first = shares.with(begin + cost.step - 1);
      const int last = shares.with(begin + cost.all() - 1);
      if (first == last) continue;  // it wrote the sum itself
      constexpr int at_once = 4;    // on their way
      for (int share = first; share <= last; share += at_once) {
        S some[at_once];
#pragma unroll
        for (int k = 0; k < at_once; ++k) {
          if (share + k > last) break;
          const int64_t row =
              part_of(cut, share + k, beside, share + k == first) * cut.labels + u % cut.labels;
          some[k].load(
              reinterpret_cast<const Access*>(results.dg_parts + (row * X + which % X) * G), 1);
        }
#pragma unroll
        for (int k = 0; k < at_once; ++k)
          if (share + k <= last) sum.add(some[k]);
      }
    }
    Group<T, aligned>::store(results.dg + (int64_t{b} * joint.columns + u) * joint.n, which,
                             joint.n, sum.at);
  }
  // Where labels are divided, df has parts; else only rows past the length are left.
  const int first_frame = cut.label_parts > 1 ? 0 : one.frames;
  for (int64_t i = int64_t{first_frame} * groups + start; i < int64_t{joint.frames} * groups;
       i += step) {
    const int64_t row = int64_t{b} * joint.frames + i / groups;
    const int which = static_cast<int>(i % groups);
    S sum = {};
    for (int part = 0; part < cut.label_parts && i / groups < one.frames; ++part) {
      const int64_t rows = int64_t{joint.utterances.batch} * joint.frames;
      const int64_t at = (part * rows + row) * cut.slices * X + which;
      S some;
      some.load(reinterpret_cast<const Access*>(results.df_parts + at * G), 1);
      sum.add(some);
    }
    Group<T, aligned>::store(results.df + row * joint.n, which, joint.n, sum.at);
  }
}

/// Slices of X groups, and no more labels than shared memory has room for.
template <class T, int X, bool drops>
Cut cut_for(const TransducerSizes& s, Device device) {
  constexpr size_t least = memory_for<T, X, drops>(0);
  constexpr size_t each = memory_for<T, X, drops>(1) - least;
  const size_t memory = std::min<size_t>(
      most_memory, static_cast<size_t>(device_properties(device).shared_memory_optin));
  const auto most = static_cast<int64_t>((memory - least) / each);
  Cut cut{};
  cut.slices = static_cast<int>(ceil_div(s.classes, X * group<T>));
  cut.label_parts = static_cast<int>(ceil_div(s.labels + 1, most));
  cut.labels = static_cast<int>(ceil_div(s.labels + 1, cut.label_parts));
  return cut;
}

/// One call's tensors on the device.
struct Call {
  const Tensor &f, &g, &dh, &kept, &df, &dg;
  const TransducerSizes& sizes;
  const Joint& rules;
  Stream stream;
};

template <class T, bool aligned, int X, bool drops>
void launch(const Call& call) {
  using D = device_type<T>;
  using W = wide<D>;
  const TransducerSizes& s = call.sizes;
  const Device device = call.f.device();
  Cut cut = cut_for<D, X, drops>(s, device);
  const int64_t steps = s.batch * ceil_div(s.frames, frames_at_once);
  const int64_t pairs = int64_t{cut.slices} * cut.label_parts;
  const int64_t most = int64_t{blocks_each} * device_properties(device).multiprocessors;
  // Side by side, if that leaves hardly any block without work.
  cut.beside = static_cast<int>(most / pairs * pairs * 32 >= most * 31 ? pairs : 1);
  const int64_t shares = ceil_div(pairs / cut.beside * steps, least_steps);
  const int64_t blocks = std::min<int64_t>(shares, most / cut.beside) * cut.beside;
  const auto scratch = [&](int64_t size) { return Tensor::empty({size}, dtype_of<W>, device); };
  const Tensor df_parts = scratch(
      cut.label_parts > 1 ? cut.label_parts * s.batch * s.frames * cut.slices * X * group<D> : 0);
  const Tensor dg_parts = scratch(2 * blocks * cut.labels * X * group<D>);
  const Results<D> results{pointer<T>(call.df), pointer<T>(call.dg), pointer<W>(df_parts),
                           pointer<W>(dg_parts)};
  const auto kernel = joint_backward_kernel<D, aligned, X, drops>;
  const size_t bytes = memory_for<D, X, drops>(cut.labels);
  BS_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes)));
  launch_early(kernel, grid_of("transducer_joint_backward", blocks), threads, bytes, call.stream,
               pointer<T>(call.f), pointer<T>(call.g), pointer<T>(call.dh), words(call.kept),
               results, call.rules, cut);
  const int64_t groups = (s.labels + 1 + s.frames) * ceil_div(s.classes, group<D>);
  const unsigned each =
      grid_size(s.batch * groups, threads, device) / static_cast<unsigned>(s.batch);
  const dim3 grid(static_cast<unsigned>(s.batch), std::max(each, 1U));
  launch_early(finish_kernel<D, aligned, X>, grid, threads, 0, call.stream, results, call.rules,
               cut, static_cast<int>(blocks));
}

template <class T, bool drops>
void launch(const Call& call) {
  using D = device_type<T>;
  const TransducerSizes& s = call.sizes;
  if (!is_aligned(s.classes,
                  {call.f.data(), call.g.data(), call.dh.data(), call.df.data(), call.dg.data()}))
    return launch<T, false, 8, drops>(call);
  // Twice as wide slices where they fit as well, and all labels in them.
  const int64_t groups = ceil_div(s.classes, group<D>);
  const bool broad = ceil_div(groups, 16) * 2 == ceil_div(groups, 8) &&
                     cut_for<D, 16, drops>(s, call.f.device()).label_parts == 1;
  broad ? launch<T, true, 16, drops>(call) : launch<T, true, 8, drops>(call);
}

}  // namespace

}  // namespace joint

void transducer_joint_backward(const Tensor& f, const Tensor& g, const Tensor& dh,
                               const Tensor& kept, const Tensor& df, const Tensor& dg,
                               const TransducerJointProblem& p, Stream stream) {
  const char* op = "transducer_joint_backward";
  const TransducerSizes& s = p.sizes;
  if (s.frames == 0 || s.classes == 0) {
    if (dg.numel() > 0) fill_zero(dg.data(), dg.bytes(), stream);
    return;
  }
  const Tensor table = Tensor::empty({s.batch + 1, 4}, i64, f.device());
  locate_utterances(s, p.logit_lengths, p.target_lengths, table, stream);
  const joint::Joint rules = joint::joint_of(op, f.dtype(), s, table, p.options, {});
  const joint::Call call{f, g, dh, kept, df, dg, s, rules, stream};
  visit_floating(op, f.dtype(), [&]<class T>(Type<T>) {
    rules.drops ? joint::launch<T, true>(call) : joint::launch<T, false>(call);
  });
}

}  // namespace bs::cuda
