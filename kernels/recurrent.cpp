#include <bs/kernels/recurrent.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/linear.h>
#include <bs/kernels/lstm.h>
#include <bs/kernels/lstm_check.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/where.h>

namespace bs::detail {

namespace {

struct Sizes {
  int64_t steps, batch, cells;
};

void check_part(const char* op, const char* name, const Tensor& x, const Tensor& part,
                const Shape& shape) {
  BS_CHECK(part.defined(), "{}: no {}", op, name);
  check_same_device(op, x, part);
  check_same_dtype(op, x, part);
  BS_CHECK(part.shape() == shape, "{}: {} {} where {} is expected", op, name, part.shape(), shape);
}

Sizes check_direction(const RecurrentKind& kind, const Tensor& x, const RecurrentDirection& d) {
  const char* op = kind.op;
  const RecurrentWeights& w = d.weights;
  BS_CHECK(w.ih.defined() && w.ih.rank() == 2 && w.ih.size(0) % kind.gates == 0 && w.ih.size(0) > 0,
           "{}: weight_ih {} is not [{} cells, inputs]", op,
           w.ih.defined() ? w.ih.shape() : Shape(), kind.gates);
  const int64_t sums = w.ih.size(0), cells = sums / kind.gates;
  check_part(op, "weight_ih", x, w.ih, {sums, x.size(2)});
  check_part(op, "weight_hh", x, w.hh, {sums, cells});
  if (w.bias_ih.defined()) check_part(op, "bias_ih", x, w.bias_ih, {sums});
  if (w.bias_hh.defined()) check_part(op, "bias_hh", x, w.bias_hh, {sums});
  if (d.h0.defined()) check_part(op, "h0", x, d.h0, {x.size(1), cells});
  return {x.size(0), x.size(1), cells};
}

Sizes check(const RecurrentKind& kind, const Tensor& x,
            std::span<const RecurrentDirection> directions, const Tensor& lengths) {
  if (!is_floating(x.dtype())) unsupported_dtype(kind.op, x.dtype(), "f64, f32, f16 or bf16");
  BS_CHECK(x.rank() == 3, "{}: x {} is not [steps, batch, inputs]", kind.op, x.shape());
  BS_CHECK(!directions.empty(), "{}: no direction", kind.op);
  Sizes first{};
  for (const RecurrentDirection& d : directions) {
    const Sizes s = check_direction(kind, x, d);
    if (&d == &directions.front()) first = s;
    BS_CHECK(s.cells == first.cells, "{}: directions of {} and {} cells", kind.op, first.cells,
             s.cells);
  }
  if (lengths.defined()) check_lengths(kind.op, x, lengths);
  return first;
}

void set(const Tensor& slot, const Tensor& initial) {
  if (initial.defined()) {
    copy(initial, slot);
  } else {
    fill(slot, 0);
  }
}

Tensor on_device(const Tensor& lengths, const Tensor& x) {
  return lengths.defined() ? to(contiguous(lengths), x.device()) : lengths;
}

/// The bias that the input's product takes along: of a kind that splits its last gate the other one
/// belongs to the recurrent product.
Tensor input_bias(const RecurrentKind& kind, const RecurrentWeights& w) {
  if (kind.splits || !w.bias_hh.defined()) return w.bias_ih;
  return w.bias_ih.defined() ? add(w.bias_ih, w.bias_hh) : w.bias_hh;
}

RecurrentSteps prepare(const RecurrentKind& kind, const Tensor& x, const RecurrentDirection& d,
                       const Tensor& lengths, const Sizes& s) {
  RecurrentSteps p;
  p.gates = linear(x, d.weights.ih, input_bias(kind, d.weights));
  p.h = Tensor::empty({s.steps + 1, s.batch, s.cells}, x.dtype(), x.device());
  if (kind.splits) {
    p.candidate = Tensor::empty({s.steps, s.batch, s.cells}, x.dtype(), x.device());
    if (d.weights.bias_hh.defined()) p.bias = contiguous(d.weights.bias_hh);
  }
  p.hh = contiguous(d.weights.hh);
  p.lengths = lengths;
  p.reverse = d.reverse;
  set(p.h.select(0, d.reverse ? s.steps : 0), d.h0);
  return p;
}

/// [T, B, n] as one matrix of all its rows.
Tensor rows_of(const Tensor& x) { return x.view({x.size(0) * x.size(1), x.size(2)}); }

void check_kept(const char* op, const char* name, const Tensor& kept, const Shape& shape,
                const Tensor& x) {
  BS_CHECK(kept.defined() && kept.shape() == shape && kept.device() == x.device() &&
               kept.is_contiguous() && kept.dtype() == x.dtype(),
           "{}_backward: the result's {} is of another call: this one's is {} of {}", op, name,
           shape, x.dtype());
}

void check_upstream(const char* op, const char* name, const Tensor& given, const Tensor& result) {
  if (!given.defined()) return;
  BS_CHECK(given.shape() == result.shape() && given.device() == result.device() &&
               given.dtype() == result.dtype(),
           "{}_backward: the gradient of {}, {} {}, for {} {}", op, name, given.dtype(),
           given.shape(), result.dtype(), result.shape());
}

RecurrentBackwardSteps prepare_backward(const RecurrentKind& kind, const Tensor& x,
                                        const RecurrentDirection& d, const Tensor& lengths,
                                        const RecurrentResult& r, const RecurrentUpstream& up) {
  const int64_t steps = x.size(0), batch = x.size(1), cells = d.weights.hh.size(1);
  const Shape sums{steps, batch, kind.gates * cells};
  check_kept(kind.op, "hidden", r.hidden, {steps + 1, batch, cells}, x);
  check_kept(kind.op, "gates", r.gates, sums, x);
  if (kind.splits) check_kept(kind.op, "candidate", r.candidate, {steps, batch, cells}, x);
  check_upstream(kind.op, "y", up.y, r.y);
  check_upstream(kind.op, "h_n", up.h_n, r.h_n);
  RecurrentBackwardSteps p;
  p.forward.gates = r.gates;
  p.forward.candidate = r.candidate;
  p.forward.h = r.hidden;
  p.forward.hh = contiguous(d.weights.hh);
  p.forward.lengths = lengths;
  p.forward.reverse = d.reverse;
  if (up.y.defined()) p.dy = contiguous(up.y);
  p.dh = Tensor::empty({batch, cells}, sum_type(x.dtype()), x.device());
  set(p.dh, up.h_n);
  p.dgates = Tensor::empty(sums, x.dtype(), x.device());
  if (kind.splits) p.drecurrent = Tensor::empty(sums, x.dtype(), x.device());
  return p;
}

/// @param[in] x zeros where sequences have no step: 0 times what else might stand there need not be
/// 0
RecurrentWeights weight_gradients(const Tensor& x, const RecurrentWeights& w,
                                  const RecurrentBackwardSteps& p) {
  RecurrentWeights grads;
  const int64_t steps = x.size(0), from = p.forward.reverse ? 1 : 0;
  const Tensor din = rows_of(p.dgates);
  const Tensor drecurrent = p.drecurrent.defined() ? rows_of(p.drecurrent) : din;
  const Tensor before = rows_of(p.forward.h.slice(0, from, from + steps));
  grads.ih = matmul(din.transpose(0, 1), rows_of(x));
  grads.hh = matmul(drecurrent.transpose(0, 1), before);
  if (w.bias_ih.defined()) grads.bias_ih = sum(din, Dims{0});
  if (w.bias_hh.defined()) grads.bias_hh = sum(drecurrent, Dims{0});
  return grads;
}

/// Gates and states are moved once, and weights are counted once.
Work work_of(const RecurrentSteps& p) {
  Work work = Work::product(p.gates, p.cells());
  for (const Tensor& x : {p.gates, p.gates, p.candidate, p.h, p.hh})
    if (x.defined()) work.bytes += static_cast<double>(x.bytes());
  return work;
}

const RecurrentSteps& forward_of(const RecurrentSteps& p) { return p; }
const RecurrentSteps& forward_of(const RecurrentBackwardSteps& p) { return p.forward; }

template <class Steps>
Work sum_of_work(std::span<const Steps> directions) {
  Work all;
  for (const Steps& p : directions) {
    const Work one = work_of(forward_of(p));
    all = {.flops = all.flops + one.flops, .bytes = all.bytes + one.bytes};
  }
  return all;
}

}  // namespace

Work work_of(std::span<const RecurrentSteps> directions) { return sum_of_work(directions); }
Work work_of(std::span<const RecurrentBackwardSteps> directions) { return sum_of_work(directions); }

std::vector<RecurrentResult> recurrent(const RecurrentKind& kind, const Tensor& x,
                                       std::span<const RecurrentDirection> directions,
                                       const Tensor& lengths) {
  const Sizes s = check(kind, x, directions, lengths);
  const Tensor limits = on_device(lengths, x), rows = contiguous(x);
  std::vector<RecurrentSteps> steps;
  for (const RecurrentDirection& d : directions) steps.push_back(prepare(kind, rows, d, limits, s));
  if (s.steps > 0 && s.batch > 0) kind.forward(x.device(), steps);
  std::vector<RecurrentResult> results;
  for (const RecurrentSteps& p : steps) {
    const int64_t from = p.reverse ? 0 : 1;
    results.push_back({p.h.slice(0, from, from + s.steps), p.h.select(0, p.reverse ? 0 : s.steps),
                       p.h, p.gates, p.candidate});
  }
  return results;
}

RecurrentBackward recurrent_backward(const RecurrentKind& kind, const Tensor& x,
                                     std::span<const RecurrentDirection> directions,
                                     const Tensor& lengths,
                                     std::span<const RecurrentResult> results,
                                     std::span<const RecurrentUpstream> upstream,
                                     RecurrentWants wants) {
  const Sizes s = check(kind, x, directions, lengths);
  BS_CHECK(results.size() == directions.size() && upstream.size() == directions.size(),
           "{}_backward: {} results and {} gradients for {} directions", kind.op, results.size(),
           upstream.size(), directions.size());
  const Tensor limits = on_device(lengths, x), rows = contiguous(x);
  std::vector<RecurrentBackwardSteps> steps;
  for (size_t i = 0; i < directions.size(); ++i)
    steps.push_back(prepare_backward(kind, rows, directions[i], limits, results[i], upstream[i]));
  if (s.steps > 0 && s.batch > 0) kind.backward(x.device(), steps);
  const bool ragged = wants.weights && limits.defined();
  const Tensor clean = ragged ? where(steps_within(limits, rows), rows, 0) : rows;
  RecurrentBackward grads;
  for (size_t i = 0; i < directions.size(); ++i) {
    const RecurrentWeights& w = directions[i].weights;
    if (wants.x) {
      const Tensor dx = matmul(rows_of(steps[i].dgates), w.ih).view(x.shape());
      grads.x = grads.x.defined() ? add(grads.x, dx) : dx;
    }
    RecurrentGrads& g = grads.directions.emplace_back();
    if (wants.weights) g.weights = weight_gradients(clean, w, steps[i]);
    g.h0 = cast(steps[i].dh, x.dtype());
  }
  return grads;
}

}  // namespace bs::detail
