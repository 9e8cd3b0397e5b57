#include <bs/kernels/cuda/device/pack.cuh>
#include <bs/kernels/cuda/device/running_sum.cuh>
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/transducer_lattice.cuh>

#include <bit>
#include <cmath>
#include <limits>

namespace bs::cuda {

namespace {

using device::narrow;
using device::Pack;
using device::Raw;
using device::wide;
using device::widen;

constexpr int row_threads = 256;
constexpr int rows_each = 4;      ///< of a group of lanes, one after the other
constexpr int packs_at_once = 4;  ///< loads of a lane in flight
constexpr unsigned all_lanes = 0xffffffffU;

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

Rules rules_of(const Tensor& targets, const TransducerLossOptions& o) {
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
  row.utterance = utterances.find(row.number, 0);
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

/// The classes of a row's two transitions, and their logits.
template <class W>
struct Chosen {
  int label = -1;  ///< -1: there is none, or it is no class
  bool star = false, after_star = false;
  W blank = 0, emitted = W(NAN);
};

template <class T>
__device__ Chosen<wide<T>> chosen_of(const Row& row, const Rules& rules, const T* logits,
                                     int classes) {
  Chosen<wide<T>> out;
  if (!row.inside) return out;
  const T* x = logits + row.number * classes;
  out.blank = widen(x[rules.blank]);
  if (row.u > 0) out.after_star = rules.label(row.utterance, row.u - 1) == rules.star;
  if (row.u == row.one.labels) return out;
  const int64_t label = rules.label(row.utterance, row.u);
  out.star = label == rules.star;
  if (label < 0 || label >= classes) return out;
  out.label = static_cast<int>(label);
  out.emitted = widen(x[label]);
  return out;
}

/// A row of n elements as packs of N from the last multiple of 16 bytes before it on. Of the first
/// and the last pack only what belongs to the row is touched. `aligned`: rows begin and end at such
/// multiples.
template <class T, int N, bool aligned>
struct Packs {
  using Element = std::remove_const_t<T>;

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
    if (whole(p)) return reinterpret_cast<const Raw<Element, N>*>(base)[p];
    Pack<Element, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) out.at[i] = has(p, i) ? base[p * N + i] : other;
    return std::bit_cast<Raw<Element, N>>(out);
  }
  __device__ void store(int p, const Pack<T, N>& values) const {
    if (whole(p)) {
      reinterpret_cast<Pack<T, N>*>(base)[p] = values;
      return;
    }
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (has(p, i)) base[p * N + i] = values.at[i];
  }
};

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
};

template <class T>
__device__ Exits<wide<T>> exits_of(const Row& row, const Rules& rules, const T* logits,
                                   int classes) {
  using W = wide<T>;
  Exits<W> out;
  if (!row.inside) return out;
  const Chosen<W> chosen = chosen_of(row, rules, logits, classes);
  out.cell = row.one.cell_of(row.t, row.u);
  out.step_is_logit = !chosen.after_star;
  out.step = chosen.after_star ? static_cast<W>(rules.log_star_penalty) : chosen.blank;
  out.emits = row.u < row.one.labels;
  out.emit_is_logit = !chosen.star;
  out.emit = (chosen.star ? W(0) : chosen.emitted) +
             static_cast<W>(rules.penalty(chosen.label, row.one.frames, row.t));
  return out;
}

/// The largest element of a pack that is not NaN, if there is any.
template <class T, int N>
__device__ wide<T> largest(const Raw<T, N>& raw) {
  if constexpr (sizeof(T) == 2 && N == 8) {
    using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    const auto two = [&](int i) { return reinterpret_cast<const Two&>(raw.at[i]); };
    const Two most = __hmax2(__hmax2(two(0), two(1)), __hmax2(two(2), two(3)));
    return fmax(widen(most.x), widen(most.y));
  } else {
    const auto pack = std::bit_cast<Pack<T, N>>(raw);
    wide<T> most = widen(pack.at[0]);
#pragma unroll
    for (int i = 1; i < N; ++i) most = fmax(most, widen(pack.at[i]));
    return most;
  }
}

