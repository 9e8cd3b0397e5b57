// The gradient of a transducer's logits: one read of the rows that paths pass, one write of all.
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/transducer/transducer_loss_rows.cuh>

namespace bs::cuda {

namespace loss_rows {

namespace {

/// What the two transitions out of a cell weigh in the gradient of its row's logits.
template <class W>
struct Shares {
  W emit = 0, step = 0;
};

template <class W>
__device__ Shares<W> shares_of(const Row& row, const Classes& chosen, const Rules& rules,
                               const Tables<W>& tables) {
  Shares<W> out;
  if (!row.inside) return out;
  const Utterance& one = row.one;
  const int64_t cell = one.cell_of(row.t, row.u);
  const Scaled<W> alpha = tables.alpha[cell];
  const Transitions<W> next = tables.transitions[cell];
  const Scaled<W> total = tables.beta[one.cell];
  const bool has_label = row.u < one.labels;
  if (has_label && !chosen.star)
    out.emit = static_cast<W>(rules.fastemit) *
               scaled_ratio(alpha * next.label, tables.beta[one.cell_of(row.t, row.u + 1)], total);
  const bool leaves = row.t + 1 < one.frames;
  if (!chosen.after_star && (leaves || !has_label))
    out.step =
        scaled_ratio(alpha * next.blank,
                     leaves ? tables.beta[one.cell_of(row.t + 1, row.u)] : Scaled<W>::one(), total);
  return out;
}

template <class W>
struct Gradients {
  const W* dloss;
  int64_t step;  ///< from one utterance's to the next: 0 for a scalar
  W each, clamp;

  __device__ W bounded(W x) const {
    if (clamp > 0) x = x > clamp ? clamp : x < -clamp ? -clamp : x;  // keeps NaN
    return x;
  }
};

/// A row's gradient: e^(x - lse) times `both`, less the shares of its two classes, times `scale`.
template <class W>
struct RowGradient {
  W both = 0, log_sum = 0, scale = 0;
  W less_label = 0, less_blank = 0;
  int label = -1;
  bool visited = false;  ///< else it is zero

