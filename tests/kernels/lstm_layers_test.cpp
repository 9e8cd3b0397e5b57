#include <bs/kernels/binary.h>
#include <bs/kernels/dropout.h>
#include <bs/kernels/lstm.h>
#include <bs/tests/kernels/lstm_reference.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

struct Stack {
  int64_t steps, batch, in, cells;
  size_t layers = 2;
  int64_t projection = 0;
  LSTMRule rule = {};
  double dropout = 0;
  std::vector<int64_t> lengths = {};
  bool bias = true;
  DType dtype = f64;
};

/// Weights of the size of a layer's first ones.
struct Problem {
  Tensor x, limits;
  std::vector<LSTMDirection> layers;
  uint64_t seed = 1;
  Stack k;

  explicit Problem(const Stack& stack) : k(stack) {
    const int64_t width = k.projection > 0 ? k.projection : k.cells;
    const double range = 1 / std::sqrt(static_cast<double>(k.cells));
    x = values({k.steps, k.batch, k.in}, 1);
    for (size_t l = 0; l < k.layers; ++l) {
      LSTMDirection& d = layers.emplace_back();
      d.weights.ih = values({4 * k.cells, l == 0 ? k.in : width}, range);
      d.weights.hh = values({4 * k.cells, width}, range);
      if (k.bias) d.weights.bias_ih = values({4 * k.cells}, range);
      if (k.bias) d.weights.bias_hh = values({4 * k.cells}, range);
      if (k.projection > 0) d.weights.hr = values({width, k.cells}, range);
      d.h0 = values({k.batch, width}, 1);
      d.c0 = values({k.batch, k.cells}, 1);
      d.rule = k.rule;
      if (l > 0) d.dropout = k.dropout;
      d.dropped = {.seed = 5, .offset = l};
    }
    if (!k.lengths.empty())
      limits = Tensor::from<int64_t>(std::span<const int64_t>(k.lengths), {k.batch});
  }

  Tensor values(const Shape& shape, double range) {
    return random_reference(shape, ++seed, -range, range).tensor(k.dtype, test_device());
  }
  /// Layer `l` by itself, and what it reads of y of the layer below.
  LSTMDirection alone(size_t l) const {
    LSTMDirection layer = layers[l];
    layer.dropout = 0;
    return layer;
  }
  Tensor read(size_t l, const Tensor& y) const {
    return dropout(y, layers[l].dropout, layers[l].dropped);
  }
  Tensor like(const Tensor& t) {
    return random_reference(t.shape(), ++seed).tensor(t.dtype(), t.device());
  }
};

struct Named {
  std::string name;
  Tensor value;
};

std::vector<Named> of(const std::vector<LSTMResult>& results) {
  std::vector<Named> all;
  for (const LSTMResult& r : results)
    for (const auto& [name, value] : {Named{"y", r.y}, {"c", r.c}, {"h_n", r.h_n}, {"c_n", r.c_n}})
      all.push_back({name, value});
  return all;
}

std::vector<Named> of(const LSTMBackward& b) {
  std::vector<Named> all = {{"dx", b.x}};
  for (const LSTMGrads& g : b.directions)
    for (const auto& [name, value] : {Named{"dih", g.weights.ih},
                                      {"dhh", g.weights.hh},
                                      {"dbias_ih", g.weights.bias_ih},
                                      {"dbias_hh", g.weights.bias_hh},
                                      {"dhr", g.weights.hr},
                                      {"dh0", g.h0},
                                      {"dc0", g.c0}})
      if (value.defined()) all.push_back({name, value});
  return all;
}

void check_same(const std::vector<Named>& actual, const std::vector<Named>& expected,
                double steps) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const Reference right = Reference::of(expected[i].value);
    check_close(actual[i].name, Reference::of(actual[i].value), right,
                steps * epsilon(actual[i].value.dtype()) * std::max(1.0, largest(right)));
  }
}

