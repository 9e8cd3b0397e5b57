#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/reduce.cuh>
#include <bs/kernels/cuda/early_launch.cuh>
#include <bs/kernels/cuda/transducer/transducer_loss_rows.cuh>

namespace bs::cuda {

namespace loss_rows {

namespace {

template <int L, class W, class Op>
__device__ W group_reduce(W value, Op op) {
#pragma unroll
  for (int offset = L / 2; offset > 0; offset /= 2)
    value = op(value, __shfl_xor_sync(all_lanes, value, offset));
  return value;
}

/// The two transitions out of a row's cell: their weights' logarithms, to be had from logits by
/// taking the row's lse off.
template <class W>
struct Exits {
  int64_t cell = -1;  ///< -1: none
  W step = 0, emit = 0;
  bool step_is_logit = true, emit_is_logit = true, emits = false;
  int label = -1;

  /// Reads the logits. Best once a row has been read, when they are still near.
  template <class T>
  __device__ void read(const T* row, int64_t blank) {
    if (step_is_logit) step = widen(row[blank]);
    if (label >= 0 && emit_is_logit) emit += widen(row[label]);
  }
};

/// All but the logits.
template <class W>
__device__ Exits<W> exits_of(const Row& row, const Rules& rules, int classes) {
  Exits<W> out;
  if (!row.inside) return out;
  const Classes chosen = classes_of(row, rules, classes);
  out.cell = row.one.cell_of(row.t, row.u);
  out.step_is_logit = !chosen.after_star;
  out.step = static_cast<W>(rules.log_star_penalty);
  out.emits = row.u < row.one.labels;
  out.emit_is_logit = !chosen.star;
  out.label = chosen.label;
  out.emit = static_cast<W>(rules.penalty(chosen.label, row.one.frames, row.t));
  if (out.emits && !chosen.star && chosen.label < 0) out.emit = W(NAN);
  return out;
}

/// The sum of e^x of a row as 2^(x log2(e) - top), so that a term is one fma and one exponential.
/// `top` is the largest value times log2(e), rounded, against which all terms are held alike.
template <class W>
struct RowSum {
  static constexpr W log2_e = W(1.4426950408889634), ln_2 = W(0.69314718055994531);

  W top = device::minus_infinity<W>();
  W sum = 0;

  /// Makes `top` fit `highest`, the largest of the values to come.
  __device__ void raise(W highest) {
    const W other = highest * log2_e;
    if (!(other > top)) return;
    sum *= device::exp2_of(top - other);
    top = other;
  }
  template <int N>
  __device__ void add(const W (&values)[N]) {
    const W base = base_of(top);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += device::exp2_of(std::fma(values[i], log2_e, -base));
  }
  /// The sums of the L lanes of a group as one.
  template <int L>
  __device__ RowSum over_group() const {
    const W all = group_reduce<L>(top, device::Max{});
    return {all, group_reduce<L>(sum * device::exp2_of(top - base_of(all)), device::Sum{})};
  }
  __device__ W log() const { return (base_of(top) + std::log2(sum)) * ln_2; }

