#include <bs/kernels/binary.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/linear.h>
#include <bs/kernels/lstm.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/reduce.h>

namespace bs {

namespace {

DType sum_type(DType dtype) { return dtype == f64 ? f64 : f32; }

/// Extents of a layer.
struct Sizes {
  int64_t steps, batch, in, cells, width;
};

void check_weight(const char* op, const char* name, const Tensor& x, const Tensor& weight,
                  const Shape& shape) {
  BS_CHECK(weight.defined(), "{}: no {}", op, name);
  check_same_device(op, x, weight);
  check_same_dtype(op, x, weight);
  BS_CHECK(weight.shape() == shape, "{}: {} {} where {} is expected", op, name, weight.shape(),
           shape);
}

void check_recurrent(const char* op, const Tensor& x, const LSTMWeights& w, const Sizes& s) {
  const Shape dense{4 * s.cells, s.width};
  if (!w.layout) return check_weight(op, "weight_hh", x, w.hh, dense);
  BS_CHECK(
      w.layout->heads() == 1 && w.layout->height() == dense[0] && w.layout->width() == dense[1],
      "{}: the layout of weight_hh, {} heads of [{}, {}], for a weight {}", op, w.layout->heads(),
      w.layout->height(), w.layout->width(), dense);
  const int64_t block = w.layout->block();
  check_weight(op, "weight_hh", x, w.hh, {w.layout->nnz(), block, block});
}

void check_rule(const char* op, const LSTMRule& rule) {
  for (const double p : {rule.zoneout_hidden, rule.zoneout_cell})
    BS_CHECK(p >= 0 && p <= 1, "{}: a zoneout of {} is not within [0, 1]", op, p);
}

Sizes check_direction(const char* op, const Tensor& x, const LSTMDirection& d) {
  const LSTMWeights& w = d.weights;
  BS_CHECK(w.ih.defined() && w.ih.rank() == 2 && w.ih.size(0) % 4 == 0 && w.ih.size(0) > 0,
           "{}: weight_ih {} is not [4 cells, inputs]", op,
           w.ih.defined() ? w.ih.shape() : Shape());
  Sizes s{x.size(0), x.size(1), x.size(2), w.ih.size(0) / 4, w.ih.size(0) / 4};
  check_weight(op, "weight_ih", x, w.ih, {4 * s.cells, s.in});
  if (w.hr.defined()) {
    BS_CHECK(w.hr.rank() == 2 && w.hr.size(0) > 0, "{}: weight_hr {} is not [outputs, cells]", op,
             w.hr.shape());
    s.width = w.hr.size(0);
    check_weight(op, "weight_hr", x, w.hr, {s.width, s.cells});
  }
  check_recurrent(op, x, w, s);
  if (w.bias_ih.defined()) check_weight(op, "bias_ih", x, w.bias_ih, {4 * s.cells});
  if (w.bias_hh.defined()) check_weight(op, "bias_hh", x, w.bias_hh, {4 * s.cells});
  if (d.h0.defined()) check_weight(op, "h0", x, d.h0, {s.batch, s.width});
  if (d.c0.defined()) {
    check_same_device(op, x, d.c0);
    BS_CHECK(d.c0.shape() == Shape({s.batch, s.cells}), "{}: c0 {} where {} is expected", op,
             d.c0.shape(), Shape({s.batch, s.cells}));
    BS_CHECK(d.c0.dtype() == x.dtype() || d.c0.dtype() == sum_type(x.dtype()),
             "{}: c0 of {} for x of {}", op, d.c0.dtype(), x.dtype());
  }
  check_rule(op, d.rule);
  return s;
}

void check_lengths(const char* op, const Tensor& x, const Tensor& lengths) {
  BS_CHECK(lengths.device().is_cpu() && lengths.dtype() == i64,
           "{}: lengths of {} on {} where i64 in host memory is expected", op, lengths.dtype(),
           lengths.device());
  BS_CHECK(lengths.shape() == Shape{x.size(1)}, "{}: lengths {} for {} sequences", op,
           lengths.shape(), x.size(1));
  for (int64_t b = 0; b < lengths.numel(); ++b) {
    const auto length = static_cast<int64_t>(lengths.select(0, b).item());
    BS_CHECK(length >= 0 && length <= x.size(0), "{}: sequence {} of length {} among {} steps", op,
             b, length, x.size(0));
  }
}

Sizes check(const char* op, const Tensor& x, std::span<const LSTMDirection> directions,
            const Tensor& lengths) {
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
  BS_CHECK(x.rank() == 3, "{}: x {} is not [steps, batch, inputs]", op, x.shape());
  BS_CHECK(!directions.empty(), "{}: no direction", op);
  Sizes first{};
  for (const LSTMDirection& d : directions) {
    const Sizes s = check_direction(op, x, d);
    if (&d == &directions.front()) first = s;
    BS_CHECK(s.cells == first.cells && s.width == first.width,
             "{}: directions of {} and {} cells, {} and {} outputs", op, first.cells, s.cells,
             first.width, s.width);
  }
  if (lengths.defined()) check_lengths(op, x, lengths);
  return first;
}

Tensor sum_of_biases(const LSTMWeights& w) {
  if (!w.bias_ih.defined() || !w.bias_hh.defined())
    return w.bias_ih.defined() ? w.bias_ih : w.bias_hh;
  return add(w.bias_ih, w.bias_hh);
}

void set(const Tensor& slot, const Tensor& initial) {
  if (initial.defined()) {
    copy(initial, slot);
  } else {
    fill(slot, 0);
  }
}

/// The twins' view of a direction, its initial state and input product in place.
LSTMSteps prepare(const Tensor& x, const LSTMDirection& d, const Tensor& lengths, const Sizes& s) {
  LSTMSteps p;
  p.gates = linear(x, d.weights.ih, sum_of_biases(d.weights));
  p.h = Tensor::empty({s.steps + 1, s.batch, s.width}, x.dtype(), x.device());
  p.c = Tensor::empty({s.steps + 1, s.batch, s.cells}, sum_type(x.dtype()), x.device());
  if (d.weights.hr.defined())
    p.outputs = Tensor::empty({s.steps, s.batch, s.cells}, x.dtype(), x.device());
  p.hh = contiguous(d.weights.hh);
  if (d.weights.hr.defined()) p.hr = contiguous(d.weights.hr);
  p.layout = d.weights.layout;
  p.lengths = lengths;
  p.rule = d.rule;
  p.reverse = d.reverse;
  const int64_t first = d.reverse ? s.steps : 0;
  set(p.h.select(0, first), d.h0);
  set(p.c.select(0, first), d.c0);
  return p;
}

LSTMResult result_of(const LSTMSteps& p) {
  const int64_t steps = p.steps(), last = p.reverse ? 0 : steps;
  const int64_t from = p.reverse ? 0 : 1;
  return {p.h.slice(0, from, from + steps),
          p.c.slice(0, from, from + steps),
          p.h.select(0, last),
          p.c.select(0, last),
          p.h,
          p.c,
          p.gates,
          p.outputs};
}

Tensor on_device(const Tensor& lengths, const Tensor& x) {
  return lengths.defined() ? to(contiguous(lengths), x.device()) : lengths;
}

}  // namespace

std::vector<LSTMResult> lstm(const Tensor& x, std::span<const LSTMDirection> directions,
                             const Tensor& lengths) {
  const Sizes s = check("lstm", x, directions, lengths);
  const Tensor limits = on_device(lengths, x);
  const Tensor rows = contiguous(x);
  std::vector<LSTMSteps> steps;
  for (const LSTMDirection& d : directions) steps.push_back(prepare(rows, d, limits, s));
  if (s.steps > 0 && s.batch > 0) BS_DISPATCH(x.device(), lstm, std::span<const LSTMSteps>(steps));
  std::vector<LSTMResult> results;
  for (const LSTMSteps& p : steps) results.push_back(result_of(p));
  return results;
}

namespace {

void check_upstream(const char* name, const Tensor& given, const Tensor& result) {
  if (!given.defined()) return;
  BS_CHECK(given.shape() == result.shape() && given.device() == result.device() &&
               given.dtype() == result.dtype(),
           "lstm_backward: the gradient of {}, {} {}, for {} {}", name, given.dtype(),
           given.shape(), result.dtype(), result.shape());
}

/// A running gradient: what arrives at the last state, or zeros.
Tensor running(const Tensor& arrives, const Shape& shape, DType dtype, Device device) {
  const Tensor sum = Tensor::empty(shape, dtype, device);
  set(sum, arrives);
  return sum;
}

LSTMBackwardSteps prepare_backward(const Tensor& x, const LSTMDirection& d, const Tensor& lengths,
                                   const LSTMResult& r, const LSTMUpstream& up, const Sizes& s) {
  check_upstream("y", up.y, r.y);
  check_upstream("h_n", up.h_n, r.h_n);
  check_upstream("c", up.c, r.c);
  check_upstream("c_n", up.c_n, r.c_n);
  LSTMBackwardSteps p;
  p.forward.gates = r.gates;
  p.forward.h = r.hidden;
  p.forward.c = r.cells;
  p.forward.outputs = r.outputs;
  p.forward.hh = contiguous(d.weights.hh);
  if (d.weights.hr.defined()) p.forward.hr = contiguous(d.weights.hr);
  p.forward.layout = d.weights.layout;
  p.forward.lengths = lengths;
  p.forward.rule = d.rule;
  p.forward.reverse = d.reverse;
  if (up.y.defined()) p.dy = contiguous(up.y);
  if (up.c.defined()) p.dcells = contiguous(up.c);
  const DType sums = sum_type(x.dtype());
  p.dh = running(up.h_n, {s.batch, s.width}, sums, x.device());
  p.dc = running(up.c_n, {s.batch, s.cells}, sums, x.device());
  p.dgates = Tensor::empty({s.steps, s.batch, 4 * s.cells}, x.dtype(), x.device());
  if (d.weights.hr.defined())
    p.dhidden = Tensor::empty({s.steps, s.batch, s.width}, x.dtype(), x.device());
  return p;
}

/// [T, B, n] as one matrix of all its rows.
Tensor rows_of(const Tensor& x) { return x.view({x.size(0) * x.size(1), x.size(2)}); }

LSTMWeights weight_gradients(const Tensor& x, const LSTMWeights& w, const LSTMResult& r,
                             const LSTMBackwardSteps& p) {
  LSTMWeights grads;
  const int64_t steps = x.size(0), from = p.forward.reverse ? 1 : 0;
  const Tensor dgates = rows_of(p.dgates);
  const Tensor before = rows_of(r.hidden.slice(0, from, from + steps));
  grads.ih = matmul(dgates.transpose(0, 1), rows_of(x));
  grads.hh = w.layout ? dds_backward_s(before, dgates, w.layout, w.hh.shape(), {.b = true})
                      : matmul(dgates.transpose(0, 1), before);
  if (w.bias_ih.defined() || w.bias_hh.defined()) {
    const Tensor sums = sum(dgates, Dims{0});
    if (w.bias_ih.defined()) grads.bias_ih = sums;
    if (w.bias_hh.defined()) grads.bias_hh = sums;
  }
  if (w.hr.defined()) grads.hr = matmul(rows_of(p.dhidden).transpose(0, 1), rows_of(r.outputs));
  return grads;
}

}  // namespace

LSTMBackward lstm_backward(const Tensor& x, std::span<const LSTMDirection> directions,
                           const Tensor& lengths, std::span<const LSTMResult> results,
                           std::span<const LSTMUpstream> upstream, LSTMWants wants) {
  const Sizes s = check("lstm_backward", x, directions, lengths);
  BS_CHECK(results.size() == directions.size() && upstream.size() == directions.size(),
           "lstm_backward: {} results and {} gradients for {} directions", results.size(),
           upstream.size(), directions.size());
  const Tensor limits = on_device(lengths, x);
  const Tensor rows = contiguous(x);
  std::vector<LSTMBackwardSteps> steps;
  for (size_t i = 0; i < directions.size(); ++i)
    steps.push_back(prepare_backward(rows, directions[i], limits, results[i], upstream[i], s));
  if (s.steps > 0 && s.batch > 0)
    BS_DISPATCH(x.device(), lstm_backward, std::span<const LSTMBackwardSteps>(steps));
  LSTMBackward grads;
  for (size_t i = 0; i < directions.size(); ++i) {
    const LSTMWeights& w = directions[i].weights;
    if (wants.x) {
      const Tensor dx = matmul(rows_of(steps[i].dgates), w.ih).view(x.shape());
      grads.x = grads.x.defined() ? add(grads.x, dx) : dx;
    }
    LSTMGrads& g = grads.directions.emplace_back();
    if (wants.weights) g.weights = weight_gradients(rows, w, results[i], steps[i]);
    g.h0 = cast(steps[i].dh, x.dtype());
    g.c0 = directions[i].c0.defined() ? cast(steps[i].dc, directions[i].c0.dtype()) : steps[i].dc;
  }
  return grads;
}

}  // namespace bs