/// What `together` must be if it was made in pieces of `chunk` steps: layers above the first called
/// piece by piece. 16-bit types keep the input's part of the sums in 16 bits, and a GEMM of other
/// rows may add in another order and round one of them the other way, which the cell state, kept in
/// f32, shows. Pieces have the same GEMMs, so nothing is left that could differ.
void check_pieces(const Problem& p, const std::vector<LSTMResult>& together, int64_t chunk,
                  double steps) {
  const int64_t total = p.k.steps, length = chunk > 0 ? std::min(chunk, total) : total;
  for (size_t l = 0; l < p.layers.size(); ++l) {
    CAPTURE(l);
    LSTMDirection layer = p.alone(l);
    const int64_t piece = l == 0 ? total : length;
    const Tensor x = l == 0 ? p.x : p.read(l, together[l - 1].y);
    for (int64_t from = 0; from < total; from += piece) {
      const int64_t to = std::min(total, from + piece);
      Tensor limits;
      if (!p.k.lengths.empty()) {
        std::vector<int64_t> left;
        for (const int64_t n : p.k.lengths)
          left.push_back(std::clamp<int64_t>(n - from, 0, to - from));
        limits = Tensor::from<int64_t>(std::span<const int64_t>(left), {p.k.batch});
      }
      const LSTMResult r = lstm(x.slice(0, from, to), {&layer, 1}, limits)[0];
      check_same({{"y", together[l].y.slice(0, from, to)}, {"c", together[l].c.slice(0, from, to)}},
                 {{"y", r.y}, {"c", r.c}}, steps);
      layer.h0 = r.h_n;
      layer.c0 = r.c_n;
    }
    check_same({{"h_n", together[l].h_n}, {"c_n", together[l].c_n}},
               {{"h_n", layer.h0}, {"c_n", layer.c0}}, steps);
  }
}

/// In pieces of each of these lengths, against calls of lstm layer by layer.
void check(const Stack& stack, const std::vector<int64_t>& chunks, double steps = 64) {
  Problem p(stack);
  std::vector<LSTMResult> apart;
  std::vector<LSTMDirection> alone;
  std::vector<Tensor> read;
  apart.reserve(stack.layers);
  alone.reserve(stack.layers);
  read.reserve(stack.layers);
  for (size_t l = 0; l < stack.layers; ++l) {
    alone.push_back(p.alone(l));
    read.push_back(l == 0 ? p.x : p.read(l, apart[l - 1].y));
    apart.push_back(lstm(read[l], {&alone[l], 1}, p.limits)[0]);
  }
  std::vector<LSTMUpstream> upstream;
  for (const LSTMResult& r : apart)
    upstream.push_back({p.like(r.y), p.like(r.h_n), p.like(r.c), p.like(r.c_n)});
  upstream[0].y = {};  // the layer above alone
  LSTMBackward expected;
  expected.directions.resize(stack.layers);
  for (size_t l = stack.layers; l-- > 0;) {
    LSTMUpstream up = upstream[l];
    if (expected.x.defined()) up.y = up.y.defined() ? add(up.y, expected.x) : expected.x;
    const LSTMBackward b =
        lstm_backward(read[l], {&alone[l], 1}, p.limits, {&apart[l], 1}, {&up, 1});
    expected.x = l == 0 ? b.x : p.read(l, b.x);
    expected.directions[l] = b.directions[0];
  }
  for (const int64_t chunk : chunks) {
    CAPTURE(chunk);
    const auto together = lstm_layers(p.x, p.layers, p.limits, chunk);
    if (is_low_precision(stack.dtype)) {
      check_pieces(p, together, chunk, steps);
    } else {
      check_same(of(together), of(apart), steps);
    }
    const auto back = [&] {
      return lstm_layers_backward(p.x, p.layers, p.limits, together, upstream, {}, chunk);
    };
    check_same(of(back()), of(expected), steps);
    const auto first = of(back()), again = of(back());
    for (size_t i = 0; i < first.size(); ++i)
      CHECK(Reference::of(first[i].value).values == Reference::of(again[i].value).values);
  }
}

}  // namespace

