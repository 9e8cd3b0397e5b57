#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/lstm.h>
#include <bs/lib/patterns.h>
#include <bs/tests/kernels/lstm_reference.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

// Directions that differ in what the choice of a kernel depends on. On a GPU 128 cells of bf16 run
// in the persistent kernel where they can, and other weights and rules by graphs or step by step.
namespace {

constexpr int cells = 128;

/// Directions over the same x, each with inputs of its own.
struct Unlike {
  std::vector<LstmCase> cases;
  std::vector<References> in;
  std::vector<Variables> inputs;
  std::vector<LSTMDirectionVariables> directions;

  explicit Unlike(std::vector<LstmCase> of) : cases(std::move(of)) {
    for (const LstmCase& k : cases) {
      References& values = in.emplace_back();
      Variables& v = inputs.emplace_back();
      for (const Shape& shape : k.inputs()) {
        // Sums of many cells stay of the size of one.
        const double range = shape.rank() == 2 && shape[1] == cells ? 2 / std::sqrt(cells) : 1;
        const uint64_t seed = v.empty() ? 1 : 10 * in.size() + v.size();
        const Reference r = random_reference(shape, seed, -range, range);
        v.emplace_back(r.tensor(bf16, test_device()), true);
        values.push_back(Reference::of(v.back().data()));
      }
      v[0] = inputs.front()[0];
      directions.push_back(direction_of(k, v));
    }
  }

  /// Forward against the loops in double, backward against each direction by itself.
  void check() const {
    constexpr double allowed = 8 * 0x1p-7;  // a few roundings to bf16
    for (size_t i = 0; i < cases.size(); ++i) {
      CAPTURE(i);
      const Variable together = joined(lstm(inputs[0][0], directions, lengths_of(cases[0]))[i]);
      check_close("states", Reference::of(together.data()), lstm_of(cases[i], in[i]), allowed);
      const Tensor dy = random_reference(together.shape(), 7).tensor(bf16, test_device());
      const References gradients = backward(i, together, dy);
      const LSTMDirectionVariables one[] = {directions[i]};
      const Variable alone = joined(lstm(inputs[0][0], one, lengths_of(cases[0]))[0]);
      check_close("alone", Reference::of(alone.data()), Reference::of(together.data()), allowed);
      const References right = backward(i, alone, dy);
      for (size_t n = 0; n < right.size(); ++n)
        check_close("gradient " + std::to_string(n), gradients[n], right[n],
                    allowed * largest(right[n]));
    }
  }

  References backward(size_t i, const Variable& y, const Tensor& dy) const {
    for (const Variable& v : inputs[i]) v.zero_grad();
    y.backward(dy);
    References gradients;
    for (const Variable& v : inputs[i]) gradients.push_back(Reference::of(v.grad()));
    return gradients;
  }
};

const LstmCase plain{.steps = 12, .batch = 3, .in = 4, .cells = cells};

}  // namespace

TEST_CASE("lstm: a direction with zoneout beside one without") {
  for (const size_t with : {size_t{0}, size_t{1}}) {
    CAPTURE(with);
    std::vector<LstmCase> cases(2, plain);
    cases[with].zoneout_hidden = 0.5;
    cases[with].zoneout_cell = 0.25;
    cases[1].reverse = true;
    Unlike(cases).check();
  }
}

TEST_CASE("lstm: a direction with a projection onto all cells beside one without") {
  for (const size_t with : {size_t{0}, size_t{1}}) {
    CAPTURE(with);
    std::vector<LstmCase> cases(2, plain);
    cases[with].projection = cells;
    Unlike(cases).check();
  }
}

TEST_CASE("lstm: hard activations beside soft ones, of different lengths") {
  std::vector<LstmCase> cases(3, plain);
  for (LstmCase& k : cases) k.lengths = {12, 0, 7};
  cases[1].hard = true;
  cases[2].zoneout_cell = 0.5;
  Unlike(cases).check();
}

