#include <bs/autograd/binary.h>
#include <bs/autograd/dropout.h>
#include <bs/autograd/grad.h>
#include <bs/autograd/grad_check.h>
#include <bs/autograd/linear.h>
#include <bs/autograd/recompute.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/tape.h>
#include <bs/autograd/unary.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/random.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>

using namespace bs;

namespace {

bool same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() &&
         std::equal(a.data<float>(), a.data<float>() + a.numel(), b.data<float>());
}

using Function = std::function<Variable(const std::vector<Variable>&)>;
using Doubles = std::vector<double>;

Variable leaf(const Doubles& list) {
  test::Reference r({static_cast<int64_t>(list.size())});
  r.values = list;
  return {r.tensor(f64, test::test_device()), true};
}
Doubles values(const Tensor& x) { return test::Reference::of(x).values; }

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

TEST_CASE("recompute: grad() gives captured variables theirs too, and changes none") {
  const Variable x = leaf({2, 3}), w = leaf({5, -7});
  const Function by_w = [&](const auto& in) { return mul(in[0], w); };
  const Function nested = [&](const auto& in) { return recompute(by_w, in); };
  for (const Function& part : {by_w, nested}) {
    const Variable y = recompute(part, {recompute(part, {x})});  // x w^2
    Grads g = grad(sum(y), {x, w});
    CHECK(values(g[0]) == Doubles{25, 49});
    CHECK(values(g[1]) == Doubles{20, -42});
    g = grad(sum(recompute(part, {x})), {x});
    CHECK(values(g[0]) == Doubles{5, -7});
    g = grad(sum(mul(recompute(part, {x}), w)), {w});
    CHECK(values(g[0]) == Doubles{20, -42});
  }
  const Variable h = mul(x, w);
  const Function by_h = [&](const auto& in) { return mul(in[0], h); };  // x^2 w
  const Grads g = grad(sum(recompute(by_h, {x})), {x, w, h});
  CHECK(values(g[0]) == Doubles{20, -42});
  CHECK(values(g[1]) == Doubles{4, 9});
  CHECK(values(g[2]) == Doubles{2, 3});
  for (const Variable& v : {x, w, h}) CHECK(!v.grad().defined());
  sum(recompute(nested, {recompute(nested, {x})})).backward();
  CHECK(values(x.grad()) == Doubles{25, 49});
  CHECK(values(w.grad()) == Doubles{20, -42});
}

TEST_CASE("recompute: an inner part may capture an input of the outer one") {
  const Variable x = leaf({2, 3});
  const Function square = [](const auto& in) {
    return recompute([outer = in[0]](const auto& inner) { return mul(inner[0], outer); }, {in[0]});
  };
  CHECK(values(grad(sum(recompute(square, {x})), {x})[0]) == Doubles{4, 6});
  CHECK(!x.grad().defined());
  sum(recompute(square, {x})).backward();
  CHECK(values(x.grad()) == Doubles{4, 6});
}

TEST_CASE("recompute: a backward that throws leaves nothing for the next") {
  bool fails = true;
  const Function part = [&](const auto& in) {
    const Variable late =
        tape().record("late", {in[1]}, clone(in[1].data()), [&](const Tensor& dy) {
          BS_CHECK(!fails, "late: not yet");
          return Grads{dy};
        });
    return add(mul(in[0], 5), late);  // the backward of the product runs before that of `late`
  };
  const Variable x = leaf({1}), z = leaf({1});
  const Variable y = recompute(part, {x, z});
  CHECK_THROWS_WITH_AS(y.backward({.retain_graph = true}), "late: not yet", Error);
  fails = false;
  y.backward();
  CHECK(values(x.grad()) == Doubles{5});
  CHECK(values(z.grad()) == Doubles{1});
}

TEST_CASE("recompute: no function is an error") {
  CHECK_THROWS_WITH_AS(recompute(nullptr, {Variable(randn({2}), true)}),
                       "recompute: there is no function to call", Error);
}
