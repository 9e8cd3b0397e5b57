#include <bs/autograd/concat.h>
#include <bs/autograd/grad_check.h>
#include <bs/autograd/lstm.h>
#include <bs/autograd/view.h>
#include <bs/kernels/block_sparse_convert.h>
#include <bs/lib/patterns.h>
#include <bs/tests/kernels/lstm_reference.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

/// A rounding at each step: the error may grow by as much.
void check_in(const LstmCase& k, const std::vector<DType>& dtypes, double range) {
  CAPTURE(k.steps);
  CAPTURE(k.cells);
  check_op({.name = "lstm",
            .inputs = k.inputs(),
            .op =
                [&](const Variables& v) {
                  const LSTMDirectionVariables d = direction_of(k, v);
                  return joined(lstm(v[0], {&d, 1}, lengths_of(k))[0]);
                },
            .reference = [&](const References& in) { return lstm_of(k, in); },
            .low = -range,
            .high = range,
            .steps = 16.0 * static_cast<double>(std::max<int64_t>(1, k.steps)),
            .dtypes = dtypes});
}

/// Gradients jump where a hard activation reaches a bound, and rounding to 16 bits moves a value to
/// the other side of it: there the sums stay within the bounds.
void check(const LstmCase& k) {
  if (!k.hard) return check_in(k, {f64, f32, f16, bf16}, 1);
  check_in(k, {f64, f32}, 1);
  check_in(k, {f16, bf16}, 0.25);
}

}  // namespace

TEST_CASE("lstm: soft and hard, of every small size") {
  for (const bool hard : {false, true})
    for (const int64_t steps : {1, 7})
      for (const int64_t batch : {1, 3})
        for (const int64_t in : {1, 2})
          for (const int64_t cells : {1, 5})
            check({.steps = steps, .batch = batch, .in = in, .cells = cells, .hard = hard});
}

TEST_CASE("lstm: cells beyond a panel, a vector and a thread") {
  check({.steps = 3, .batch = 2, .in = 3, .cells = 33});
  check({.steps = 2, .batch = 5, .in = 3, .cells = 64});
  check({.steps = 2, .batch = 9, .in = 2, .cells = 48, .reverse = true});
  check_in({.steps = 1, .batch = 1, .in = 1, .cells = 270, .zoneout_hidden = 0.5}, {f64, bf16},
           0.25);
}

TEST_CASE("lstm: in reverse, projected, of different lengths, with zoneout") {
  for (const bool reverse : {false, true})
    for (const int64_t projection : {0, 3})
      for (const bool hard : {false, true}) {
        LstmCase k{.steps = 5,
                   .batch = 4,
                   .in = 2,
                   .cells = 6,
                   .projection = projection,
                   .hard = hard,
                   .reverse = reverse};
        check(k);
        k.lengths = {5, 1, 0, 3};
        check(k);
        k.zoneout_hidden = 0.25;
        check(k);
        k.zoneout_cell = 0.5;
        k.lengths = {};
        check(k);
      }
}

TEST_CASE("lstm: nothing to do") {
  check({.steps = 0, .batch = 2, .in = 3, .cells = 4});
  check({.steps = 3, .batch = 0, .in = 3, .cells = 4});
}

TEST_CASE("lstm: directions are independent of each other") {
  const LstmCase k{.steps = 4, .batch = 3, .in = 3, .cells = 20};
  LstmCase back = k;
  back.reverse = true;
  Variables v, w;
  for (const Shape& shape : k.inputs()) {
    v.emplace_back(random_reference(shape, 1 + v.size()).tensor(f32, test_device()), true);
    w.emplace_back(random_reference(shape, 50 + v.size()).tensor(f32, test_device()), true);
  }
  const LSTMDirectionVariables both[] = {direction_of(k, v), direction_of(back, w)};
  const auto states = lstm(v[0], both);
  const Variable y = concat({joined(states[0]), joined(states[1])}, 0);
  const Tensor dy = random_reference(y.shape(), 7).tensor(f32, test_device());
  y.backward(dy);
  const Tensor dx = v[0].grad(), dhh = w[2].grad();
  v[0].zero_grad();
  w[2].zero_grad();
  const Variable first = joined(lstm(v[0], {&both[0], 1})[0]);
  const Variable second = joined(lstm(v[0], {&both[1], 1})[0]);
  concat({first, second}, 0).backward(dy);
  CHECK(Reference::of(y.data()).values == Reference::of(concat({first, second}, 0).data()).values);
  check_close("dx", Reference::of(dx), Reference::of(v[0].grad()), 1e-5);
  CHECK(Reference::of(dhh).values == Reference::of(w[2].grad()).values);
}

