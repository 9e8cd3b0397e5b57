#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

namespace bs::test {

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-52;
    case DType::f32:
      return 0x1p-23;
    case DType::f16:
      return 0x1p-10;
    default:
      return 0x1p-7;
  }
}

double largest(const Reference& r) {
  double top = 0;
  for (double v : r.values) top = std::max(top, std::abs(v));
  return top;
}

void check_close(const std::string& what, const Reference& actual, const Reference& expected,
                 double tolerance) {
  REQUIRE_MESSAGE(actual.shape == expected.shape, what, ": shape ", to_string(actual.shape),
                  ", expected ", to_string(expected.shape));
  double worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]);
    if (error <= worst) continue;
    worst = error;
    where = i;
    if (std::isnan(error)) break;
  }
  if (expected.values.empty()) return;
  CHECK_MESSAGE(worst <= tolerance, what, ": error ", worst, " > ", tolerance, " at ", where, ": ",
                actual[where], ", expected ", expected[where]);
}

namespace {

struct Outcome {
  Reference y;
  References gradients;
};

/// Runs forward, and backward from `dy`, in one dtype on the device under test.
Outcome run(const OpCase& c, const References& inputs, const Reference& dy, DType dtype) {
  Variables variables;
  for (const Reference& input : inputs)
    variables.emplace_back(input.tensor(dtype, test_device()), c.differentiable);
  const Variable y = c.op(variables);
  Outcome outcome{Reference::of(y.data()), {}};
  for (size_t i = 0; i < inputs.size(); ++i)
    CHECK_MESSAGE(Reference::of(variables[i].data()).values == inputs[i].values, c.name,
                  " changed its input ", i);
  if (!c.differentiable) return outcome;
  y.backward(dy.tensor(y.dtype(), test_device()));
  for (const Variable& v : variables) {
    REQUIRE_MESSAGE(v.grad().defined(), c.name, ": an input got no gradient");
    outcome.gradients.push_back(Reference::of(v.grad()));
  }
  return outcome;
}

/// Inputs as `dtype` holds them.
References rounded(const References& inputs, DType dtype) {
  References out;
  for (const Reference& r : inputs) out.push_back(Reference::of(r.tensor(dtype, Device::cpu())));
  return out;
}

double dot(const Reference& a, const Reference& b) {
  double sum = 0;
  for (size_t i = 0; i < a.values.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// d<dy, reference(inputs)> / d input[which][at], by central differences.
double difference(const OpCase& c, const References& inputs, const Reference& dy, size_t which,
                  size_t at) {
  const double h = 1e-5;
  References moved = inputs;
  moved[which][at] += h;
  const double above = dot(dy, c.reference(moved));
  moved[which][at] -= 2 * h;
  return (above - dot(dy, c.reference(moved))) / (2 * h);
}

/// Every element of small inputs, an evenly spread sample of large ones. Differences are of the
/// reference alone, where sanitizers have nothing to find.
void check_gradients(const OpCase& c, const References& inputs, const Reference& dy,
                     const References& gradients) {
  const size_t most = sanitized ? 1 : 64;
  for (size_t which = 0; which < inputs.size(); ++which) {
    const size_t n = inputs[which].values.size();
    const size_t step = std::max<size_t>(1, n / most);
    for (size_t at = 0; at < n; at += step) {
      const double expected = difference(c, inputs, dy, which, at);
      const double actual = gradients[which][at];
      CHECK_MESSAGE(std::abs(actual - expected) <= 1e-6 * std::max(1.0, std::abs(expected)), c.name,
                    ": gradient of input ", which, " at ", at, " is ", actual,
                    ", differences give ", expected);
    }
  }
}

/// `again` is of the same inputs, which give the same bits.
void check_repeats(const std::string& what, const Outcome& outcome, const Outcome& again) {
  CHECK_MESSAGE(outcome.y.values == again.y.values, what, ": two runs differ");
  for (size_t i = 0; i < outcome.gradients.size(); ++i)
    CHECK_MESSAGE(outcome.gradients[i].values == again.gradients[i].values, what,
                  ": gradients of two runs differ");
}

}  // namespace

void check_op(const OpCase& c) {
  References exact;
  for (size_t i = 0; i < c.inputs.size(); ++i)
    exact.push_back(random_reference(c.inputs[i], 17 * i + 1, c.low, c.high));
  for (DType dtype : c.dtypes) {
    const std::string what = c.name + " " + to_string(dtype);
    const References inputs = rounded(exact, dtype);
    const Reference expected = c.reference(inputs);
    const Reference dy = rounded({random_reference(expected.shape, 99)}, dtype).front();
    const Outcome outcome = run(c, inputs, dy, dtype);
    check_close(what, outcome.y, expected,
                c.steps * epsilon(dtype) * std::max(c.terms, largest(expected)));
    if (!sanitized) check_repeats(what, outcome, run(c, inputs, dy, dtype));
    if (!c.differentiable) continue;
    if (dtype == f64) {
      check_gradients(c, inputs, dy, outcome.gradients);
      continue;
    }
    if (sanitized) continue;  // the same accesses once more
    const Outcome in_f64 = run(c, inputs, dy, f64);
    for (size_t i = 0; i < inputs.size(); ++i)
      check_close(what + " gradient " + std::to_string(i), outcome.gradients[i],
                  in_f64.gradients[i],
                  c.steps * epsilon(dtype) * std::max(1e-3, largest(in_f64.gradients[i])));
  }
}

void check_function(const char* name, Variable (*op)(const Variable&), double (*f)(double),
                    double low, double high) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 5}, Shape{2, 1031}})
    check_op({.name = name,
              .inputs = {shape},
              .op = [=](const Variables& v) { return op(v[0]); },
              .reference =
                  [=](const References& in) {
                    Reference y = in[0];
                    for (double& v : y.values) v = f(v);
                    return y;
                  },
              .low = low,
              .high = high});
}

}  // namespace bs::test
