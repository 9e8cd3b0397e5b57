#include <bs/tests/support/check_twice.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/grad.h>
#include <bs/autograd/grad_check.h>
#include <bs/autograd/reduce.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

namespace bs::test {

Variable random_leaf(const Shape& shape, uint64_t seed, double low, double high) {
  return Variable(random_reference(shape, seed, low, high).tensor(f64, test_device()), true);
}

namespace {

/// f of copies that nobody holds, and a copy of its result: what its rules have not saved is gone
/// when they look at it.
Variable out_of_sight(const Function& f, const Inputs& inputs) {
  Inputs copies;
  for (const Variable& v : inputs) copies.push_back(v.requires_grad() ? v * 1 : v);
  return f(copies) * 1;
}

}  // namespace

void check_twice(const char* name, const Function& f, const Inputs& inputs) {
  CAPTURE(name);
  Inputs wanted;
  for (const Variable& v : inputs)
    if (v.requires_grad()) wanted.push_back(v);
  const Variable y = f(inputs);
  const Variable dy = random_leaf(y.shape(), 99);
  const Variable ys[] = {y}, dys[] = {dy};
  const VariableGrads recorded = differentiable_grad(ys, wanted, dys);
  const Variable unseen[] = {out_of_sight(f, inputs)};
  const VariableGrads from_saved = differentiable_grad(unseen, wanted, dys);
  const Tensor starts[] = {dy.data()};
  const Grads plain = grad(ys, wanted, starts);
  for (size_t i = 0; i < wanted.size(); ++i) {
    CAPTURE(i);
    REQUIRE(recorded[i].defined() == plain[i].defined());
    REQUIRE(from_saved[i].defined() == plain[i].defined());
    if (!plain[i].defined()) continue;
    const Reference a = Reference::of(recorded[i].data()), b = Reference::of(plain[i]);
    const Reference c = Reference::of(from_saved[i].data());
    for (size_t k = 0; k < b.values.size(); ++k) {
      CHECK(a[k] == doctest::Approx(b[k]).epsilon(1e-10).scale(1));
      CHECK(c[k] == doctest::Approx(b[k]).epsilon(1e-10).scale(1));
    }
  }
  Inputs all = inputs;
  all.push_back(dy);
  // On a GPU each difference waits for it, and to sanitizers one is like the other: a few
  // projections stand for all entries there.
  const bool few = test_device().is_cuda() || sanitized;
  const GradCheckOptions how = few ? GradCheckOptions{.full = 0, .samples = 2} : GradCheckOptions();
  gradcheck(
      [&](const Inputs& given) {
        const EnableGrad enable_grad;
        Inputs now, leaves;
        for (size_t i = 0; i < inputs.size(); ++i) {
          const bool is_leaf = inputs[i].requires_grad();
          now.push_back(is_leaf && !given[i].requires_grad() ? Variable(given[i].data(), true)
                                                             : given[i]);
          if (is_leaf) leaves.push_back(now.back());
        }
        const Variable results[] = {f(now)}, from[] = {given.back()};
        const VariableGrads slopes = differentiable_grad(results, leaves, from);
        Variable total(zeros({}, f64, test_device()));
        for (size_t i = 0; i < slopes.size(); ++i) {
          if (!slopes[i].defined()) continue;
          const Tensor weights =
              random_reference(slopes[i].shape(), 200 + i).tensor(f64, test_device());
          total = total + sum(slopes[i] * weights);
        }
        return total;
      },
      all, how);
}

void check_one(const char* name, const One& f, const Variable& x) {
  check_twice(name, [&](const Inputs& in) { return f(in[0]); }, {x});
}

void check_two(const char* name, const Two& f, const Variable& a, const Variable& b) {
  const Function both = [&](const Inputs& in) { return f(in[0], in[1]); };
  check_twice(name, both, {a, b});
  check_twice(name, both, {a, b.detach()});
  check_twice(name, both, {a.detach(), b});
}

One squared(const One& f) {
  return [f](const Variable& v) {
    const Variable part = f(v);
    return part * part;
  };
}

}  // namespace bs::test
