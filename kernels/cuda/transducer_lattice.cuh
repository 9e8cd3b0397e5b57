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

/// Views of the four tables of a lattice.
template <class W>
struct Tables {
  Scaled<W>* blank;  ///< weight of the time step out of a cell
  Scaled<W>* label;  ///< weight of the label out of it, zero in the last column
  Scaled<W>* alpha;  ///< of all paths from the start to a cell
  Scaled<W>* beta;   ///< of all paths from a cell to the end
};

template <class W>
Tables<W> tables_of(const Tensor& lattice) {
  auto* const data = static_cast<Scaled<W>*>(lattice.data());
  const int64_t cells = lattice.size(1);
  return {data, data + cells, data + 2 * cells, data + 3 * cells};
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

/// Diagonals whose transitions are on their way while one is added up.
template <class W, int K>
inline constexpr int ahead = K == 1           ? 8
                             : sizeof(W) == 4 ? 4
                                              : 2;

/// Bytes of shared memory that hold them.
template <class W, int K>
constexpr size_t ring_bytes(unsigned threads) {
  return sizeof(Scaled<W>) * 2 * ahead<W, K> * K * threads;
}

/// Walks the diagonals from the first cell to the last, or back, and leaves in `out` the joined
/// weights of all paths from where it began up to each cell (on the way back, the cell's own
/// transition included). A lane has K columns, 32 apart, whose states stay in registers; what goes
/// to the next column moves by a shuffle, between warps through `edge` and a barrier. Each thread
/// copies its own transitions to `ring` long before they are needed. More columns than the block
/// has are done in turns.
template <class W, int K, bool onward, class Rule>
__device__ void sweep(const Utterance& one, const Tables<W>& tables, Scaled<W>* out,
                      Scaled<W> (&edge)[2][most_sweep_warps], Scaled<W>* ring) {
  using S = Scaled<W>;
  constexpr int depth = ahead<W, K>;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warps = blockDim.x / 32;
  const int columns = one.columns();
  const int last = one.frames - 1 + one.labels;
  for (int base = 0; base < columns; base += warps * 32 * K) {
    const int first = base + warp * 32 * K + lane;  // position of group 0, counted along the walk
    const auto within = [&](int s, int i) {
      const int p = first + 32 * i;
      return p < columns && s >= p && s - p < one.frames;
    };
    const auto cell = [&](int s, int p) {
      const int d = onward ? s : last - s;
      const int u = onward ? p : one.labels - p;
      return one.cell + (int64_t{d} * columns + u);
    };
    const auto place = [&](int s, int i) {  // of a cell's time step; its label lies beside it
      return ring +
             ((static_cast<unsigned>(s - base) % depth * K + i) * blockDim.x + threadIdx.x) * 2;
    };
    // Where there is no cell, zeros arrive, which meet nothing but zeros.
    const auto fetch = [&](int s) {
#pragma unroll
      for (int i = 0; i < K; ++i) {
        const bool wanted = s <= last && within(s, i);
        const int64_t c = wanted ? cell(s, first + 32 * i) : one.cell;
        device::copy_async<sizeof(S)>(place(s, i), tables.blank + c, wanted);
        device::copy_async<sizeof(S)>(place(s, i) + 1, tables.label + c, wanted);
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
    for (int s = base; s < base + depth; ++s) fetch(s);
    for (int s = base; s <= last; ++s) {
      S entering = S::zero();
      if (lane == 0 && warp > 0 && s > base) entering = edge[(s - 1) % 2][warp - 1];
      if (lane == 0 && warp == 0 && base > 0 && s - base < one.frames) {
        const int64_t c = cell(s - 1, base - 1);
        entering = onward ? out[c] * tables.label[c] : out[c];
      }
      S rotated[K];
#pragma unroll
      for (int i = 0; i < K; ++i) rotated[i] = rotate_up(moved[i]);
      device::wait_copies<depth - 1>();
#pragma unroll
      for (int i = 0; i < K; ++i) {
        const S step = place(s, i)[0];
        const S emit = place(s, i)[1];
        const S left = lane > 0 ? rotated[i] : i > 0 ? rotated[i > 0 ? i - 1 : 0] : entering;
        S sum = onward ? Rule::join(state[i], left) : Rule::join(state[i] * step, left * emit);
        if (within(s, i)) {
          out[cell(s, first + 32 * i)] = sum;
        } else {
          sum = S::zero();
        }
        state[i] = onward ? sum * step : sum;
        moved[i] = onward ? sum * emit : sum;
      }
      fetch(s + depth);
      if (warps > 1) {
        if (lane == 31) edge[s % 2][warp] = moved[K - 1];
        __syncthreads();
      }
    }
    device::wait_copies<0>();
    __syncthreads();  // the next columns read this one's results
  }
}

}  // namespace bs::cuda