TEST_CASE("lstm: zoneout keeps the states that chance picks, and backward knows which") {
  const LstmCase k{.steps = 6, .batch = 3, .in = 2, .cells = 7};
  for (const int64_t projection : {0, 4}) {
    LstmCase c = k;
    c.projection = projection;
    Variables v;
    for (const Shape& shape : c.inputs())
      v.emplace_back(random_reference(shape, 1 + v.size()).tensor(f64, test_device()), true);
    const auto run = [&](const Variables& in, double hidden, double cell) {
      LSTMDirectionVariables d = direction_of(c, in);
      d.rule.expected = false;
      d.rule.zoneout_hidden = hidden;
      d.rule.zoneout_cell = cell;
      d.rule.state = {.seed = 5, .offset = 9};
      return lstm(in[0], {&d, 1})[0];
    };
    gradcheck([&](const Variables& in) { return joined(run(in, 0.4, 0.3)); }, v);
    const Reference h0 = Reference::of(v[5].data());
    CHECK(Reference::of(run(v, 1, 0).h_n.data()).values == h0.values);
    CHECK(Reference::of(run(v, 0, 1).c_n.data()).values == Reference::of(v[6].data()).values);
  }
  // The rate, and that the two states draw independently.
  const LstmCase big{.steps = 40, .batch = 8, .in = 1, .cells = 64};
  Variables v;
  for (const Shape& shape : big.inputs())
    v.emplace_back(random_reference(shape, 1 + v.size()).tensor(f32, test_device()));
  LSTMDirectionVariables d = direction_of(big, v);
  d.rule = {.zoneout_hidden = 0.3, .zoneout_cell = 0.6, .state = {.seed = 1, .offset = 2}};
  const LSTMStates s = lstm(v[0], {&d, 1})[0];
  const Reference h = Reference::of(s.y.data()), c = Reference::of(s.c.data());
  const size_t row = 8 * 64;
  double kept_h = 0, kept_c = 0, both = 0;
  for (size_t i = row; i < h.values.size(); ++i) {
    const bool same_h = h[i] == h[i - row], same_c = c[i] == c[i - row];
    kept_h += same_h;
    kept_c += same_c;
    both += same_h && same_c;
  }
  const auto n = static_cast<double>(h.values.size() - row);
  const double five_sigma = 5 * 0.5 / std::sqrt(n);
  CHECK(std::abs(kept_h / n - 0.3) < five_sigma);
  CHECK(std::abs(kept_c / n - 0.6) < five_sigma);
  CHECK(std::abs(both / n - 0.18) < five_sigma);
}

TEST_CASE("lstm: block-sparse recurrent weights are the dense ones with zeros") {
  for (const int64_t projection : {0, 16}) {
    const LstmCase k{.steps = 3, .batch = 5, .in = 4, .cells = 32, .projection = projection};
    const LayoutPtr layout = patterns::random(
        {.rows = 8, .cols = static_cast<int>(k.width() / 16), .block = 16}, {.density = 0.5});
    std::vector<Shape> inputs = k.inputs();
    inputs[2] = {layout->nnz(), 16, 16};
    const auto dense = [&](References in) {
      Reference hh({4 * k.cells, k.width()});
      const Tensor whole = to_dense({layout, in[2].tensor(f64, Device::cpu())});
      in[2] = Reference::of(whole.view({4 * k.cells, k.width()}));
      return in;
    };
    check_op({.name = "lstm, sparse",
              .inputs = inputs,
              .op =
                  [&](const Variables& v) {
                    LSTMDirectionVariables d = direction_of(k, v);
                    d.weights.layout = layout;
                    return joined(lstm(v[0], {&d, 1})[0]);
                  },
              .reference = [&](const References& in) { return lstm_of(k, dense(in)); }});
  }
}

TEST_CASE("lstm: one long sequence, whole or in two pieces") {
  const LstmCase k{.steps = 50, .batch = 3, .in = 4, .cells = 24};
  for (const DType dtype : {f64, f32, f16, bf16}) {
    Variables v;
    for (const Shape& shape : k.inputs())
      v.emplace_back(random_reference(shape, 1 + v.size()).tensor(dtype, test_device()));
    LSTMDirectionVariables d = direction_of(k, v);
    const LSTMStates whole = lstm(v[0], {&d, 1})[0];
    const LSTMStates first = lstm(slice(v[0], 0, 0, 21), {&d, 1})[0];
    d.h0 = first.h_n;
    d.c0 = first.c_n;
    const LSTMStates second = lstm(slice(v[0], 0, 21, 50), {&d, 1})[0];
    check_close("y", Reference::of(concat({first.y, second.y}, 0).data()),
                Reference::of(whole.y.data()), 16 * epsilon(dtype));
    check_close("c_n", Reference::of(second.c_n.data()), Reference::of(whole.c_n.data()),
                16 * epsilon(dtype));
  }
}

