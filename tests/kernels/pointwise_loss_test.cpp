#include <bs/autograd/pointwise_loss.h>
#include <bs/kernels/pointwise_loss.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <functional>
#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

using Op = std::function<Variable(const Variable&, const Variable&, Reduction)>;
using Pointwise = std::function<double(double, double)>;

Reference reduced(Reference losses, Reduction reduction) {
  if (reduction == Reduction::none) return losses;
  Reference y;
  for (double v : losses.values) y[0] += v;
  if (reduction == Reduction::mean) y[0] /= static_cast<double>(losses.values.size());
  return y;
}

/// Both operands drawn; `one_sided`: the target takes no gradient and is fixed.
void check_loss(const char* name, const Op& op, const Pointwise& f, bool one_sided, double low,
                double high) {
  for (Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none})
    for (const Shape& shape : {Shape{1}, Shape{3, 5}, Shape{2, 259}}) {
      const Reference fixed = random_reference(shape, 5, 0.1, 0.9);
      std::vector<Shape> inputs = {shape};
      if (!one_sided) inputs.push_back(shape);
      check_op({.name = name,
                .inputs = inputs,
                .op =
                    [=](const Variables& v) {
                      const Variable t =
                          one_sided ? Variable(fixed.tensor(v[0].dtype(), test_device())) : v[1];
                      return op(v[0], t, reduction);
                    },
                .reference =
                    [=](const References& in) {
                      Reference y = in[0];
                      // A fixed target is rounded as its operand is: 16 steps allow for that.
                      for (size_t i = 0; i < y.values.size(); ++i)
                        y[i] = f(in[0][i], one_sided ? fixed[i] : in[1][i]);
                      return reduced(y, reduction);
                    },
                .low = low,
                .high = high,
                .steps = 16,
                .dtypes = one_sided ? std::vector<DType>{f64, f32}
                                    : std::vector<DType>{f64, f32, f16, bf16}});
    }
}

double huber(double d, double delta) {
  d = std::abs(d);
  return d < delta ? d * d / 2 : delta * (d - delta / 2);
}

Tensor vector(std::initializer_list<float> v) { return Tensor::from<float>(v).to(test_device()); }

}  // namespace

TEST_CASE("losses of differences") {
  check_loss(
      "mse_loss", [](auto& x, auto& t, auto r) { return mse_loss(x, t, r); },
      [](double x, double t) { return (x - t) * (x - t); }, false, -1, 1);
  check_loss(
      "l1_loss", [](auto& x, auto& t, auto r) { return l1_loss(x, t, r); },
      [](double x, double t) { return std::abs(x - t); }, false, -1, 1);
  check_loss(
      "huber_loss", [](auto& x, auto& t, auto r) { return huber_loss(x, t, 0.7, r); },
      [](double x, double t) { return huber(x - t, 0.7); }, false, -1, 1);
  check_loss(
      "smooth_l1_loss", [](auto& x, auto& t, auto r) { return smooth_l1_loss(x, t, 0.5, r); },
      [](double x, double t) { return huber(x - t, 0.5) / 0.5; }, false, -1, 1);
}

TEST_CASE("losses of probabilities") {
  const auto entropy = [](double p, double t) {
    return -t * std::log(p) - (1 - t) * std::log(1 - p);
  };
  check_loss(
      "binary_cross_entropy",
      [](auto& x, auto& t, auto r) { return binary_cross_entropy(x, t.data(), r); }, entropy, true,
      0.1, 0.9);
  check_loss(
      "binary_cross_entropy_with_logits",
      [](auto& x, auto& t, auto r) { return binary_cross_entropy_with_logits(x, t.data(), {}, r); },
      [=](double x, double t) { return entropy(1 / (1 + std::exp(-x)), t); }, true, -3, 3);
  check_loss(
      "binary_cross_entropy_with_logits, weighted",
      [](auto& x, auto& t, auto r) {
        return binary_cross_entropy_with_logits(x, t.data(), vector({2.5}), r);
      },
      [](double x, double t) {
        const double p = 1 / (1 + std::exp(-x));
        return -2.5 * t * std::log(p) - (1 - t) * std::log(1 - p);
      },
      true, -3, 3);
  check_loss(
      "kl_div", [](auto& x, auto& t, auto r) { return kl_div(x, t.data(), r); },
      [](double x, double t) { return t * (std::log(t) - x); }, true, -3, 0);
  check_loss(
      "kl_div of logarithms", [](auto& x, auto& t, auto r) { return kl_div(x, t.data(), r, true); },
      [](double x, double t) { return std::exp(t) * (t - x); }, true, -3, 0);
}

