#include <bs/kernels/cuda/transducer_joint.cuh>

#include <algorithm>

namespace bs::cuda {

namespace joint {

namespace {

constexpr int threads = 256;

/// How the forward is cut: a block has `frames_at_once` frames and `labels` columns of one
/// utterance.
struct Tiles {
  int frame_tiles, label_tiles, labels;
};

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

/// Rows of h: threads go through (label, group), groups fastest.
template <class T, bool aligned, bool drops>
__global__ void __launch_bounds__(threads)
    joint_kernel(const T* __restrict__ f, const T* __restrict__ g, T* __restrict__ h, Joint joint,
                 Tiles tiles) {
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
    W of_label[G] = {};
    if (labelled) {
      Group<T, aligned> y;
      y.load(g_rows + u * joint.n, which, joint.n);
      y.widen_to(of_label);
    }
    const int64_t block = drops ? joint.block_of<G>(b, t0, u, which) : 0;
#pragma unroll
    for (int r0 = 0; r0 < frames_at_once; r0 += 2) {
      if (r0 >= count) break;
      Words<G> word;
      if constexpr (drops) joint.bits<G, aligned>(word, block + r0 * joint.frame_blocks(), which);
#pragma unroll
      for (int r = r0; r < r0 + 2; ++r) {
        if (r >= count) break;
        W values[G] = {};
        if (labelled && t0 + r < one.frames) {
          Group<T, aligned> x;
          x.load(f_rows + r * joint.n, which, joint.n);
          x.widen_to(values);
#pragma unroll
          for (int i = 0; i < G; ++i) {
            values[i] += of_label[i];
            if (joint.relu) values[i] = cut_off(values[i]);
          }
          if constexpr (drops) joint.drop(values, word[r - r0]);
        }
        Group<T, aligned>::store(h_rows + (int64_t{r} * one.stride + u) * joint.n, which, joint.n,
                                 values);
      }
    }
    u += whole;
    which += rest_of_row;
    if (which >= groups) {
      which -= groups;
      ++u;
    }
  }
}

}  // namespace

}  // namespace joint

void transducer_joint(const Tensor& f, const Tensor& g, const Tensor& logit_lengths,
                      const Tensor& target_lengths, const Tensor& h, const TransducerSizes& s,
                      const TransducerJointOptions& options, RandomState state, Stream stream) {
  const char* op = "transducer_joint";
  if (h.numel() == 0 || s.frames == 0) return;
  const Tensor table = Tensor::empty({s.batch + 1, 4}, i64, f.device());
  locate_utterances(s, logit_lengths, target_lengths, table, stream);
  const joint::Joint rules = joint::joint_of(op, s, table, options, state);
  visit_floating(op, f.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    const bool aligned = joint::is_aligned(s.classes, {f.data(), g.data(), h.data()});
    const auto kernel =
        rules.drops
            ? (aligned ? joint::joint_kernel<D, true, true> : joint::joint_kernel<D, false, true>)
            : (aligned ? joint::joint_kernel<D, true, false>
                       : joint::joint_kernel<D, false, false>);
    const joint::Tiles tiles = joint::tiles_for(s, joint::group<D>);
    const int64_t blocks = s.batch * tiles.frame_tiles * tiles.label_tiles;
    kernel<<<static_cast<unsigned>(blocks), joint::threads, 0, native(stream)>>>(
        pointer<T>(f), pointer<T>(g), pointer<T>(h), rules, tiles);
  });
  BS_CUDA_CHECK_LAUNCH(op);
}

}  // namespace bs::cuda