TEST_CASE("lstm_layers: a wavefront of pieces is layer after layer") {
  for (const DType dtype : {f64, f32}) {
    check({.steps = 7, .batch = 3, .in = 2, .cells = 5, .dtype = dtype}, {0, 1, 3, 7, 100});
    check({.steps = 5, .batch = 2, .in = 3, .cells = 4, .layers = 4, .bias = false, .dtype = dtype},
          {0, 2});
    check({.steps = 6,
           .batch = 4,
           .in = 2,
           .cells = 6,
           .layers = 3,
           .projection = 3,
           .rule = {.hard = true, .zoneout_hidden = 0.25, .expected = true},
           .lengths = {6, 2, 0, 5},
           .dtype = dtype},
          {0, 1, 4});
  }
  check({.steps = 3, .batch = 2, .in = 3, .cells = 4, .layers = 1}, {0, 2});
}

TEST_CASE("lstm_layers: pieces drop what dropout of the whole drops") {
  for (const DType dtype : {f64, f32})
    for (const double dropout : {0.3, 1.0}) {
      check({.steps = 11, .batch = 3, .in = 2, .cells = 5, .dropout = dropout, .dtype = dtype},
            {0, 1, 4, 7, 100});
      check({.steps = 6,
             .batch = 4,
             .in = 2,
             .cells = 6,
             .layers = 3,
             .projection = 3,
             .dropout = dropout,
             .lengths = {6, 2, 0, 5},
             .dtype = dtype},
            {0, 4});
    }
  for (const DType dtype : {f16, bf16})
    check({.steps = 11, .batch = 5, .in = 8, .cells = 128, .dropout = 0.3, .dtype = dtype}, {0, 4});
  check({.steps = 200, .batch = 2, .in = 8, .cells = 128, .dropout = 0.3, .dtype = bf16}, {64});
}

TEST_CASE("lstm_layers: nothing to do") {
  check({.steps = 0, .batch = 2, .in = 3, .cells = 4}, {0, 2});
  check({.steps = 3, .batch = 0, .in = 3, .cells = 4}, {0, 2});
}

TEST_CASE("lstm_layers: random zoneout is that of whole sequences") {
  check({.steps = 6,
         .batch = 2,
         .in = 2,
         .cells = 5,
         .rule = {.zoneout_hidden = 0.4, .zoneout_cell = 0.3, .state = {.seed = 3, .offset = 4}}},
        {0, 2});
}

TEST_CASE("lstm_layers: 16-bit layers that run side by side in one kernel") {
  for (const DType dtype : {f16, bf16}) {
    check({.steps = 11, .batch = 5, .in = 8, .cells = 128, .dtype = dtype}, {0, 4});
    check({.steps = 5, .batch = 20, .in = 8, .cells = 256, .layers = 3, .dtype = dtype}, {2});
  }
  check({.steps = 200, .batch = 2, .in = 8, .cells = 128, .dtype = bf16}, {64});
  check({.steps = 4, .batch = 3, .in = 8, .cells = 768, .lengths = {4, 1, 2}, .dtype = bf16}, {2});
}

TEST_CASE("lstm_layers refuses what does not fit") {
  Problem p({.steps = 3, .batch = 2, .in = 3, .cells = 4});
  p.layers[1].reverse = true;
  CHECK_THROWS_WITH_AS(lstm_layers(p.x, p.layers), "lstm_layers: a layer in reverse", Error);
  p.layers[1].reverse = false;
  CHECK_THROWS_WITH_AS(lstm_layers(p.x, p.layers, {}, -1), "lstm_layers: pieces of -1 steps",
                       Error);
  p.layers[1].dropout = 1.5;
  CHECK_THROWS_WITH_AS(lstm_layers(p.x, p.layers),
                       "lstm_layers: a dropout of 1.5 is not within [0, 1]", Error);
  p.layers[1].dropout = 0;
  p.layers[0].dropout = 0.5;
  CHECK_THROWS_WITH_AS(lstm_layers(p.x, p.layers),
                       "lstm_layers: a dropout of 0.5 without a layer below", Error);
  p.layers[0].dropout = 0;
  const int64_t most = std::numeric_limits<int64_t>::max();  // one piece, as of all steps
  CHECK(
      same_bits(lstm_layers(p.x, p.layers, {}, most)[1].y, lstm_layers(p.x, p.layers, {}, 3)[1].y));
  std::swap(p.layers[0], p.layers[1]);
  CHECK_THROWS_WITH_AS(lstm_layers(p.x, p.layers),
                       "lstm_layers: weight_ih [16, 4] where [16, 3] is expected", Error);
}
