#pragma once
// Rows of a transducer's logits on the lanes of warps, as both directions of the loss take them:
// which row is whose, how it is moved, and which of its classes its lattice cell's transitions are.
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/transducer/transducer_lattice.cuh>

#include <bit>
#include <cmath>
#include <limits>

namespace bs::cuda::loss_rows {

using device::narrow;
using device::Pack;
using device::Raw;
using device::wide;
using device::widen;

inline constexpr int row_threads = 256;
inline constexpr int rows_each = 4;      ///< of a group of lanes, one after the other
inline constexpr int packs_at_once = 4;  ///< loads of a lane in flight
inline constexpr unsigned all_lanes = 0xffffffffU;

/// What transitions weigh beside the probabilities of classes, and where labels stand.
struct Rules {
  Integers targets;
  int64_t columns;  ///< of targets
  int64_t blank, eos, star;
  double delay_penalty, eos_penalty, log_star_penalty, fastemit;

  __device__ int64_t label(int b, int u) const { return targets[b * columns + u]; }
  /// Added to the logarithm of a label's probability at frame t.
  __device__ double penalty(int64_t label, int frames, int t) const {
    const double early = 0.5 * (frames - 1) - t;
    return (delay_penalty + (label == eos && label != star ? eos_penalty : 0)) * early;
  }
};

inline Rules rules_of(const Tensor& targets, const TransducerLossOptions& o) {
  // What is not there equals no label, not even one that is none.
  const auto known = [](int64_t label) {
    return label < 0 ? std::numeric_limits<int64_t>::min() : label;
  };
  return {integers(targets),    targets.size(1), o.blank,       known(o.eos),
          known(o.star),        o.delay_penalty, o.eos_penalty, std::log(o.star_penalty),
          1 + o.fastemit_lambda};
}

/// A group of L lanes has `rows_each` rows, one after the other. What concerns a row as a whole is
/// the work of one of its lanes, the row's keeper, so that it is done for all of them at once.
struct Row {
  int64_t number = 0;
  Utterance one = {};
  int utterance = 0, t = 0, u = 0;
  bool inside = false;  ///< within the lengths
};

template <int L>
__device__ int64_t row_number(int turn) {
  constexpr int groups = row_threads / L;
  return int64_t{blockIdx.x} * (groups * rows_each) + turn * groups + threadIdx.x / L;
}

/// The row that this lane keeps: lane j of a group has the group's row j, others none.
template <int L>
__device__ Row kept_row(const Utterances& utterances, int64_t rows) {
  Row row;
  const int turn = threadIdx.x % L;
  row.number = row_number<L>(turn);
  if (turn >= rows_each || row.number >= rows) return row;
  row.utterance = utterances.find(row.number);
  row.one = utterances[row.utterance];
  const auto at = static_cast<unsigned>(row.number - row.one.row);
  row.t = static_cast<int>(at / static_cast<unsigned>(row.one.stride));
  row.u = static_cast<int>(at % static_cast<unsigned>(row.one.stride));
  row.inside = row.t < row.one.frames && row.u <= row.one.labels;
  return row;
}

/// What the keeper of a group's row `turn` knows.
template <int L, class V>
__device__ V from_keeper(V value, int turn) {
  return __shfl_sync(all_lanes, value, turn, L);
}

/// The classes of a row's two transitions: label, and whether stars take their places.
struct Classes {
  int label = -1;  ///< -1: there is none, or it is no class
  bool star = false, after_star = false;
};

inline __device__ Classes classes_of(const Row& row, const Rules& rules, int classes) {
  Classes out;
  if (!row.inside) return out;
  if (row.u > 0) out.after_star = rules.label(row.utterance, row.u - 1) == rules.star;
  if (row.u == row.one.labels) return out;
  const int64_t label = rules.label(row.utterance, row.u);
  out.star = label == rules.star;
  if (label >= 0 && label < classes) out.label = static_cast<int>(label);
  return out;
}

/// How rows lie: `ragged` ones begin or end within 16 bytes, `whole` ones besides give each lane of
/// a group the same number of full turns.
enum class Fit { ragged, aligned, whole };

/// A row of n elements as packs of N from the last multiple of 16 bytes before it on. Of the first
/// and the last pack only what belongs to the row is touched. It passes through caches as what
/// nobody reads again soon: the lattice has better use for them.
template <class T, int N, Fit fit>
struct Packs {
  using Element = std::remove_const_t<T>;
  static constexpr bool aligned = fit != Fit::ragged;

  T* base;
  int before, end;  ///< the row's elements are base[before .. end)

  __device__ Packs(T* row, int n)
      : base(row),
        before(aligned ? 0 : static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T))) {
    base -= before;
    end = before + n;
  }
  __device__ int count() const { return (end + N - 1) / N; }
  __device__ bool whole(int p) const { return aligned || (p * N >= before && (p + 1) * N <= end); }
  __device__ bool has(int p, int i) const { return p * N + i >= before && p * N + i < end; }

  __device__ Raw<Element, N> load(int p, Element other) const {
    if (whole(p)) return device::load_once(reinterpret_cast<const Raw<Element, N>*>(base) + p);
    Pack<Element, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) out.at[i] = has(p, i) ? base[p * N + i] : other;
    return std::bit_cast<Raw<Element, N>>(out);
  }
  __device__ void store(int p, const Pack<T, N>& values) const {
    if (whole(p)) {
      device::store_once(reinterpret_cast<Raw<T, N>*>(base) + p, std::bit_cast<Raw<T, N>>(values));
      return;
    }
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (has(p, i)) base[p * N + i] = values.at[i];
  }
};

/// Calls f(pack size, lanes, fit) as constants: rows in packs of 16 bytes where both tensors lie
/// equally far from a multiple of them, and as many lanes as keep a row in a few loads each.
template <class T, class F>
void visit_lanes(const void* from, const void* to, int64_t classes, F&& f) {
  constexpr int most = device::pack_size<T>;
  const auto lanes = [&]<int N, Fit fit>(std::integral_constant<int, N> pack,
                                         std::integral_constant<Fit, fit> how) {
    const auto of = [&](auto lanes) {
      constexpr int turn = lanes * packs_at_once * N;
      if constexpr (fit == Fit::aligned && N > 1)
        if (classes % turn == 0) return f(pack, lanes, std::integral_constant<Fit, Fit::whole>{});
      f(pack, lanes, how);
    };
    if (classes <= 4 * packs_at_once * N) return of(std::integral_constant<int, 4>{});
    if (classes <= 8 * packs_at_once * N) return of(std::integral_constant<int, 8>{});
    if (classes <= 16 * packs_at_once * N) return of(std::integral_constant<int, 16>{});
    of(std::integral_constant<int, 32>{});
  };
  const auto off = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16; };
  const std::integral_constant<Fit, Fit::aligned> aligned;
  if (off(from) != off(to)) return lanes(std::integral_constant<int, 1>{}, aligned);
  const std::integral_constant<int, most> pack;
  if (off(from) == 0 && classes % most == 0) return lanes(pack, aligned);
  lanes(pack, std::integral_constant<Fit, Fit::ragged>{});
}

template <int L>
unsigned row_blocks(int64_t rows) {
  return grid_of("transducer_loss", ceil_div(rows, row_threads / L * rows_each));
}

}  // namespace bs::cuda::loss_rows