namespace {

/// Two directions of a problem, their operands in a dtype and once more in f64.
struct BothWays {
  LstmCase k, back;
  Variables v, exact;
  References in;

  BothWays(const LstmCase& problem, DType dtype) : k(problem), back(problem) {
    back.reverse = true;
    for (const Shape& shape : k.inputs()) {
      // Sums of many cells stay of the size of one, as with a layer's first weights; and hard
      // activations off their bounds, as in check().
      const bool recurrent = shape == Shape{4 * k.cells, k.cells};
      const double range =
          (k.hard ? 0.25 : 1) * (recurrent ? 2 / std::sqrt(static_cast<double>(k.cells)) : 1);
      v.emplace_back(
          random_reference(shape, 1 + v.size(), -range, range).tensor(dtype, test_device()), true);
      in.push_back(Reference::of(v.back().data()));
      exact.emplace_back(in.back().tensor(f64, test_device()), true);
    }
  }
  std::vector<LSTMStates> run(const Variables& of) const {
    const LSTMDirectionVariables both[] = {direction_of(k, of), direction_of(back, of)};
    return lstm(of[0], both, lengths_of(k));
  }
  double allowed(DType dtype) const { return 16 * static_cast<double>(k.steps) * epsilon(dtype); }
};

void check_states(const BothWays& p, DType dtype) {
  const auto states = p.run(p.v);
  check_close("forward", Reference::of(joined(states[0]).data()), lstm_of(p.k, p.in),
              p.allowed(dtype));
  const Reference reverse = lstm_of(p.back, p.in);
  check_close("reverse", Reference::of(joined(states[1]).data()), reverse, p.allowed(dtype));
  CHECK(same_bits(p.run(p.v)[0].y.data(), states[0].y.data()));
  // Alone a direction may be divided otherwise.
  const LSTMDirectionVariables one[] = {direction_of(p.back, p.v)};
  const auto alone = lstm(p.v[0], one, lengths_of(p.k));
  check_close("alone", Reference::of(joined(alone[0]).data()), reverse, p.allowed(dtype));
}

/// Gradients of all results, against those of the same numbers in f64, twice with the same bits.
void check_gradients(const BothWays& p, DType dtype) {
  const auto arrive = [&](const std::vector<LSTMStates>& of, DType type) {
    const Variable all = concat({joined(of[0]), joined(of[1])}, 0);
    const Reference dy =
        Reference::of(random_reference(all.shape(), 77).tensor(dtype, Device::cpu()));
    all.backward(dy.tensor(type, test_device()));
  };
  arrive(p.run(p.exact), f64);
  References first;
  for (int turn = 0; turn < 2; ++turn) {
    for (const Variable& each : p.v) each.zero_grad();
    arrive(p.run(p.v), dtype);
    for (size_t i = 0; i < p.v.size(); ++i) {
      const Reference gradient = Reference::of(p.v[i].grad());
      const Reference right = Reference::of(p.exact[i].grad());
      check_close("gradient " + std::to_string(i), gradient, right,
                  p.allowed(dtype) * largest(right));
      if (turn == 0) first.push_back(gradient);
      CHECK(gradient.values == first[i].values);
    }
  }
}

}  // namespace

TEST_CASE("lstm: 16-bit types of the extents that run in one kernel") {
  struct Extents {
    int64_t cells, batch, steps;
    DType dtype;
    bool hard;
    std::vector<int64_t> lengths;
  };
  for (const Extents& e : {Extents{128, 1, 9, f16, false, {}},
                           {128, 64, 3, bf16, true, {}},
                           {128, 5, 7, bf16, false, {7, 3, 0, 1, 6}},
                           {256, 17, 5, bf16, false, {}},
                           {256, 170, 3, f16, false, {}},
                           {512, 3, 4, f16, true, {2, 4, 3}},
                           {768, 2, 3, bf16, false, {}},
                           {768, 35, 3, f16, true, {}},
                           {1024, 33, 2, bf16, false, {}},
                           {1024, 8, 3, f16, true, {}},
                           {1536, 18, 2, bf16, false, {}},
                           {2048, 2, 3, f16, false, {3, 1}}}) {
    CAPTURE(to_string(Shape{e.steps, e.batch, e.cells}));
    // The CPU has one path for all extents, and takes seconds for the largest.
    if (test_device().is_cpu() && e.steps * e.batch * e.cells * e.cells > 8'000'000) continue;
    const BothWays problem({.steps = e.steps,
                            .batch = e.batch,
                            .in = 3,
                            .cells = e.cells,
                            .hard = e.hard,
                            .lengths = e.lengths},
                           e.dtype);
    check_states(problem, e.dtype);
    check_gradients(problem, e.dtype);
  }
}