TEST_CASE("lstm: a recurrent weight that begins at an odd element beside one that does not") {
  for (const size_t odd : {size_t{0}, size_t{1}}) {
    CAPTURE(odd);
    Unlike two({plain, plain});
    const Tensor hh = two.inputs[odd][2].data();
    const Tensor room = Tensor::empty({hh.numel() + 1}, bf16, test_device());
    const Tensor view = room.slice(0, 1, room.numel()).view(hh.shape());
    copy(hh, view);
    two.inputs[odd][2] = Variable(view, true);
    two.directions[odd].weights.hh = two.inputs[odd][2];
    two.check();
  }
}

TEST_CASE("lstm: a block-sparse recurrent weight beside a dense one") {
  const LayoutPtr layout = patterns::random({.rows = 16, .cols = 4, .block = 32}, {.density = 0.5});
  const double range = 2 / std::sqrt(cells);
  for (const size_t sparse : {size_t{0}, size_t{1}}) {
    CAPTURE(sparse);
    Unlike two({plain, plain});
    const Reference blocks = random_reference({layout->nnz(), 32, 32}, 5, -range, range);
    two.inputs[sparse][2] = Variable(blocks.tensor(bf16, test_device()), true);
    const Tensor exact = Reference::of(two.inputs[sparse][2].data()).tensor(f64, Device::cpu());
    two.in[sparse][2] = Reference::of(to_dense({layout, exact}).view({4 * cells, cells}));
    two.directions[sparse].weights.hh = two.inputs[sparse][2];
    two.directions[sparse].weights.layout = layout;
    two.check();
  }
}

TEST_CASE("lstm_layers: zoneout in one layer alone") {
  const double range = 2 / std::sqrt(cells);
  uint64_t seed = 1;
  const auto values = [&](const Shape& shape) {
    return random_reference(shape, seed++, -range, range).tensor(bf16, test_device());
  };
  constexpr int64_t steps = 24;
  const Tensor x = values({steps, 2, cells}), dy = values({steps, 2, cells});
  std::vector<LSTMDirection> layers(2);
  for (LSTMDirection& d : layers)
    d.weights = {.ih = values({4 * cells, cells}), .hh = values({4 * cells, cells})};
  layers[1].rule = {.zoneout_hidden = 0.5, .zoneout_cell = 0.25, .expected = true};
  const LSTMUpstream above{.y = dy, .h_n = {}, .c = {}, .c_n = {}};
  const std::vector<LSTMResult> low = lstm(x, {layers.data(), 1});
  const std::vector<LSTMResult> high = lstm(low[0].y, {&layers[1], 1});
  const LSTMBackward of_high = lstm_backward(low[0].y, {&layers[1], 1}, {}, high, {&above, 1});
  const LSTMUpstream between{.y = of_high.x, .h_n = {}, .c = {}, .c_n = {}};
  const LSTMBackward of_low = lstm_backward(x, {layers.data(), 1}, {}, low, {&between, 1});
  for (const int64_t chunk : {0, 8, 24}) {
    CAPTURE(chunk);
    const auto check = [&](const char* name, const Tensor& actual, const Tensor& expected) {
      const Reference right = Reference::of(expected);
      check_close(name, Reference::of(actual), right,
                  8 * epsilon(bf16) * std::max(largest(right), range));
    };
    const std::vector<LSTMResult> results = lstm_layers(x, layers, {}, chunk);
    check("y", results[1].y, high[0].y);
    check("c", results[1].c, high[0].c);
    const LSTMUpstream ups[] = {{}, above};
    const LSTMBackward all = lstm_layers_backward(x, layers, {}, results, ups, {}, chunk);
    check("dx", all.x, of_low.x);
    check("dW_hh below", all.directions[0].weights.hh, of_low.directions[0].weights.hh);
    check("dW_hh above", all.directions[1].weights.hh, of_high.directions[0].weights.hh);
  }
}