TEST_CASE("losses of many elements are added up in parts") {
  const std::function<double(double, double)> square = [](double x, double t) {
    return (x - t) * (x - t);
  };
  const auto cross = [](double x, double t) {
    return std::max(x, 0.0) - x * t + std::log1p(std::exp(-std::abs(x)));
  };
  const auto divergence = [](double x, double t) { return t == 0 ? 0 : t * (std::log(t) - x); };
  for (const int64_t n : {2048, 2049, 4096 + 5, 12345, 3'000'001})
    for (const DType dtype : {f64, f32, f16, bf16})
      for (const bool shifted : {false, true}) {  // where vectors do not begin
        CAPTURE(n);
        CAPTURE(to_string(dtype));
        CAPTURE(shifted);
        const auto drawn = [&](uint64_t seed, double low, double high) {
          const Tensor all =
              random_reference({n + shifted}, seed, low, high).tensor(dtype, test_device());
          return all.slice(0, shifted, n + shifted);
        };
        const Tensor x = drawn(1, -3, 3), t = drawn(2, 0, 1), logs = drawn(3, -8, -5);
        const Reference target = Reference::of(t);
        const auto sum_of = [&](const auto& f, const Tensor& of) {
          const Reference in = Reference::of(of);
          double sum = 0;
          for (size_t i = 0; i < in.values.size(); ++i) sum += f(in[i], target[i]);
          return sum;
        };
        // What is not positive hardly weighs: of each element's rounding, and of that of adding up
        // thousands.
        const double bound = dtype == f64 ? 1e-12 : 1e-5;
        const double squares = sum_of(square, x), crosses = sum_of(cross, x);
        CHECK(mse_loss(x, t, Reduction::sum).item() == doctest::Approx(squares).epsilon(bound));
        CHECK(mse_loss(x, t).item() ==
              doctest::Approx(squares / static_cast<double>(n)).epsilon(bound));
        CHECK(binary_cross_entropy_with_logits(x, t).item() ==
              doctest::Approx(crosses / static_cast<double>(n)).epsilon(bound));
        CHECK(kl_div(logs, t, Reduction::sum).item() ==
              doctest::Approx(sum_of(divergence, logs)).epsilon(bound));
      }
}

TEST_CASE("kl_div_backward of every dtype: one gradient for all elements, or one each") {
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const int64_t n : {1, 7, 64, 4099})
      for (const bool log_target : {false, true}) {
        CAPTURE(to_string(dtype));
        CAPTURE(n);
        CAPTURE(log_target);
        const auto drawn = [&](uint64_t seed, double low, double high) {
          return random_reference({n}, seed, low, high).tensor(dtype, test_device());
        };
        const Tensor x = drawn(1, -8, -5), t = log_target ? drawn(2, -2, 0) : drawn(2, 0, 1);
        const Tensor each =
            random_reference({n}, 3).tensor(dtype == f64 ? f64 : f32, test_device());
        const Tensor one = each.slice(0, 0, 1).view({});
        const Reference target = Reference::of(t), dloss = Reference::of(each);
        // `by`: what the mean divides by.
        const auto check = [&](const Tensor& dx, bool shared, double by) {
          CHECK(dx.dtype() == dtype);
          Reference actual = Reference::of(dx), expected = target;
          for (size_t i = 0; i < expected.values.size(); ++i) {
            actual[i] *= by;
            expected[i] = -(log_target ? std::exp(target[i]) : target[i]) * dloss[shared ? 0 : i];
          }
          check_close("kl_div_backward", actual, expected, 4 * epsilon(dtype));
        };
        check(kl_div_backward(x, t, each, Reduction::none, log_target), false, 1);
        check(kl_div_backward(x, t, one, Reduction::sum, log_target), true, 1);
        check(kl_div_backward(x, t, one, Reduction::mean, log_target), true,
              static_cast<double>(n));
      }
}

