#pragma once
// The lattice of a transducer on the device: where utterances lie, and sums over paths by
// anti-diagonals. Cells of a diagonal t + u = d are neighbours in memory (column fastest), so that
// a warp that walks from diagonal to diagonal reads and writes whole lines.
#include <bs/kernels/scaled.h>
#include <bs/kernels/transducer_loss.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/async_copy.cuh>
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

/// The table of utterances: row, frames, labels, valid of each, and the row after the last.
struct Utterances {
  const int64_t* table;
  int batch;
  int64_t labels;  ///< columns of targets
  bool packed;

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
  /// The last utterance that begins at `row` or before, given one that does.
  __device__ int find(int64_t at, int from) const {
    int low = from;
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
  return {table.data<int64_t>(), static_cast<int>(s.batch), s.labels, s.packed};
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

/// Writes down where each utterance begins, from lengths on the device.
void locate_utterances(const TransducerSizes& s, const Tensor& logit_lengths,
                       const Tensor& target_lengths, const Tensor& table, Stream stream);
/// From the weights of transitions, whoever brought them: alpha, beta, the utterances' losses, and
/// their reduction to result.loss. A joint that never stores logits would begin here too.
void sum_paths(const TransducerSizes& s, const TransducerLossResult& result, const Tensor& losses,
               const TransducerLossOptions& options, Stream stream);

/// Joins the weights of the two ways into a cell.
struct SumOfPaths {
  template <class W>
  static __device__ Scaled<W> join(Scaled<W> step, Scaled<W> emit) {
    return step + emit;
  }
};
struct BestPath {
  template <class W>
  static __device__ Scaled<W> join(Scaled<W> step, Scaled<W> emit) {
    step = normalized(step);
    emit = normalized(emit);
    return emit < step ? step : emit;
  }
};

template <class W>
__device__ Scaled<W> rotate_up(Scaled<W> x) {
  const int from = (threadIdx.x + 31) % 32;
  return {__shfl_sync(0xffffffffU, x.value, from), __shfl_sync(0xffffffffU, x.exponent, from)};
}

inline constexpr int most_sweep_warps = 16;

/// Diagonals that a warp adds up between two barriers. The transitions of as many are on their way.
template <class W, int K>
inline constexpr int chunk = K == 1           ? 8
                             : sizeof(W) == 4 ? 4
                                              : 2;

/// What each warp leaves to the next, for the diagonals of four chunks: it is one ahead of the
/// next, which also reads the last of the chunk before.
template <class W>
using Edges = Scaled<W>[most_sweep_warps][32];

/// Bytes of shared memory for the transitions.
template <class W, int K>
constexpr size_t ring_bytes(unsigned threads) {
  return sizeof(Transitions<W>) * chunk<W, K> * K * threads;
}

/// Walks the diagonals from the first cell to the last, or back, and leaves in `out` the joined
/// weights of all paths from where it began up to each cell (on the way back, the cell's own
/// transition included). A lane has K columns, 32 apart, whose states stay in registers; what goes
/// to the next column moves by a shuffle, and between warps through `edges`: each warp is a chunk
/// of diagonals behind the one before, and a barrier comes after each chunk. Each thread copies its
/// own transitions to `ring` long before they are needed. More columns than the block has are done
/// in turns.
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
  Transitions<W>* const own = ring + warp * (depth * K * 32) + lane;
  const unsigned down = onward ? columns : -columns;  // cells from a diagonal to the next
  for (int base = 0; base < columns; base += warps * 32 * K) {
    const int first = base + warp * 32 * K + lane;  // position of group 0, counted along the walk
    unsigned frames[K];                             // of a column; none where there is no column
#pragma unroll
    for (int i = 0; i < K; ++i) frames[i] = first + 32 * i < columns ? one.frames : 0;
    const auto within = [&](int s, int i) {
      return static_cast<unsigned>(s - first - 32 * i) < frames[i];
    };
    const auto beside = [](unsigned cell, int i) { return onward ? cell + 32 * i : cell - 32 * i; };
    // Where there is no cell, zeros arrive, which meet nothing but zeros.
    const auto fetch = [&](int s, unsigned cell, int slot) {
#pragma unroll
      for (int i = 0; i < K; ++i) {
        const bool wanted = within(s, i);
        auto* target = reinterpret_cast<uint4*>(own + (slot * K + i) * 32);
        auto* source = reinterpret_cast<const uint4*>(from + (wanted ? beside(cell, i) : 0));
#pragma unroll
        for (size_t part = 0; part < sizeof(Transitions<W>) / 16; ++part)
          device::copy_async<16>(target + part, source + part, wanted);
      }
      device::commit_copies();
    };
    // The cell of group 0, counted from the utterance's first.
    unsigned cell = onward ? base * columns + first : (last - base) * columns + one.labels - first;
    // Onward, `state` is what steps into the next diagonal and `moved` what goes to the next
    // column; on the way back both are the sum at the cell itself.
    S state[K], moved[K];
#pragma unroll
    for (int i = 0; i < K; ++i) {
      state[i] = first + 32 * i == 0 ? S::one() : S::zero();
      moved[i] = S::zero();
    }
    if (lane == 31) edges[warp][static_cast<unsigned>(base - 1) & edge_mask] = S::zero();
#pragma unroll
    for (int k = 0; k < depth; ++k) fetch(base + k, cell + k * down, k);
    const int chunks = (last - base) / depth + 1;
    for (int round = 0; round < chunks + warps - 1; ++round) {
      const int s0 = base + (round - warp) * depth;
      if (s0 >= base && s0 <= last) {
#pragma unroll
        for (int k = 0; k < depth; ++k) {
          const int s = s0 + k;
          S entering = S::zero();
          if (lane == 0 && warp > 0)
            entering = edges[warp - 1][static_cast<unsigned>(s - 1) & edge_mask];
          if (lane == 0 && warp == 0 && base > 0 && within(s, 0)) {
            const unsigned before = onward ? cell - columns - 1 : cell + columns + 1;
            entering = onward ? to[before] * from[before].label : to[before];
          }
          S rotated[K];
#pragma unroll
          for (int i = 0; i < K; ++i) rotated[i] = rotate_up(moved[i]);
          device::wait_copies<depth - 1>();
#pragma unroll
          for (int i = 0; i < K; ++i) {
            const Transitions<W> next = own[(k * K + i) * 32];
            const S left = lane > 0 ? rotated[i] : i > 0 ? rotated[i > 0 ? i - 1 : 0] : entering;
            S sum = onward ? Rule::join(state[i], left)
                           : Rule::join(state[i] * next.blank, left * next.label);
            if (within(s, i)) {
              to[beside(cell, i)] = sum;
            } else {
              sum = S::zero();
            }
            state[i] = onward ? sum * next.blank : sum;
            moved[i] = onward ? sum * next.label : sum;
          }
          if (lane == 31) edges[warp][static_cast<unsigned>(s) & edge_mask] = moved[K - 1];
          fetch(s + depth, cell + depth * down, k);
          cell += down;
        }
      }
      if (warps > 1) __syncthreads();
    }
    device::wait_copies<0>();
    __syncthreads();  // the next columns read this one's results
  }
}

}  // namespace bs::cuda