/// lse of each row, and the weights of the two transitions out of its cell. A row's loads are on
/// their way while the row before is reduced.
template <class T, int N, int L, bool aligned>
__global__ void __launch_bounds__(row_threads, sizeof(T) == 8 ? 2 : 5)
    rows_kernel(const T* logits, int classes, int64_t rows, Utterances utterances, Rules rules,
                wide<T>* lse, Tables<wide<T>> tables) {
  using W = wide<T>;
  const int lane = threadIdx.x % L;
  Raw<T, N> packs[packs_at_once];
  const auto packs_of = [&](int turn) {
    return Packs<const T, N, aligned>(logits + row_number<L>(turn) * classes, classes);
  };
  const auto fetch = [&](int turn, int count, int p) {
    const auto from = packs_of(turn);
#pragma unroll
    for (int k = 0; k < packs_at_once; ++k)
      if (p + k * L < count) packs[k] = from.load(p + k * L, narrow<T>(W(-INFINITY)));
  };
  const Row row = kept_row<L>(utterances, rows);
  const auto count_of = [&](int turn) {
    return from_keeper<L>(row.inside, turn) ? packs_of(turn).count() : 0;
  };
  int count = count_of(0);
  fetch(0, count, lane);
  const Exits<W> exits = exits_of(row, rules, logits, classes);
  W log_sum = 0;  // of the row kept
#pragma unroll 1
  for (int turn = 0; turn < rows_each; ++turn) {
    device::RunningSum<W> running;
    for (int p = lane; p < count; p += L * packs_at_once) {
      if (p > lane) fetch(turn, count, p);
      W highest = W(-INFINITY);
#pragma unroll
      for (int k = 0; k < packs_at_once; ++k)
        if (p + k * L < count) highest = fmax(highest, largest<T, N>(packs[k]));
      running.raise(highest);
#pragma unroll
      for (int k = 0; k < packs_at_once; ++k) {
        if (p + k * L >= count) continue;
        const auto pack = std::bit_cast<Pack<T, N>>(packs[k]);
        W values[N];
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] = widen(pack.at[i]);
        running.add_under_top(values);
      }
    }
    if (turn + 1 < rows_each) {
      count = count_of(turn + 1);
      fetch(turn + 1, count, lane);
    }
    const W top = group_reduce<L>(running.top, device::Max{});
    const W sum = group_reduce<L>(running.sum_under(top), device::Sum{});
    if (lane == turn) log_sum = device::RunningSum<W>{top, sum}.log();
  }
  if (exits.cell < 0) return;
  lse[row_number<L>(lane)] = log_sum;
  tables.transitions[exits.cell] = {
      scaled_exp(exits.step_is_logit ? exits.step - log_sum : exits.step),
      exits.emits ? scaled_exp(exits.emit_is_logit ? exits.emit - log_sum : exits.emit)
                  : Scaled<W>::zero()};
}

/// What the two transitions out of a cell weigh in the gradient of its row's logits.
template <class W>
struct Shares {
  W emit = 0, step = 0;
};

template <class W>
__device__ Shares<W> shares_of(const Row& row, const Chosen<W>& chosen, const Rules& rules,
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

template <class W>
__device__ W softmax_of(W x, W log_sum) {
  return device::exp2_of((x - log_sum) * device::RunningSum<W>::log2_e);
}

/// dlogits of each row, in place where both pointers are one.
template <class T, int N, int L, bool aligned>
__global__ void __launch_bounds__(row_threads, sizeof(T) == 8 ? 2 : 4)
    gradient_kernel(const T* logits, T* dlogits, int classes, int64_t rows, Utterances utterances,
                    Rules rules, const wide<T>* lse, Tables<wide<T>> tables,
                    Gradients<wide<T>> gradients) {
  using W = wide<T>;
  const int lane = threadIdx.x % L;
  const Row row = kept_row<L>(utterances, rows);
  const Chosen<W> chosen = chosen_of(row, rules, logits, classes);
  const Shares<W> shares = shares_of(row, chosen, rules, tables);
  const bool visited = !(shares.emit == 0 && shares.step == 0);  // a NaN is no zero
  const W both = shares.emit + shares.step;
  const W scale = visited ? gradients.dloss[row.utterance * gradients.step] * gradients.each : W(0);
  const W log_sum = visited ? lse[row.number] : W(0);
  __syncwarp();  // before others write where keepers have read
#pragma unroll 1
  for (int turn = 0; turn < rows_each; ++turn) {
    const int64_t number = row_number<L>(turn);
    const Packs<const T, N, aligned> from(logits + number * classes, classes);
    const Packs<T, N, aligned> to(dlogits + number * classes, classes);
    const int count = number < rows ? to.count() : 0;
    const W row_both = from_keeper<L>(both, turn);
    const W row_scale = from_keeper<L>(scale, turn);
    const W row_log_sum = from_keeper<L>(log_sum, turn);
    const auto write = [&](auto bounded) {
      const W factor = row_scale * row_both;
      for (int p = lane; p < count; p += L * packs_at_once) {
        Raw<T, N> packs[packs_at_once];
#pragma unroll
        for (int k = 0; k < packs_at_once; ++k)
          if (p + k * L < count) packs[k] = from.load(p + k * L, T{});
#pragma unroll
        for (int k = 0; k < packs_at_once; ++k) {
          if (p + k * L >= count) continue;
          const auto pack = std::bit_cast<Pack<T, N>>(packs[k]);
          W values[N];
#pragma unroll
          for (int i = 0; i < N; ++i) {
            const W share = softmax_of(widen(pack.at[i]), row_log_sum);
            values[i] = bounded ? row_scale * gradients.bounded(row_both * share) : factor * share;
          }
          to.store(p + k * L, device::narrow_pack<T>(values));
        }
      }
    };
    if (!from_keeper<L>(visited, turn)) {
      for (int p = lane; p < count; p += L) to.store(p, Pack<T, N>{});
    } else if (gradients.clamp > 0) {
      write(std::true_type{});
    } else {
      write(std::false_type{});
    }
  }
  __syncwarp();  // before the special elements are written over
  if (!visited) return;
  T* dx = dlogits + row_number<L>(lane) * classes;
  const auto special = [&](int64_t at, W logit, W less) {
    dx[at] = narrow<T>(scale * gradients.bounded(both * softmax_of(logit, log_sum) - less));
  };
  const bool same = chosen.label == rules.blank;
  special(rules.blank, chosen.blank, same ? shares.step + shares.emit : shares.step);
  if (chosen.label >= 0 && !same) special(chosen.label, chosen.emitted, shares.emit);
}

/// Calls f(pack size, lanes, aligned) as constants: rows in packs of 16 bytes where both tensors
/// lie equally far from a multiple of them, and as many lanes as keep a row in a few loads each.
template <class T, class F>
void visit_lanes(const void* from, const void* to, int64_t classes, F&& f) {
  constexpr int most = device::pack_size<T>;
  const auto lanes = [&]<int N>(std::integral_constant<int, N> pack, auto aligned) {
    if (classes <= 4 * packs_at_once * N) return f(pack, std::integral_constant<int, 4>{}, aligned);
    if (classes <= 8 * packs_at_once * N) return f(pack, std::integral_constant<int, 8>{}, aligned);
    if (classes <= 16 * packs_at_once * N)
      return f(pack, std::integral_constant<int, 16>{}, aligned);
    return f(pack, std::integral_constant<int, 32>{}, aligned);
  };
  const auto off = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16; };
  if (off(from) != off(to)) return lanes(std::integral_constant<int, 1>{}, std::true_type{});
  const std::integral_constant<int, most> pack;
  off(from) == 0 && classes % most == 0 ? lanes(pack, std::true_type{})
                                        : lanes(pack, std::false_type{});
}