 private:
  /// As long as all is -infinity there is no difference to take; a NaN comes through either way.
  static __device__ W base_of(W top) { return top == device::minus_infinity<W>() ? W(0) : top; }
};

/// The largest element of packs that is not NaN, if there is any; `has(k)`: pack k counts.
template <class T, int N, class Has>
__device__ wide<T> largest(const Raw<T, N> (&packs)[packs_at_once], Has&& has) {
  wide<T> most = device::minus_infinity<wide<T>>();
#pragma unroll
  for (int k = 0; k < packs_at_once; ++k) {
    if (!has(k)) continue;
    if constexpr (sizeof(T) == 2 && N == 8) {
      using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
      const auto two = [&](int i) { return reinterpret_cast<const Two&>(packs[k].at[i]); };
      const Two pair = __hmax2(__hmax2(two(0), two(1)), __hmax2(two(2), two(3)));
      most = fmax(most, fmax(widen(pair.x), widen(pair.y)));
    } else {
      wide<T> values[N];
      device::widen_pack<T>(packs[k], values);
#pragma unroll
      for (int i = 0; i < N; ++i) most = fmax(most, values[i]);
    }
  }
  return most;
}

/// lse of each row, and the weights of the two transitions out of its cell. A row's loads are on
/// their way while the row before is reduced.
template <class T, int N, int L, Fit fit>
__global__ void __launch_bounds__(row_threads, sizeof(T) == 8       ? 2
                                               : fit == Fit::ragged ? 4
                                                                    : 5)
    rows_kernel(const T* logits, int classes, int64_t rows, Utterances utterances, Rules rules,
                wide<T>* lse, Tables<wide<T>> tables) {
  using W = wide<T>;
  wait_for_previous_launch();
  const int lane = threadIdx.x % L;
  const Row row = kept_row<L>(utterances, rows);
  Raw<T, N> packs[packs_at_once];
  const auto packs_of = [&](int turn) {
    return Packs<const T, N, fit>(logits + row_number<L>(turn) * classes, classes);
  };
  const auto has = [](int p, int count, int k) { return fit == Fit::whole || p + k * L < count; };
  const auto fetch = [&](int turn, int count, int p) {
    if (p >= count) return;
    const auto from = packs_of(turn);
#pragma unroll
    for (int k = 0; k < packs_at_once; ++k)
      if (has(p, count, k)) packs[k] = from.load(p + k * L, narrow<T>(W(-INFINITY)));
  };
  const auto count_of = [&](int turn) {
    return from_keeper<L>(row.inside, turn) ? packs_of(turn).count() : 0;
  };
  int count = count_of(0);
  fetch(0, count, lane);
  Exits<W> exits = exits_of<W>(row, rules, classes);
  RowSum<W> kept;  // of the row kept
#pragma unroll 1
  for (int turn = 0; turn < rows_each; ++turn) {
    RowSum<W> running;
    for (int p = lane; p < count; p += L * packs_at_once) {
      if (p > lane) fetch(turn, count, p);
      running.raise(largest<T, N>(packs, [&](int k) { return has(p, count, k); }));
#pragma unroll
      for (int k = 0; k < packs_at_once; ++k) {
        if (!has(p, count, k)) continue;
        W values[N];
        device::widen_pack<T>(packs[k], values);
        running.add(values);
      }
    }
    if (lane == turn && exits.cell >= 0) exits.read(logits + row.number * classes, rules.blank);
    if (turn + 1 < rows_each) {
      count = count_of(turn + 1);
      fetch(turn + 1, count, lane);
    }
    const RowSum<W> all = running.template over_group<L>();
    if (lane == turn) kept = all;
  }
  if (exits.cell < 0) return;
  const W log_sum = kept.log();
  lse[row.number] = log_sum;
  tables.transitions[exits.cell] = {
      scaled_exp(exits.step_is_logit ? exits.step - log_sum : exits.step),
      exits.emits ? scaled_exp(exits.emit_is_logit ? exits.emit - log_sum : exits.emit)
                  : Scaled<W>::zero()};
}

}  // namespace

}  // namespace loss_rows

void transducer_loss(const Tensor& logits, const Tensor& targets, const Tensor& logit_lengths,
                     const Tensor& target_lengths, const TransducerLossResult& result,
                     const Tensor& losses, const TransducerLossOptions& options, Stream stream) {
  const char* op = "transducer_loss";
  const TransducerSizes s = transducer_sizes(op, logits, targets);
  const Utterances where = utterances(s, result.utterances);
  const loss_rows::Rules rules = loss_rows::rules_of(targets, options);
  locate_utterances(s, logit_lengths, target_lengths, result.utterances, stream);
  visit_floating(op, logits.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = device::wide<D>;
    const D* from = pointer<T>(logits);
    if (s.rows == 0 || s.batch == 0) return;
    loss_rows::visit_lanes<T>(
        from, from, s.classes,
        [&]<int N, int L, loss_rows::Fit fit>(std::integral_constant<int, N>,
                                              std::integral_constant<int, L>,
                                              std::integral_constant<loss_rows::Fit, fit>) {
          launch_early(loss_rows::rows_kernel<D, N, L, fit>, loss_rows::row_blocks<L>(s.rows),
                       loss_rows::row_threads, 0, stream, from, static_cast<int>(s.classes), s.rows,
                       where, rules, pointer<W>(result.lse), tables_of<W>(result.lattice));
        });
  });
  sum_paths(s, result, losses, options, stream);
}

}  // namespace bs::cuda
