#pragma once
// The lattice of a transducer on the device: where utterances lie, and sums over paths by
// anti-diagonals. Cells of a diagonal t + u = d are neighbours in memory (column fastest), so that
// a warp that walks from diagonal to diagonal reads and writes whole lines.
#include <bs/kernels/scaled.h>
#include <bs/kernels/transducer_loss.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/ptx/async_copy.cuh>
#include <bs/kernels/cuda/integers.cuh>

namespace bs::cuda {

/// One utterance's rows of logits and cells.
struct Utterance {
  int64_t row, cell;
  int frames, labels, stride;  ///< stride: rows from one frame to the next
  bool valid;

  __device__ int columns() const { return labels + 1; }
  __device__ int64_t cell_of(int t, int u) const { return cell + int64_t{t + u} * columns() + u; }
};

/// The table of utterances: row, frames, labels, valid of each, and the row after the last that
/// fits.
struct Utterances {
  const int64_t* table;
  int batch;
  int64_t labels;  ///< columns of targets
  bool packed;
  int64_t padded_rows;  ///< of each utterance, where they are not packed

  __device__ int64_t row(int b) const { return table[4 * int64_t{b}]; }
  __device__ Utterance operator[](int b) const {
    const int64_t* entry = table + 4 * int64_t{b};
    const int own = static_cast<int>(entry[2]);
    return {entry[0],
            entry[0] + b * labels * (labels + 1),
            static_cast<int>(entry[1]),
            own,
            packed ? own + 1 : static_cast<int>(labels) + 1,
            entry[3] != 0};
  }
  /// The utterance that has a row: the last that begins there or before.
  __device__ int find(int64_t at) const {
    if (!packed) return static_cast<int>(at / padded_rows);
    int low = 0;
    int high = batch - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (row(middle) <= at) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};

inline Utterances utterances(const TransducerSizes& s, const Tensor& table) {
  return {table.data<int64_t>(), static_cast<int>(s.batch), s.labels, s.packed,
          s.frames * (s.labels + 1)};
}

/// Weights of the two transitions out of a cell.
template <class W>
struct alignas(16) Transitions {
  Scaled<W> blank, label;  ///< label: zero in the last column
};

/// Views of the tables of a lattice, cell by cell.
template <class W>
struct Tables {
  Transitions<W>* transitions;
  Scaled<W>* alpha;  ///< of all paths from the start to a cell
  Scaled<W>* beta;   ///< of all paths from a cell to the end
};

template <class W>
Tables<W> tables_of(const Tensor& lattice) {
  auto* const data = static_cast<Scaled<W>*>(lattice.data());
  const int64_t cells = lattice.size(1);
  return {reinterpret_cast<Transitions<W>*>(data), data + 2 * cells, data + 3 * cells};
}

/// Writes down where each utterance begins, from lengths on the device; undefined: the full ones.
void locate_utterances(const TransducerSizes& s, const Tensor& logit_lengths,
                       const Tensor& target_lengths, const Tensor& table, Stream stream);
/// From the weights of transitions, whoever brought them: alpha, beta, the utterances' losses, and
/// their reduction to result.loss. A joint that never stores logits would begin here too.
void sum_paths(const TransducerSizes& s, const TransducerLossResult& result, const Tensor& losses,
               const TransducerLossOptions& options, Stream stream);

/// Joins the weights of the two ways into a cell. Sums are normalized only once a chunk of
/// diagonals: until then they leave [1/4, 4) by a factor of at most 2^24, which an exponent of W
/// bears with ease, for the mantissas of transitions are within a factor of sqrt(2) of 1.
struct SumOfPaths {
  template <class W>
  static __device__ Scaled<W> join(Scaled<W> step, Scaled<W> emit) {
    using S = Scaled<W>;
    const auto top = max(max(step.exponent, emit.exponent), S::lowest);
    return {step.value * power_of_two<W>(step.exponent - top) +
                emit.value * power_of_two<W>(emit.exponent - top),
            top};
  }
  template <class W>
  static __device__ Scaled<W> settled(Scaled<W> x) {
    return normalized(x);
  }
};
struct BestPath {
  template <class W>
  static __device__ Scaled<W> join(Scaled<W> step, Scaled<W> emit) {
    step = normalized(step);
    emit = normalized(emit);
    return emit < step ? step : emit;
  }
  template <class W>
  static __device__ Scaled<W> settled(Scaled<W> x) {
    return x;
  }
};

template <class W>
__device__ Scaled<W> rotate_up(Scaled<W> x) {
  const int from = (threadIdx.x + 31) % 32;
  return {__shfl_sync(0xffffffffU, x.value, from), __shfl_sync(0xffffffffU, x.exponent, from)};
}

inline constexpr int most_sweep_warps = 16;

/// Diagonals that a warp adds up between two barriers. The transitions of two chunks are on their
/// way or at hand.
template <class W, int K>
inline constexpr int chunk = 32 / static_cast<int>(sizeof(W)) / K;

/// What comes to each warp from the one before, for the diagonals of four chunks: that one is a
/// chunk ahead, and the last of the chunk before is read as well.
template <class W>
using Edges = Scaled<W>[most_sweep_warps + 1][32];

/// Bytes of shared memory for the transitions.
template <class W, int K>
constexpr size_t ring_bytes(unsigned threads) {
  return sizeof(Transitions<W>) * 2 * chunk<W, K> * K * threads;
}

/// Walks the diagonals from the first cell to the last, or back, and leaves in `out` the joined
/// weights of all paths from where it began up to each cell (on the way back, the cell's own
/// transition included). A lane has K columns, 32 apart, whose states stay in registers; what goes
/// to the next column moves by a shuffle, and between warps through `edges`: each warp is a chunk
/// of diagonals behind the one before, and a barrier comes after each chunk. Each thread copies its
/// own transitions to `ring` a chunk before they are needed. More columns than the block has are
/// done in turns.
template <class W, int K, bool onward, class Rule>
__device__ void sweep(const Utterance& one, const Tables<W>& tables, Scaled<W>* out,
                      Edges<W>& edges, Transitions<W>* ring) {
  using S = Scaled<W>;
  constexpr int depth = chunk<W, K>;
  constexpr unsigned edge_mask = 4 * depth - 1;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warps = blockDim.x / 32;
  const int columns = one.columns();
  const int last = one.frames - 1 + one.labels;
  const Transitions<W>* const from = tables.transitions + one.cell;
  S* const to = out + one.cell;
  Transitions<W>* const own = ring + warp * (2 * depth * K * 32) + lane;
  const int64_t down = onward ? columns : -columns;  // cells from a diagonal to the next
  const int beside = onward ? 32 : -32;              // from a lane's column to its next
  for (int base = 0; base < columns; base += warps * 32 * K) {
    const int first = base + warp * 32 * K + lane;  // position of group 0, counted along the walk
    unsigned frames[K];                             // of a column; none where there is no column
#pragma unroll
    for (int i = 0; i < K; ++i) frames[i] = first + 32 * i < columns ? one.frames : 0;
    const auto within = [&](int s, int i) {
      return static_cast<unsigned>(s - first - 32 * i) < frames[i];
    };
    // The cell of group 0, counted from the utterance's first.
    int64_t cell = onward ? int64_t{base} * columns + first
                          : int64_t{last - base} * columns + one.labels - first;
    // Where there is no cell, zeros arrive, which meet nothing but zeros.
    const auto fetch = [&](int s0, int64_t at, Transitions<W>* slot) {
#pragma unroll
      for (int k = 0; k < depth; ++k)
#pragma unroll
        for (int i = 0; i < K; ++i) {
          auto* target = reinterpret_cast<uint4*>(slot + (k * K + i) * 32);
          auto* source = reinterpret_cast<const uint4*>(from + at + k * down + i * beside);
#pragma unroll
          for (size_t part = 0; part < sizeof(Transitions<W>) / 16; ++part)
            device::copy_async_16(target + part, source + part, within(s0 + k, i));
        }
      device::commit_copies();
    };
    // Onward, `state` is what steps into the next diagonal and `moved` what goes to the next
    // column; on the way back both are the sum at the cell itself.
    S state[K], moved[K];
#pragma unroll
    for (int i = 0; i < K; ++i) {
      state[i] = first + 32 * i == 0 ? S::one() : S::zero();
      moved[i] = S::zero();
    }
    if (warp == 0) edges[0][lane] = S::zero();
    if (lane == 31) edges[warp + 1][static_cast<unsigned>(base - 1) & edge_mask] = S::zero();
    __syncwarp();
    fetch(base, cell, own);
    fetch(base + depth, cell + depth * down, own + depth * K * 32);
    const int chunks = (last - base) / depth + 1;
    for (int round = 0; round < chunks + warps - 1; ++round) {
      const int s0 = base + (round - warp) * depth;
      if (s0 >= base && s0 <= last) {
        Transitions<W>* const slot = own + (round - warp) % 2 * (depth * K * 32);
        const unsigned edge = static_cast<unsigned>(s0) & edge_mask;
        if (base > 0 && warp == 0) {  // what the turn before left to the first column
          const int s = s0 + lane;
          const bool wanted = lane < depth && s - base < one.frames;
          const int64_t before =
              cell - (onward ? lane : -lane) + (lane - 1) * down - (onward ? 1 : -1);
          S entering = S::zero();
          if (wanted) entering = onward ? to[before] * from[before].label : to[before];
          if (lane < depth) edges[0][static_cast<unsigned>(s - 1) & edge_mask] = entering;
          __syncwarp();
        }
        device::wait_copies<1>();
        S* at = to + cell;
#pragma unroll
        for (int k = 0; k < depth; ++k) {
          const S entering = edges[warp][k > 0 ? edge + k - 1 : (edge - 1) & edge_mask];
          S rotated[K];
#pragma unroll
          for (int i = 0; i < K; ++i) rotated[i] = rotate_up(moved[i]);
#pragma unroll
          for (int i = 0; i < K; ++i) {
            const Transitions<W> next = slot[(k * K + i) * 32];
            const S before = i > 0 ? rotated[i > 0 ? i - 1 : 0] : entering;
            const S left = lane > 0 ? rotated[i] : before;
            const S sum = onward ? Rule::join(state[i], left)
                                 : Rule::join(state[i] * next.blank, left * next.label);
            if (within(s0 + k, i)) at[i * beside] = sum;
            state[i] = onward ? sum * next.blank : sum;
            moved[i] = onward ? sum * next.label : sum;
          }
          if (lane == 31) edges[warp + 1][edge + k] = moved[K - 1];
          at += down;
        }
#pragma unroll
        for (int i = 0; i < K; ++i) {
          state[i] = Rule::settled(state[i]);
          moved[i] = Rule::settled(moved[i]);
        }
        cell += depth * down;
        fetch(s0 + 2 * depth, cell + depth * down, slot);
      }
      if (warps > 1) __syncthreads();
    }
    device::wait_copies<0>();
    __syncthreads();  // the next columns read this one's results
  }
}

}  // namespace bs::cuda
