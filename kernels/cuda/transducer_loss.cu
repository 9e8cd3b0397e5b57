#include <bs/kernels/cuda/device/running_sum.cuh>
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/transducer_lattice.cuh>

#include <cmath>

namespace bs::cuda {

namespace {

using device::narrow;
using device::Pack;
using device::wide;
using device::widen;

constexpr int row_threads = 256;
constexpr int rows_each = 4;      ///< of a group of lanes, one after the other
constexpr int packs_at_once = 4;  ///< loads of a lane in flight

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
  return {integers(targets),
          targets.size(1),
          o.blank,
          o.eos,
          o.star,
          o.delay_penalty,
          o.eos_penalty,
          std::log(o.star_penalty),
          1 + o.fastemit_lambda};
}

/// One row as its group of L lanes sees it.
struct Row {
  int64_t number;
  int utterance;
  Utterance one;
  int t, u;
  bool inside;  ///< within the lengths
};

/// Calls body(row, active) for the rows of this block, by groups of L lanes; all lanes of a warp
/// call it equally often.
template <int L, class Body>
__device__ void for_each_row(const Utterances& utterances, int64_t rows, Body&& body) {
  constexpr int groups = row_threads / L;
  const int64_t first = int64_t{blockIdx.x} * (groups * rows_each);
  int b = utterances.find(first, 0);
#pragma unroll 1
  for (int turn = 0; turn < rows_each; ++turn) {
    Row row;
    row.number = first + turn * groups + threadIdx.x / L;
    const bool active = row.number < rows;
    while (b + 1 < utterances.batch && utterances.row(b + 1) <= row.number) ++b;
    row.utterance = b;
    row.one = utterances[b];
    const auto at = static_cast<unsigned>(row.number - row.one.row);
    row.t = static_cast<int>(at / static_cast<unsigned>(row.one.stride));
    row.u = static_cast<int>(at % static_cast<unsigned>(row.one.stride));
    row.inside = active && row.t < row.one.frames && row.u <= row.one.labels;
    body(row, active);
  }
}

/// A row of n elements as packs of N from the last multiple of 16 bytes before it on. Of the first
/// and the last pack only what belongs to the row is touched.
template <class T, int N>
struct Packs {
  T* base;
  int before, end;  ///< the row's elements are base[before .. end)

  __device__ Packs(T* row, int n)
      : base(row),
        before(N == 1 ? 0 : static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T))) {
    base -= before;
    end = before + n;
  }
  __device__ int count() const { return (end + N - 1) / N; }
  __device__ bool whole(int p) const { return p * N >= before && (p + 1) * N <= end; }
  __device__ bool has(int p, int i) const { return p * N + i >= before && p * N + i < end; }
};

template <class T, int N>
__device__ Pack<T, N> load(const Packs<const T, N>& row, int p, T other) {
  Pack<T, N> out;
  if (row.whole(p)) return reinterpret_cast<const Pack<T, N>*>(row.base)[p];
#pragma unroll
  for (int i = 0; i < N; ++i) out.at[i] = row.has(p, i) ? row.base[p * N + i] : other;
  return out;
}

