#include <bs/kernels/lstm_check.h>

namespace bs::detail {

namespace {

void check_weight(const char* op, const char* name, const Tensor& x, const Tensor& weight,
                  const Shape& shape) {
  BS_CHECK(weight.defined(), "{}: no {}", op, name);
  check_same_device(op, x, weight);
  check_same_dtype(op, x, weight);
  BS_CHECK(weight.shape() == shape, "{}: {} {} where {} is expected", op, name, weight.shape(),
           shape);
}

void check_recurrent(const char* op, const Tensor& x, const LSTMWeights& w, const LSTMSizes& s) {
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

/// Cells of a direction, by the weight of its input or by what stands for its product.
int64_t cells_of_input(const char* op, const Tensor& x, int64_t in, const LSTMDirection& d) {
  const Tensor& ih = d.weights.ih;
  if (d.input.defined()) {
    BS_CHECK(!ih.defined(), "{}: weight_ih {} beside an input {}, which stands for its product", op,
             ih.shape(), d.input.shape());
    BS_CHECK(d.input.rank() == 3 && d.input.size(2) % 4 == 0 && d.input.size(2) > 0,
             "{}: input {} is not [steps, batch, 4 cells]", op, d.input.shape());
    check_weight(op, "input", x, d.input, {x.size(0), x.size(1), d.input.size(2)});
    return d.input.size(2) / 4;
  }
  BS_CHECK(ih.defined() && ih.rank() == 2 && ih.size(0) % 4 == 0 && ih.size(0) > 0,
           "{}: weight_ih {} is not [4 cells, inputs]", op, ih.defined() ? ih.shape() : Shape());
  check_weight(op, "weight_ih", x, ih, {ih.size(0), in});
  return ih.size(0) / 4;
}

LSTMSizes check_direction(const char* op, const Tensor& x, int64_t in, const LSTMDirection& d) {
  const LSTMWeights& w = d.weights;
  const int64_t cells = cells_of_input(op, x, in, d);
  LSTMSizes s{x.size(0), x.size(1), in, cells, cells};
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

}  // namespace

void check_lengths(const char* op, const Tensor& x, const Tensor& lengths) {
  BS_CHECK(lengths.device().is_cpu() && lengths.dtype() == i64,
           "{}: lengths of {} on {} where i64 in host memory is expected", op, lengths.dtype(),
           lengths.device());
  BS_CHECK(lengths.shape() == Shape{x.size(1)}, "{}: lengths {} for {} sequences", op,
           lengths.shape(), x.size(1));
  for (int64_t b = 0; b < lengths.numel(); ++b) {
    const double length = lengths.select(0, b).item();
    BS_CHECK(length >= 0 && length <= static_cast<double>(x.size(0)),
             "{}: sequence {} of length {} among {} steps", op, b, length, x.size(0));
  }
}

LSTMSizes check_lstm(const char* op, const Tensor& x, std::span<const LSTMDirection> directions,
                     const Tensor& lengths, bool layers) {
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
  BS_CHECK(x.rank() == 3, "{}: x {} is not [steps, batch, inputs]", op, x.shape());
  BS_CHECK(!directions.empty(), "{}: no direction", op);
  LSTMSizes first{};
  for (const LSTMDirection& d : directions) {
    const bool inner = layers && &d != &directions.front();
    const LSTMSizes s = check_direction(op, x, inner ? first.width : x.size(2), d);
    if (&d == &directions.front()) first = s;
    BS_CHECK(d.dropout >= 0 && d.dropout <= 1, "{}: a dropout of {} is not within [0, 1]", op,
             d.dropout);
    BS_CHECK(inner || d.dropout == 0, "{}: a dropout of {} without a layer below", op, d.dropout);
    BS_CHECK(!layers || !d.reverse, "{}: a layer in reverse", op);
    BS_CHECK(!layers || !d.input.defined(), "{}: a layer with an input {} of its own", op,
             d.input.shape());
    BS_CHECK(s.cells == first.cells && s.width == first.width,
             "{}: directions of {} and {} cells, {} and {} outputs", op, first.cells, s.cells,
             first.width, s.width);
  }
  if (lengths.defined()) check_lengths(op, x, lengths);
  return first;
}

}  // namespace bs::detail
