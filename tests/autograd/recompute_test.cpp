#include <bs/autograd/binary.h>
#include <bs/autograd/dropout.h>
#include <bs/autograd/grad_check.h>
#include <bs/autograd/linear.h>
#include <bs/autograd/recompute.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/tape.h>
#include <bs/autograd/unary.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/random.h>
#include <doctest/doctest.h>

#include <algorithm>

using namespace bs;

namespace {

bool same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() &&
         std::equal(a.data<float>(), a.data<float>() + a.numel(), b.data<float>());
}

/// Three dense layers with dropout; `weight` is captured as parameters of a module are.
struct Part {
  Variable weight = Variable(randn({8, 8}), true);

  Variable operator()(const std::vector<Variable>& in) const {
    Variable x = in[0];
    for (int i = 0; i < 3; ++i) x = dropout(exp(mul(linear(x, weight, {}), .1)), .5);
    return mul(x, in[1]);
  }
};

}  // namespace

TEST_CASE("recompute: the same values and gradients, bit for bit, and less is kept") {
  const Part part;
  const Variable x(randn({4, 8}), true), y(randn({4, 8}), true);
  manual_seed(5);
  const Variable plain = sum(part({x, y}));
  const size_t nodes = tape().size();
  plain.backward();
  const Tensor dx = x.grad(), dy = y.grad(), dweight = part.weight.grad();
  for (const Variable& v : {x, y, part.weight}) v.zero_grad();

  manual_seed(5);
  const Variable z = sum(recompute([&](const auto& in) { return part(in); }, {x, y}));
  CHECK(tape().size() == 2);
  CHECK(nodes > 6);
  const RandomState after = default_generator().state();
  z.backward();
  CHECK(default_generator().state() == after);
  CHECK(plain.data().item() == z.data().item());
  CHECK(same(dx, x.grad()));
  CHECK(same(dy, y.grad()));
  CHECK(same(dweight, part.weight.grad()));
}

TEST_CASE("recompute: inputs without gradients, undefined ones, and no input at all") {
  const Part part;
  const Variable x(randn({2, 8})), y(randn({2, 8}), true);
  sum(recompute([&](const auto& in) { return part(in); }, {x, y, {}})).backward();
  CHECK(!x.grad().defined());
  CHECK(y.grad().defined());
  CHECK(part.weight.grad().defined());
  part.weight.zero_grad();
  sum(recompute([&](const auto&) { return part({x, x}); }, {})).backward();
  CHECK(part.weight.grad().defined());
  const NoGrad no_grad;
  CHECK(!recompute([&](const auto& in) { return part(in); }, {x, y}).requires_grad());
}

TEST_CASE("recompute: backward twice, nested, gradcheck; a changed input is an error") {
  const auto square = [](const std::vector<Variable>& in) { return mul(in[0], in[0]); };
  const auto twice = [&](const std::vector<Variable>& in) {
    return recompute([&](const auto& x) { return square({recompute(square, x)}); }, in);
  };
  const Variable x(randn({3}, f64), true);
  gradcheck(twice, {x});
  x.zero_grad();
  const Variable y = sum(twice({x}));
  y.backward({.retain_graph = true});
  const Tensor once = add(x.grad(), x.grad());
  y.backward({.retain_graph = true});
  CHECK(sub(once, x.grad()).select(0, 0).item() == 0);
  fill(x.data(), 1);
  CHECK_THROWS_WITH_AS(y.backward(),
                       doctest::Contains("recompute saved a tensor f64 [3] that fill"), Error);
}