TEST_CASE("lstm: many steps, again and again, are the same as the first time") {
  for (const int64_t projection : {0, 8})
    for (const int64_t steps : {8, 77}) {
      LstmCase k{.steps = steps, .batch = 5, .in = 4, .cells = 24, .projection = projection};
      for (const bool variants : {false, true}) {
        if (variants) {
          k.lengths = {steps, steps / 2, 1, 0, steps};
          k.zoneout_hidden = 0.25;
        }
        LstmCase back = k;
        back.reverse = true;
        Variables v;
        // Small weights throughout: with larger ones the steps amplify each other's rounding, and
        // no bound on the error of so many would hold.
        const double range = 1 / std::sqrt(static_cast<double>(k.cells));
        for (const Shape& shape : k.inputs())
          v.emplace_back(
              random_reference(shape, 1 + v.size(), -range, range).tensor(f64, test_device()),
              true);
        const LSTMDirectionVariables both[] = {direction_of(k, v), direction_of(back, v)};
        References in;
        for (const Variable& each : v) in.push_back(Reference::of(each.data()));
        const double allowed = 16 * static_cast<double>(steps) * epsilon(f64);
        References first;
        for (int turn = 0; turn < 3; ++turn) {
          for (const Variable& each : v) each.zero_grad();
          const auto states = lstm(v[0], both, lengths_of(k));
          const Variable forth = joined(states[0]), reverse = joined(states[1]);
          check_close("forward", Reference::of(forth.data()), lstm_of(k, in), allowed);
          check_close("reverse", Reference::of(reverse.data()), lstm_of(back, in), allowed);
          concat({forth, reverse}, 0)
              .backward(random_reference({2 * forth.size(0)}, 9).tensor(f64, test_device()));
          for (size_t i = 0; i < v.size(); ++i) {
            const Reference gradient = Reference::of(v[i].grad());
            if (turn == 0) first.push_back(gradient);
            check_close("gradient", gradient, first[i], 1e-12 * std::max(1.0, largest(first[i])));
          }
        }
      }
    }
}

TEST_CASE("lstm refuses what does not fit") {
  const auto t = [](const Shape& shape, DType dtype = f32) { return Tensor::empty(shape, dtype); };
  const auto run = [&](const Tensor& x, LSTMDirection d, const Tensor& lengths = {}) {
    return lstm(x, {&d, 1}, lengths);
  };
  const LSTMDirection good{.weights = {.ih = t({8, 3}), .hh = t({8, 2})}};
  CHECK_THROWS_WITH_AS(run(t({4, 3}), good), "lstm: x [4, 3] is not [steps, batch, inputs]", Error);
  CHECK_THROWS_WITH_AS(run(t({4, 5, 2}), good), "lstm: weight_ih [8, 3] where [8, 2] is expected",
                       Error);
  LSTMDirection bad = good;
  bad.weights.hh = t({8, 3});
  CHECK_THROWS_WITH_AS(run(t({4, 5, 3}), bad), "lstm: weight_hh [8, 3] where [8, 2] is expected",
                       Error);
  bad = good;
  bad.weights.ih = t({6, 3});
  CHECK_THROWS_WITH_AS(run(t({4, 5, 3}), bad), "lstm: weight_ih [6, 3] is not [4 cells, inputs]",
                       Error);
  bad = good;
  bad.c0 = t({5, 2}, f64);
  CHECK_THROWS_WITH_AS(run(t({4, 5, 3}), bad), "lstm: c0 of f64 for x of f32", Error);
  bad = good;
  bad.h0 = t({4, 2});
  CHECK_THROWS_WITH_AS(run(t({4, 5, 3}), bad), "lstm: h0 [4, 2] where [5, 2] is expected", Error);
  bad = good;
  bad.rule.zoneout_cell = 1.5;
  CHECK_THROWS_WITH_AS(run(t({4, 5, 3}), bad), "lstm: a zoneout of 1.5 is not within [0, 1]",
                       Error);
  CHECK_THROWS_WITH_AS(run(t({4, 2, 3}), good, Tensor::from<int64_t>({4, 5})),
                       "lstm: sequence 1 of length 5 among 4 steps", Error);
  CHECK_THROWS_WITH_AS(run(t({4, 2, 3}), good, Tensor::from<int64_t>({4, INT64_MAX})),
                       "lstm: sequence 1 of length 9.22337e+18 among 4 steps", Error);
  CHECK_THROWS_WITH_AS(run(t({4, 2, 3}), good, Tensor::from<int64_t>({4})),
                       "lstm: lengths [1] for 2 sequences", Error);
  CHECK_THROWS_WITH_AS(run(t({4, 2, 3}, i32), good),
                       "lstm: dtype i32 is not supported; expected f64, f32, f16 or "
                       "bf16",
                       Error);
}
