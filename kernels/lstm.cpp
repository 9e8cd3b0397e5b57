#include <bs/kernels/lstm.h>

#include <bs/kernels/accumulate.h>
#include <bs/kernels/arange.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/dropout.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/linear.h>
#include <bs/kernels/lstm_check.h>
#include <bs/kernels/lstm_wavefront.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/where.h>

#include <algorithm>

namespace bs {

namespace {

using detail::check_lstm;
using detail::LSTMPiece;
using detail::LSTMSizes;
using detail::sum_type;
using detail::wavefront;

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

/// The twins' view of a direction, its initial state in place.
LSTMSteps prepare(const Tensor& x, const LSTMDirection& d, const Tensor& lengths,
                  const LSTMSizes& s) {
  LSTMSteps p;
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

/// The input's part of the sums, in memory that the steps may write.
Tensor input_of(const Tensor& x, const LSTMDirection& d) {
  const Tensor bias = sum_of_biases(d.weights);
  if (!d.input.defined()) return linear(x, d.weights.ih, bias);
  if (bias.defined()) return add(d.input, bias);
  Tensor gates = Tensor::empty(d.input.shape(), x.dtype(), x.device());
  copy(d.input, gates);
  return gates;
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

/// [T, B, n] as one matrix of all its rows.
Tensor rows_of(const Tensor& x) { return x.view({x.size(0) * x.size(1), x.size(2)}); }

/// The recurrent products, forward or backward; gates and states are moved once, weights each step.
Work work_of(const LSTMSteps& p) {
  Work work = Work::product(p.gates, p.width(), p.layout ? p.layout->density() : 0);
  if (p.layout) work.flops *= p.layout->density();
  if (p.outputs.defined()) work.flops += Work::product(p.outputs, p.width()).flops;
  for (const Tensor& x : {p.gates, p.gates, p.h, p.c, p.hh})
    work.bytes += static_cast<double>(x.bytes());
  return work;
}
const LSTMSteps& forward_of(const LSTMSteps& p) { return p; }
const LSTMSteps& forward_of(const LSTMBackwardSteps& p) { return p.forward; }

template <class Steps>
Work work_of(const std::vector<Steps>& directions) {
  Work all;
  for (const Steps& p : directions) {
    const Work one = work_of(forward_of(p));
    all = {all.flops + one.flops, all.bytes + one.bytes, one.density};
  }
  return all;
}

/// Whether a direction multiplies x itself.
bool reads_x(std::span<const LSTMDirection> directions) {
  return std::ranges::any_of(directions,
                             [](const LSTMDirection& d) { return d.weights.ih.defined(); });
}

Tensor on_device(const Tensor& lengths, const Tensor& x) {
  return lengths.defined() ? to(contiguous(lengths), x.device()) : lengths;
}

}  // namespace

std::vector<LSTMResult> lstm(const Tensor& x, std::span<const LSTMDirection> directions,
                             const Tensor& lengths) {
  const LSTMSizes s = check_lstm("lstm", x, directions, lengths);
  const Tensor limits = on_device(lengths, x);
  const Tensor rows = reads_x(directions) ? contiguous(x) : x;
  std::vector<LSTMSteps> steps;
  for (const LSTMDirection& d : directions) {
    steps.push_back(prepare(rows, d, limits, s));
    steps.back().gates = input_of(rows, d);
  }
  if (s.steps > 0 && s.batch > 0)
    BS_DISPATCH_WORK(x.device(), work_of(steps), lstm, std::span<const LSTMSteps>(steps));
  std::vector<LSTMResult> results;
  results.reserve(steps.size());
  for (const LSTMSteps& p : steps) results.push_back(result_of(p));
  return results;
}

namespace {

void check_counts(const char* op, std::span<const LSTMDirection> directions,
                  std::span<const LSTMResult> results, std::span<const LSTMUpstream> upstream) {
  BS_CHECK(results.size() == directions.size() && upstream.size() == directions.size(),
           "{}: {} results and {} gradients for {} directions", op, results.size(), upstream.size(),
           directions.size());
}

void check_upstream(const char* name, const Tensor& given, const Tensor& result) {
  if (!given.defined()) return;
  BS_CHECK(given.shape() == result.shape() && given.device() == result.device() &&
               given.dtype() == result.dtype(),
           "lstm_backward: the gradient of {}, {} {}, for {} {}", name, given.dtype(),
           given.shape(), result.dtype(), result.shape());
}

/// Throws unless `kept` is what the forward of these arguments has kept.
void check_kept(const char* name, const Tensor& kept, const Shape& shape, DType dtype,
                const Tensor& x) {
  BS_CHECK(kept.defined(), "lstm_backward: the result's {} is undefined", name);
  BS_CHECK(kept.shape() == shape && kept.device() == x.device() && kept.is_contiguous() &&
               kept.dtype() == dtype,
           "lstm_backward: the result's {} {} {} is of another call: this one's is {} {}", name,
           kept.dtype(), kept.shape(), dtype, shape);
}

void check_result(const LSTMResult& r, const Tensor& x, const LSTMDirection& d,
                  const LSTMSizes& s) {
  const Shape y{s.steps, s.batch, s.width}, h{s.batch, s.width};
  BS_CHECK(r.y.defined() && r.y.shape() == y && r.h_n.defined() && r.h_n.shape() == h &&
               r.c.defined() && r.c.shape() == Shape({s.steps, s.batch, s.cells}) &&
               r.c_n.defined() && r.c_n.shape() == Shape({s.batch, s.cells}),
           "lstm_backward: the result is of another call: this one's y is {}", y);
  check_kept("gates", r.gates, {s.steps, s.batch, 4 * s.cells}, x.dtype(), x);
  check_kept("hidden", r.hidden, {s.steps + 1, s.batch, s.width}, x.dtype(), x);
  check_kept("cells", r.cells, {s.steps + 1, s.batch, s.cells}, sum_type(x.dtype()), x);
  if (d.weights.hr.defined())
    check_kept("outputs", r.outputs, {s.steps, s.batch, s.cells}, x.dtype(), x);
  if (d.dropout > 0) check_kept("read", r.read, {s.steps, s.batch, s.width}, x.dtype(), x);
}

/// A running gradient: what arrives at the last state, or zeros.
Tensor running(const Tensor& arrives, const Shape& shape, DType dtype, Device device) {
  Tensor sum = Tensor::empty(shape, dtype, device);
  set(sum, arrives);
  return sum;
}

LSTMBackwardSteps prepare_backward(const Tensor& x, const LSTMDirection& d, const Tensor& lengths,
                                   const LSTMResult& r, const LSTMUpstream& up,
                                   const LSTMSizes& s) {
  check_result(r, x, d, s);
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

/// @param[in] x zeros where sequences have no step: 0 times what else might stand there need not be
/// 0
LSTMWeights weight_gradients(const Tensor& x, const LSTMWeights& w, const LSTMResult& r,
                             const LSTMBackwardSteps& p) {
  LSTMWeights grads;
  const int64_t steps = x.size(0), from = p.forward.reverse ? 1 : 0;
  const Tensor dgates = rows_of(p.dgates);
  const Tensor before = rows_of(r.hidden.slice(0, from, from + steps));
  if (w.ih.defined()) grads.ih = matmul(dgates.transpose(0, 1), rows_of(x));
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

LSTMGrads gradients_of(const Tensor& x, const LSTMDirection& d, const LSTMResult& r,
                       const LSTMBackwardSteps& p, LSTMWants wants) {
  LSTMGrads g;
  if (wants.weights) g.weights = weight_gradients(x, d.weights, r, p);
  g.h0 = cast(p.dh, x.dtype());
  g.c0 = d.c0.defined() ? cast(p.dc, d.c0.dtype()) : p.dc;
  if (d.input.defined()) g.input = p.dgates;
  return g;
}

Tensor without_padding(const Tensor& x, const Tensor& lengths) {
  return lengths.defined() ? where(steps_within(lengths, x), x, 0) : x;
}

}  // namespace

Tensor steps_within(const Tensor& lengths, const Tensor& like) {
  const Tensor steps = arange(like.size(0), i64, like.device()).view({like.size(0), 1, 1});
  return lt(steps, lengths.to(like.device()).view({1, like.size(1), 1}));
}

LSTMBackward lstm_backward(const Tensor& x, std::span<const LSTMDirection> directions,
                           const Tensor& lengths, std::span<const LSTMResult> results,
                           std::span<const LSTMUpstream> upstream, LSTMWants wants) {
  const LSTMSizes s = check_lstm("lstm_backward", x, directions, lengths);
  check_counts("lstm_backward", directions, results, upstream);
  const Tensor limits = on_device(lengths, x);
  const Tensor rows = reads_x(directions) ? contiguous(x) : x;
  std::vector<LSTMBackwardSteps> steps;
  for (size_t i = 0; i < directions.size(); ++i)
    steps.push_back(prepare_backward(rows, directions[i], limits, results[i], upstream[i], s));
  if (s.steps > 0 && s.batch > 0)
    BS_DISPATCH_WORK(x.device(), work_of(steps), lstm_backward,
                     std::span<const LSTMBackwardSteps>(steps));
  const Tensor clean = wants.weights && reads_x(directions) ? without_padding(rows, limits) : rows;
  LSTMBackward grads;
  for (size_t i = 0; i < directions.size(); ++i) {
    if (wants.x && directions[i].weights.ih.defined()) {
      const Tensor dx = matmul(rows_of(steps[i].dgates), directions[i].weights.ih).view(x.shape());
      grads.x = grads.x.defined() ? add(grads.x, dx) : dx;
    }
    grads.directions.push_back(gradients_of(clean, directions[i], results[i], steps[i], wants));
  }
  return grads;
}

namespace {

/// y, of a layer from step `from` on, as the layer `above` reads it. `to` may be y.
void drop(const LSTMDirection& above, const Tensor& y, int64_t from, const Tensor& to) {
  if (above.dropout == 1) return fill(to, 0);
  BS_DISPATCH(y.device(), dropout, y, to, above.dropout, above.dropped,
              from * y.size(1) * y.size(2));
}

}  // namespace

std::vector<LSTMResult> lstm_layers(const Tensor& x, std::span<const LSTMDirection> layers,
                                    const Tensor& lengths, int64_t chunk) {
  const LSTMSizes s = check_lstm("lstm_layers", x, layers, lengths, true);
  const Tensor limits = on_device(lengths, x);
  std::vector<LSTMSteps> all;
  std::vector<Tensor> biases, read;
  for (const LSTMDirection& d : layers) {
    biases.push_back(sum_of_biases(d.weights));
    read.push_back(d.dropout > 0 ? Tensor::empty({s.steps, s.batch, s.width}, x.dtype(), x.device())
                                 : Tensor());
    all.push_back(prepare(x, d, limits, s));
    all.back().gates = all.size() == 1
                           ? linear(x, d.weights.ih, biases[0])
                           : Tensor::empty({s.steps, s.batch, 4 * s.cells}, x.dtype(), x.device());
  }
  if (s.steps > 0 && s.batch > 0)
    for (const std::vector<LSTMPiece>& turn : wavefront(layers, all[0], false, chunk)) {
      std::vector<LSTMSteps> now;
      for (const LSTMPiece& piece : turn) {
        const size_t l = piece.layer;
        now.push_back(piece.of(all[l]));
        if (l == 0) continue;
        const Tensor below = all[l - 1].h.slice(0, piece.from + 1, piece.to + 1);
        if (read[l].defined()) drop(layers[l], below, piece.from, piece.of(read[l]));
        const Tensor in = rows_of(read[l].defined() ? piece.of(read[l]) : below);
        BS_DISPATCH_WORK(x.device(), Work::product(now.back().gates, in.size(1)), linear, in,
                         layers[l].weights.ih, biases[l], rows_of(now.back().gates));
      }
      BS_DISPATCH_WORK(x.device(), work_of(now), lstm, std::span<const LSTMSteps>(now));
    }
  std::vector<LSTMResult> results;
  results.reserve(all.size());
  for (size_t l = 0; l < all.size(); ++l) {
    results.push_back(result_of(all[l]));
    results.back().read = read[l];
  }
  return results;
}

LSTMBackward lstm_layers_backward(const Tensor& x, std::span<const LSTMDirection> layers,
                                  const Tensor& lengths, std::span<const LSTMResult> results,
                                  std::span<const LSTMUpstream> upstream, LSTMWants wants,
                                  int64_t chunk) {
  const LSTMSizes s = check_lstm("lstm_layers_backward", x, layers, lengths, true);
  check_counts("lstm_layers_backward", layers, results, upstream);
  const Tensor limits = on_device(lengths, x);
  const size_t top = layers.size() - 1;
  std::vector<LSTMBackwardSteps> all;
  std::vector<Tensor> arrives;
  for (size_t l = 0; l <= top; ++l) {
    all.push_back(prepare_backward(x, layers[l], limits, results[l], upstream[l], s));
    arrives.push_back(all[l].dy);
    if (l < top) all[l].dy = Tensor::empty(results[l].y.shape(), x.dtype(), x.device());
  }
  if (s.steps > 0 && s.batch > 0) {
    auto turns = wavefront(layers, all[0].forward, true, chunk);
    for (auto turn = turns.rbegin(); turn != turns.rend(); ++turn) {
      std::vector<LSTMBackwardSteps> now;
      for (const LSTMPiece& piece : *turn) {
        const size_t l = piece.layer;
        now.push_back(piece.of(all[l]));
        if (l == top) continue;
        BS_DISPATCH_WORK(x.device(), Work::product(now.back().dy, layers[l + 1].weights.ih.size(0)),
                         matmul, rows_of(piece.of(all[l + 1].dgates)), layers[l + 1].weights.ih,
                         rows_of(now.back().dy));
        if (layers[l + 1].dropout > 0)
          drop(layers[l + 1], now.back().dy, piece.from, now.back().dy);
        if (arrives[l].defined()) accumulate(now.back().dy, piece.of(arrives[l]));
      }
      BS_DISPATCH_WORK(x.device(), work_of(now), lstm_backward,
                       std::span<const LSTMBackwardSteps>(now));
    }
  }
  LSTMBackward grads;
  const Tensor rows = wants.weights ? without_padding(contiguous(x), limits) : contiguous(x);
  if (wants.x) grads.x = matmul(rows_of(all[0].dgates), layers[0].weights.ih).view(x.shape());
  for (size_t l = 0; l <= top; ++l) {
    const Tensor& below = l == 0 ? rows : results[l - 1].y;
    const Tensor& in = layers[l].dropout > 0 ? results[l].read : below;
    grads.directions.push_back(gradients_of(in, layers[l], results[l], all[l], wants));
  }
  return grads;
}

}  // namespace bs