template <int L>
unsigned row_blocks(int64_t rows) {
  return static_cast<unsigned>(ceil_div(rows, row_threads / L * rows_each));
}

}  // namespace

void transducer_loss(const Tensor& logits, const Tensor& targets, const Tensor& logit_lengths,
                     const Tensor& target_lengths, const TransducerLossResult& result,
                     const Tensor& losses, const TransducerLossOptions& options, Stream stream) {
  const char* op = "transducer_loss";
  const TransducerSizes s = transducer_sizes(op, logits, targets);
  const Utterances where = utterances(s, result.utterances);
  const Rules rules = rules_of(targets, options);
  locate_utterances(s, logit_lengths, target_lengths, result.utterances, stream);
  visit_floating(op, logits.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    const Tables<W> tables = tables_of<W>(result.lattice);
    const D* from = pointer<T>(logits);
    if (s.rows > 0 && s.batch > 0)
      visit_lanes<T>(from, from, s.classes,
                     [&]<int N, int L, bool aligned>(std::integral_constant<int, N>,
                                                     std::integral_constant<int, L>,
                                                     std::bool_constant<aligned>) {
                       rows_kernel<D, N, L, aligned>
                           <<<row_blocks<L>(s.rows), row_threads, 0, native(stream)>>>(
                               from, static_cast<int>(s.classes), s.rows, where, rules,
                               pointer<W>(result.lse), tables);
                     });
  });
  BS_CUDA_CHECK_LAUNCH(op);
  sum_paths(s, result, losses, options, stream);
}

void transducer_loss_backward(const Tensor& logits, const Tensor& targets,
                              const TransducerLossResult& result, const Tensor& dloss,
                              const Tensor& dlogits, const TransducerLossOptions& options,
                              Stream stream) {
  const char* op = "transducer_loss_backward";
  const TransducerSizes s = transducer_sizes(op, logits, targets);
  if (s.batch == 0) return;
  visit_floating(op, logits.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    const Gradients<W> gradients{
        pointer<W>(dloss), options.reduction == Reduction::none ? 1 : 0,
        options.reduction == Reduction::mean ? W(1) / static_cast<W>(s.batch) : W(1),
        static_cast<W>(options.clamp)};
    const D* from = pointer<T>(logits);
    D* to = pointer<T>(dlogits);
    visit_lanes<T>(from, to, s.classes,
                   [&]<int N, int L, bool aligned>(std::integral_constant<int, N>,
                                                   std::integral_constant<int, L>,
                                                   std::bool_constant<aligned>) {
                     gradient_kernel<D, N, L, aligned>
                         <<<row_blocks<L>(s.rows), row_threads, 0, native(stream)>>>(
                             from, to, static_cast<int>(s.classes), s.rows,
                             utterances(s, result.utterances), rules_of(targets, options),
                             pointer<W>(result.lse), tables_of<W>(result.lattice), gradients);
                   });
  });
  BS_CUDA_CHECK_LAUNCH(op);
}

}  // namespace bs::cuda