  template <int L>
  __device__ RowGradient of_keeper(int turn) const {
    const auto from = [&](auto value) { return from_keeper<L>(value, turn); };
    return {from(both),       from(log_sum), from(scale),  from(less_label),
            from(less_blank), from(label),   from(visited)};
  }
};

/// That of the row that this lane keeps.
template <class T>
__device__ RowGradient<wide<T>> gradient_of(const Row& row, const Rules& rules, int classes,
                                            const wide<T>* lse, const Tables<wide<T>>& tables,
                                            const Gradients<wide<T>>& gradients) {
  using W = wide<T>;
  const Classes chosen = classes_of(row, rules, classes);
  const Shares<W> shares = shares_of(row, chosen, rules, tables);
  RowGradient<W> out;
  out.visited = !(shares.emit == 0 && shares.step == 0);  // a NaN is no zero
  if (!out.visited) return out;
  out.both = shares.emit + shares.step;
  out.log_sum = lse[row.number];
  out.scale = gradients.dloss[row.utterance * gradients.step] * gradients.each;
  out.label = chosen.label;
  out.less_label = shares.emit;
  out.less_blank = shares.step;
  return out;
}

/// Writes a row as packs. `bounded`: each element before it is multiplied by `scale`.
template <bool bounded, class T, int N, int L, Fit fit>
__device__ void write_row(const Packs<const T, N, fit>& from, const Packs<T, N, fit>& to,
                          const RowGradient<wide<T>>& row, const Gradients<wide<T>>& gradients,
                          int blank) {
  using W = wide<T>;
  constexpr W log2_e = W(1.4426950408889634);
  const int lane = threadIdx.x % L;
  const int count = to.count();
  const W weight = bounded ? row.both : row.scale * row.both;
  const W less_label = bounded ? row.less_label : row.scale * row.less_label;
  const W less_blank = bounded ? row.less_blank : row.scale * row.less_blank;
  for (int p = lane; p < count; p += L * packs_at_once) {
    Raw<T, N> packs[packs_at_once];
    const auto has = [&](int k) { return fit == Fit::whole || p + k * L < count; };
#pragma unroll
    for (int k = 0; k < packs_at_once; ++k)
      if (has(k)) packs[k] = from.load(p + k * L, T{});
#pragma unroll
    for (int k = 0; k < packs_at_once; ++k) {
      if (!has(k)) continue;
      W values[N];
      device::widen_pack<T>(packs[k], values);
#pragma unroll
      for (int i = 0; i < N; ++i)
        values[i] = weight * device::exp2_of((values[i] - row.log_sum) * log2_e);
      const auto take_off = [&](int position, W less) {
        const int at = position - ((p + k * L) * N - to.before);
        if (static_cast<unsigned>(at) >= static_cast<unsigned>(N)) return;
#pragma unroll
        for (int i = 0; i < N; ++i)
          if (i == at) values[i] -= less;
      };
      if (row.label >= 0) take_off(row.label, less_label);
      take_off(blank, less_blank);
      if constexpr (bounded) {
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] = row.scale * gradients.bounded(values[i]);
      }
      to.store(p + k * L, device::narrow_pack<T>(values));
    }
  }
}

/// dlogits of each row, in place where both pointers are one.
template <class T, int N, int L, Fit fit>
__global__ void __launch_bounds__(row_threads, sizeof(T) == 8 ? 2 : 4)
    gradient_kernel(const T* logits, T* dlogits, int classes, int64_t rows, Utterances utterances,
                    Rules rules, const wide<T>* lse, Tables<wide<T>> tables,
                    Gradients<wide<T>> gradients) {
  using W = wide<T>;
  const Row row = kept_row<L>(utterances, rows);
  const RowGradient<W> kept = gradient_of<T>(row, rules, classes, lse, tables, gradients);
  const auto blank = static_cast<int>(rules.blank);
#pragma unroll 1
  for (int turn = 0; turn < rows_each; ++turn) {
    const int64_t number = row_number<L>(turn);
    const RowGradient<W> own = kept.template of_keeper<L>(turn);
    if (number >= rows) continue;
    const Packs<const T, N, fit> from(logits + number * classes, classes);
    const Packs<T, N, fit> to(dlogits + number * classes, classes);
    if (!own.visited) {
      for (int p = threadIdx.x % L; p < to.count(); p += L) to.store(p, Pack<T, N>{});
    } else if (gradients.clamp > 0) {
      write_row<true, T, N, L, fit>(from, to, own, gradients, blank);
    } else {
      write_row<false, T, N, L, fit>(from, to, own, gradients, blank);
    }
  }
}

}  // namespace

}  // namespace loss_rows

void transducer_loss_backward(const Tensor& logits, const Tensor& targets,
                              const TransducerLossResult& result, const Tensor& dloss,
                              const Tensor& dlogits, const TransducerLossOptions& options,
                              Stream stream) {
  const char* op = "transducer_loss_backward";
  const TransducerSizes s = transducer_sizes(op, logits, targets);
  if (s.batch == 0) return;
  visit_floating(op, logits.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = device::wide<D>;
    const loss_rows::Gradients<W> gradients{
        pointer<W>(dloss), options.reduction == Reduction::none ? 1 : 0,
        options.reduction == Reduction::mean ? W(1) / static_cast<W>(s.batch) : W(1),
        static_cast<W>(options.clamp)};
    const D* from = pointer<T>(logits);
    D* to = pointer<T>(dlogits);
    loss_rows::visit_lanes<T>(
        from, to, s.classes,
        [&]<int N, int L, loss_rows::Fit fit>(std::integral_constant<int, N>,
                                              std::integral_constant<int, L>,
                                              std::integral_constant<loss_rows::Fit, fit>) {
          loss_rows::gradient_kernel<D, N, L, fit>
              <<<loss_rows::row_blocks<L>(s.rows), loss_rows::row_threads, 0, native(stream)>>>(
                  from, to, static_cast<int>(s.classes), s.rows, utterances(s, result.utterances),
                  loss_rows::rules_of(targets, options), pointer<W>(result.lse),
                  tables_of<W>(result.lattice), gradients);
        });
  });
  BS_CUDA_CHECK_LAUNCH(op);
}

}  // namespace bs::cuda