TEST_CASE("losses at the ends of their domain") {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto values = [](const Tensor& x) { return Reference::of(x).values; };
  const auto e = values(
      binary_cross_entropy(vector({0, 1, 0, 1, nan}), vector({1, 0, 0, 1, 0}), Reduction::none));
  CHECK(std::vector<double>(e.begin(), e.begin() + 4) == std::vector<double>{100, 100, 0, 0});
  CHECK(std::isnan(e[4]));
  const auto l = values(binary_cross_entropy_with_logits(
      vector({inf, -inf, inf, 200, nan}), vector({1, 0, 0, 0, 0}), {}, Reduction::none));
  CHECK(std::vector<double>(l.begin(), l.begin() + 4) == std::vector<double>{0, 0, inf, 200});
  CHECK(std::isnan(l[4]));
  const auto k = values(kl_div(vector({-inf, -inf, 0}), vector({0, 0.5, 1}), Reduction::none));
  CHECK((k[0] == 0 && k[1] == inf && k[2] == 0));
  const auto g = values(
      l1_loss_backward(vector({1, 1, nan}), vector({1, 2, 1}), vector({1, 1, 1}), Reduction::none));
  CHECK((g[0] == 0 && g[1] == -1 && std::isnan(g[2])));
  const Tensor none = Tensor::empty({0}, f32, test_device());
  CHECK(std::isnan(mse_loss(none, none).item()));
  CHECK(mse_loss(none, none, Reduction::sum).item() == 0);
}

TEST_CASE("cosine_similarity") {
  check_op({.name = "cosine_similarity",
            .inputs = {{4, 6}, {6}},
            .op = [](const Variables& v) { return cosine_similarity(v[0], v[1]); },
            .reference =
                [](const References& in) {
                  Reference y({4});
                  for (size_t r = 0; r < 4; ++r) {
                    double ab = 0, aa = 0, bb = 0;
                    for (size_t j = 0; j < 6; ++j) {
                      const double a = in[0][r * 6 + j], b = in[1][j];
                      ab += a * b, aa += a * a, bb += b * b;
                    }
                    y[r] = ab / std::sqrt(aa * bb);
                  }
                  return y;
                }});
  const Variable zero(Tensor::from<double>({0, 0}).to(test_device()), true);
  const Variable y = cosine_similarity(zero, Tensor::from<double>({3, 4}).to(test_device()));
  CHECK(y.data().item() == 0);
  y.backward();
  for (double v : Reference::of(zero.grad()).values) CHECK(std::isfinite(v));
}

TEST_CASE("cosine_similarity of long, short and no vectors, in each dtype") {
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const double scale : {300.0, 1e-4, 0.0}) {
      CAPTURE(dtype);
      CAPTURE(scale);
      Reference p({2}), q({2});
      p.values = {scale, scale}, q.values = {scale, 0};
      const Variable a(p.tensor(dtype, test_device()), true);
      const Variable b(q.tensor(dtype, test_device()), true);
      const Variable y = cosine_similarity(a, b);
      CHECK(y.dtype() == dtype);
      const double root = std::sqrt(0.5), cosine = scale > 0 ? root : 0;
      CHECK(y.data().item() == doctest::Approx(cosine).epsilon(4e-3));
      y.backward();
      const double s = Reference::of(b.data())[0];  // scale, rounded
      const double slope = s > 0 ? root / 2 / s : 0;
      const Reference da = Reference::of(a.grad()), db = Reference::of(b.grad());
      const auto near = [&](double v) { return doctest::Approx(v).epsilon(8e-3); };
      CHECK(da[0] == near(slope));
      CHECK(da[1] == near(-slope));
      CHECK(std::abs(db[0]) <= 0.02 * slope);
      CHECK(db[1] == near(2 * slope));
    }
}

TEST_CASE("losses refuse what does not fit") {
  const Tensor x = Tensor::empty({2, 3}, f32);
  CHECK_THROWS_WITH_AS(mse_loss(x, Tensor::empty({3}, f32)),
                       "mse_loss: shapes [2, 3] and [3] differ", Error);
  CHECK_THROWS_WITH_AS(mse_loss(x, Tensor::empty({2, 3}, f64)),
                       "mse_loss: dtypes f32 and f64 differ", Error);
  CHECK_THROWS_WITH_AS(huber_loss(x, x, 0), "huber_loss: delta 0 <= 0", Error);
  CHECK_THROWS_WITH_AS(smooth_l1_loss(x, x, -1), "smooth_l1_loss: beta -1 < 0", Error);
  CHECK_THROWS_WITH_AS(
      binary_cross_entropy_with_logits(x, x, Tensor::empty({2}, f32)),
      "binary_cross_entropy_with_logits: shapes [2, 3] and [2] do not broadcast (3 against 2)",
      Error);
}