template <class T, int N>
__device__ void store(const Packs<T, N>& row, int p, const Pack<T, N>& values) {
  if (row.whole(p)) {
    reinterpret_cast<Pack<T, N>*>(row.base)[p] = values;
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (row.has(p, i)) row.base[p * N + i] = values.at[i];
}

template <int L, class W, class Op>
__device__ W group_reduce(W value, Op op) {
#pragma unroll
  for (int offset = L / 2; offset > 0; offset /= 2)
    value = op(value, __shfl_xor_sync(0xffffffffU, value, offset));
  return value;
}

/// lse of each row, and the weights of the two transitions out of its cell: by the group's first
/// lane that of the blank, by the second that of the label.
template <class T, int N, int L>
__global__ void __launch_bounds__(row_threads, sizeof(T) == 8 ? 2 : 3)
    rows_kernel(const T* logits, int classes, int64_t rows, Utterances utterances, Rules rules,
                wide<T>* lse, Tables<wide<T>> tables) {
  using W = wide<T>;
  const int lane = threadIdx.x % L;
  for_each_row<L>(utterances, rows, [&](const Row& row, bool) {
    const T* x = logits + row.number * classes;
    const Packs<const T, N> packs(x, classes);
    int64_t wanted = -1;  // the class of this lane's transition
    if (row.inside && lane == 0) wanted = rules.blank;
    if (row.inside && lane == 1 && row.u < row.one.labels)
      wanted = rules.label(row.utterance, row.u);
    const bool exists = wanted >= 0 && wanted < classes;
    const W chosen = exists ? widen(x[wanted]) : W(NAN);
    device::RunningSum<W> running;
    const int count = row.inside ? packs.count() : 0;
    for (int p = lane; p < count; p += L * packs_at_once) {
      W values[packs_at_once * N];
#pragma unroll
      for (int k = 0; k < packs_at_once; ++k) {
        Pack<T, N> pack;
        const bool there = p + k * L < count;
        if (there) pack = load<T, N>(packs, p + k * L, narrow<T>(W(-INFINITY)));
#pragma unroll
        for (int i = 0; i < N; ++i) values[k * N + i] = there ? widen(pack.at[i]) : W(-INFINITY);
      }
      running.add(values);
    }
    const W top = group_reduce<L>(running.top, device::Max{});
    const W sum = group_reduce<L>(running.sum_under(top), device::Sum{});
    const W log_sum = device::RunningSum<W>{top, sum}.log();
    if (!row.inside || lane > 1) return;
    const int64_t cell = row.one.cell_of(row.t, row.u);
    W weight = chosen - log_sum;
    if (lane == 0) {
      lse[row.number] = log_sum;
      if (row.u > 0 && rules.label(row.utterance, row.u - 1) == rules.star)
        weight = static_cast<W>(rules.log_star_penalty);
      tables.blank[cell] = scaled_exp(weight);
    } else if (row.u < row.one.labels) {
      const auto penalty = static_cast<W>(rules.penalty(wanted, row.one.frames, row.t));
      weight = wanted == rules.star ? penalty : weight + penalty;
      tables.label[cell] = scaled_exp(weight);
    } else {
      tables.label[cell] = Scaled<W>::zero();
    }
  });
}

/// What the two transitions out of a cell weigh in the gradient of its row's logits.
template <class W>
struct Shares {
  W emit = 0, step = 0;
  int64_t label = -1;
};

template <class W>
__device__ Shares<W> shares_of(const Row& row, const Rules& rules, const Tables<W>& tables) {
  Shares<W> out;
  if (!row.inside) return out;
  const Utterance& one = row.one;
  const int64_t cell = one.cell_of(row.t, row.u);
  const Scaled<W> alpha = tables.alpha[cell];
  const Scaled<W> total = tables.beta[one.cell];
  const bool has_label = row.u < one.labels;
  if (has_label) out.label = rules.label(row.utterance, row.u);
  const bool follows_star = row.u > 0 && rules.label(row.utterance, row.u - 1) == rules.star;
  if (has_label && out.label != rules.star)
    out.emit =
        static_cast<W>(rules.fastemit) *
        scaled_ratio(alpha * tables.label[cell], tables.beta[one.cell_of(row.t, row.u + 1)], total);
  const bool leaves = row.t + 1 < one.frames;
  if (!follows_star && (leaves || !has_label))
    out.step =
        scaled_ratio(alpha * tables.blank[cell],
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

/// dlogits of each row, in place where both pointers are one.
template <class T, int N, int L>
__global__ void __launch_bounds__(row_threads, sizeof(T) == 8 ? 2 : 3)
    gradient_kernel(const T* logits, T* dlogits, int classes, int64_t rows, Utterances utterances,
                    Rules rules, const wide<T>* lse, Tables<wide<T>> tables,
                    Gradients<wide<T>> gradients) {
  using W = wide<T>;
  const int lane = threadIdx.x % L;
  for_each_row<L>(utterances, rows, [&](const Row& row, bool active) {
    const T* x = logits + row.number * classes;
    T* dx = dlogits + row.number * classes;
    const Packs<const T, N> from(x, classes);
    const Packs<T, N> to(dx, classes);
    const int count = active ? to.count() : 0;
    const Shares<W> shares = shares_of(row, rules, tables);
    const bool visited = !(shares.emit == 0 && shares.step == 0);  // a NaN is no zero
    const W both = shares.emit + shares.step;
    const W scale =
        visited ? gradients.dloss[row.utterance * gradients.step] * gradients.each : W(0);
    const W log_sum = visited ? lse[row.number] : W(0);
    const auto softmax = [&](W value) {
      return device::exp2_of((value - log_sum) * device::RunningSum<W>::log2_e);
    };
    const int64_t wanted = lane == 0 ? rules.blank : shares.label;
    const bool exists = visited && lane < 2 && wanted >= 0 && wanted < classes;
    const W chosen = exists ? softmax(widen(x[wanted])) : W(0);
    __syncwarp();  // before others write there
    if (!visited)
      for (int p = lane; p < count; p += L) store<T, N>(to, p, Pack<T, N>{});
    for (int p = lane; visited && p < count; p += L * packs_at_once) {
      Pack<T, N> pack[packs_at_once];
#pragma unroll
      for (int k = 0; k < packs_at_once; ++k)
        if (p + k * L < count) pack[k] = load<T, N>(from, p + k * L, T{});
#pragma unroll
      for (int k = 0; k < packs_at_once; ++k) {
        if (p + k * L >= count) continue;
#pragma unroll
        for (int i = 0; i < N; ++i)
          pack[k].at[i] =
              narrow<T>(scale * gradients.bounded(both * softmax(widen(pack[k].at[i]))));
        store<T, N>(to, p + k * L, pack[k]);
      }
    }
    __syncwarp();  // before the two special elements are written over
    if (!exists || (lane == 1 && wanted == rules.blank)) return;
    W value = both * chosen;
    if (lane == 0) value -= shares.step;
    if (wanted == shares.label) value -= shares.emit;
    dx[wanted] = narrow<T>(scale * gradients.bounded(value));
  });
}

/// Calls f(pack size, lanes) as constants: rows in packs of 16 bytes where both tensors lie equally
/// far from a multiple of them, and as many lanes as keep a row in a few loads each.
template <class T, class F>
void visit_lanes(const void* from, const void* to, int64_t classes, F&& f) {
  constexpr int most = device::pack_size<T>;
  const auto lanes = [&]<int N>(std::integral_constant<int, N> pack) {
    if (classes <= 4 * packs_at_once * N) return f(pack, std::integral_constant<int, 4>{});
    if (classes <= 8 * packs_at_once * N) return f(pack, std::integral_constant<int, 8>{});
    if (classes <= 16 * packs_at_once * N) return f(pack, std::integral_constant<int, 16>{});
    return f(pack, std::integral_constant<int, 32>{});
  };
  const bool alike = reinterpret_cast<uintptr_t>(from) % 16 == reinterpret_cast<uintptr_t>(to) % 16;
  alike ? lanes(std::integral_constant<int, most>{}) : lanes(std::integral_constant<int, 1>{});
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
      visit_lanes<T>(
          from, from, s.classes,
          [&]<int N, int L>(std::integral_constant<int, N>, std::integral_constant<int, L>) {
            rows_kernel<D, N, L><<<row_blocks<L>(s.rows), row_threads, 0, native(stream)>>>(
                from, static_cast<int>(s.classes), s.rows, where, rules, pointer<W>(result.lse),
                tables);
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
    visit_lanes<T>(
        from, to, s.classes,
        [&]<int N, int L>(std::integral_constant<int, N>, std::integral_constant<int, L>) {
          gradient_kernel<D, N, L><<<row_blocks<L>(s.rows), row_threads, 0, native(stream)>>>(
              from, to, static_cast<int>(s.classes), s.rows, utterances(s, result.utterances),
              rules_of(targets, options), pointer<W>(result.lse), tables_of<W>(result.lattice),
              gradients);
        });
  });
  BS_CUDA_CHECK_LAUNCH(op);
}

}  // namespace bs::cuda
