#include <bs/lib/cuda/grid.h>
#include <bs/lib/integers.h>
#include <bs/kernels/cuda/early_launch.cuh>
#include <bs/kernels/cuda/transducer/transducer_joint.cuh>

#include <algorithm>

namespace bs::cuda {

namespace joint {

namespace {

constexpr int threads = 256;

/// How the forward is cut: a block has as many frames as a thread, which reads g once for them, and
/// `labels` columns of one utterance.
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

/// What the threads of a block have in common.
template <class T>
struct Tile {
  const T *f, *g;  ///< rows of the first frame, and of the first label
  T* h;
  Field<T>* kept;     ///< of the first label
  int count, frames;  ///< with rows, and with f, from the first on
  int labels;
  unsigned row_blocks, frame_groups;
  unsigned number;    ///< of the first frame
  uint64_t sequence;  ///< of random numbers
};

/// Frames of a group of columns of one label. `full`: all of them have rows, and f and g.
template <class T, bool aligned, bool drops, bool full>
__device__ void joint_rows(const Joint& joint, const Tile<T>& tile, int u, int which, unsigned at) {
  using W = wide<T>;
  constexpr int G = group<T>;
  using Access = Raw<T, G>;
  const int n = static_cast<int>(joint.n);
  const int inside = full ? frames_at_once : u <= tile.labels ? tile.frames : 0;
  const int64_t row = int64_t{u} * n;
  W of_label[G] = {};
  if (full || u <= tile.labels) {
    Group<T, aligned> y;
    if constexpr (aligned) {
      y.raw = reinterpret_cast<const Access*>(tile.g)[at];
    } else {
      y.load(tile.g + row, which, n);
    }
    y.widen_to(of_label);
  }
  Group<T, aligned> x[frames_at_once] = {};
#pragma unroll
  for (int r = 0; r < frames_at_once; ++r)
    if (r < inside) x[r].load(tile.f + int64_t{r} * n, which, n);
  const unsigned block =
      aligned ? at / (bits_group / G) : u * tile.row_blocks + which * G / bits_group;
  unsigned kept = 0;
#pragma unroll
  for (int r0 = 0; r0 < frames_at_once; r0 += 2) {
    if (!full && r0 >= tile.count) break;
    Words<G> word;
    if constexpr (drops)
      joint.bits<G, aligned>(word, tile.sequence, tile.number + r0, block, which);
#pragma unroll
    for (int r = r0; r < r0 + 2; ++r) {
      if (!full && r >= tile.count) break;
      Access sum = {};
      if (r < inside) {
        W values[G];
        x[r].widen_to(values);
#pragma unroll
        for (int i = 0; i < G; ++i) values[i] += of_label[i];
        sum = joint.finished<T, G, drops>(values);
        if constexpr (drops) kept |= joint.keep<T, G>(sum, word[r - r0], r);
      }
      if constexpr (aligned) {
        reinterpret_cast<Access*>(tile.h)[at + r * tile.frame_groups] = sum;
      } else {
        T* const to = tile.h + row + int64_t{r} * tile.frame_groups * n;
        Group<T, aligned>::store(to, which, n, sum);
      }
    }
  }
  if constexpr (drops)
    if (full || inside > 0) tile.kept[at] = static_cast<Field<T>>(kept);
}

/// Rows of h: threads go through (label, group), groups fastest.
template <class T, bool aligned, bool drops>
__global__ void __launch_bounds__(threads, sizeof(T) == 8 || !aligned ? 2 : 4)
    joint_kernel(const T* __restrict__ f, const T* __restrict__ g, T* __restrict__ h,
                 unsigned* __restrict__ kept, Joint joint, Tiles tiles) {
  constexpr int G = group<T>;
  int rest = static_cast<int>(blockIdx.x);
  const int label_tile = rest % tiles.label_tiles;
  rest /= tiles.label_tiles;
  const int t0 = rest % tiles.frame_tiles * frames_at_once;
  const int b = rest / tiles.frame_tiles;
  wait_for_previous_launch();
  const Utterance one = joint.utterances[b];
  const int groups = static_cast<int>(ceil_div(joint.n, G));
  const Tile<T> tile{
      f + (int64_t{b} * joint.frames + t0) * joint.n,
      g + int64_t{b} * joint.columns * joint.n,
      h + (one.row + int64_t{t0} * one.stride) * joint.n,
      joint.fields<T>(kept, one, b) + int64_t{t0 / frames_at_once} * one.stride * groups,
      (joint.utterances.packed ? one.frames : joint.frames) - t0,
      one.frames - t0,
      one.labels,
      joint.row_blocks(),
      static_cast<unsigned>(one.stride) * (aligned ? groups : 1),
      joint.frame_number(b, t0),
      drops ? joint.state.sequence() : 0};
  if (tile.count <= 0) return;
  const int first = label_tile * tiles.labels;
  const int end = min(first + tiles.labels, one.stride);
  int u = first + static_cast<int>(threadIdx.x) / groups;
  int which = static_cast<int>(threadIdx.x) % groups;
  const int whole = threads / groups;
  const int rest_of_row = threads % groups;
  const bool full_frames = tile.frames >= frames_at_once;
  for (unsigned at = first * groups + threadIdx.x; u < end; at += threads) {
    if (full_frames && u <= tile.labels) {
      joint_rows<T, aligned, drops, true>(joint, tile, u, which, at);
    } else {
      joint_rows<T, aligned, drops, false>(joint, tile, u, which, at);
    }
    u += whole;
    which += rest_of_row;
    if (which >= groups) {
      which -= groups;
      ++u;
    }
  }
}

/// Zeros for what packed rows of n units have left behind those of all utterances.
template <class Unit>
__global__ void __launch_bounds__(threads)
    clear_rest_kernel(const int64_t* end, Unit* h, int64_t rows, int64_t n) {
  let_next_launch_begin();
  wait_for_previous_launch();
  const int64_t step = int64_t{gridDim.x} * threads;
  for (int64_t i = *end * n + int64_t{blockIdx.x} * threads + threadIdx.x; i < rows * n; i += step)
    h[i] = Unit{};
}

template <class Unit>
void clear_rest(const Tensor& h, const Tensor& table, const TransducerSizes& s, Stream stream) {
  const int64_t units = static_cast<int64_t>(h.bytes() / sizeof(Unit));
  launch_early(clear_rest_kernel<Unit>, grid_size(units, threads, h.device()), threads, 0, stream,
               table.data<int64_t>() + 4 * s.batch, static_cast<Unit*>(h.data()), s.rows,
               units / s.rows);
}

}  // namespace

}  // namespace joint

void transducer_joint(const Tensor& f, const Tensor& g, const Tensor& h, const Tensor& kept,
                      const TransducerJointProblem& p, Stream stream) {
  const char* op = "transducer_joint";
  const TransducerSizes& s = p.sizes;
  if (h.numel() == 0) return;
  if (p.options.dropout == 1 || s.frames == 0) return fill_zero(h.data(), h.bytes(), stream);
  const Tensor table = Tensor::empty({s.batch + 1, 4}, i64, f.device());
  locate_utterances(s, p.logit_lengths, p.target_lengths, table, stream);
  const joint::Joint rules = joint::joint_of(op, f.dtype(), s, table, p.options, p.state);
  visit_floating(op, f.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    const bool aligned = joint::is_aligned(s.classes, {f.data(), g.data(), h.data()});
    if (s.packed)
      aligned ? joint::clear_rest<uint4>(h, table, s, stream)
              : joint::clear_rest<D>(h, table, s, stream);
    const auto kernel =
        rules.drops
            ? (aligned ? joint::joint_kernel<D, true, true> : joint::joint_kernel<D, false, true>)
            : (aligned ? joint::joint_kernel<D, true, false>
                       : joint::joint_kernel<D, false, false>);
    const joint::Tiles tiles = joint::tiles_for(s, joint::group<D>);
    const int64_t blocks = s.batch * tiles.frame_tiles * tiles.label_tiles;
    launch_early(kernel, grid_of("transducer_joint", blocks), joint::threads, 0, stream,
                 pointer<T>(f), pointer<T>(g), pointer<T>(h), joint::words(kept), rules, tiles);
  });
}

}  // namespace bs::cuda
