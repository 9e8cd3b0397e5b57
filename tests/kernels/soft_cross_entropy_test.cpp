#include <bs/autograd/soft_cross_entropy.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

template <class T>
Tensor vector(std::initializer_list<T> v) {
  return Tensor::from<T>(v).to(test_device());
}

/// Of row r of x [4, 5].
std::vector<double> log_softmax_of(const Reference& x, size_t r) {
  double sum = 0;
  for (size_t j = 0; j < 5; ++j) sum += std::exp(x[r * 5 + j]);
  std::vector<double> y;
  for (size_t j = 0; j < 5; ++j) y.push_back(x[r * 5 + j] - std::log(sum));
  return y;
}

}  // namespace

TEST_CASE("soft_cross_entropy: targets that are probabilities, smoothed") {
  const Reference q = random_reference({4, 5}, 3, 0, 1);
  check_op({.name = "soft_cross_entropy",
            .inputs = {{4, 5}},
            .op =
                [&](const Variables& v) {
                  return soft_cross_entropy(v[0], q.tensor(f64, test_device()),
                                            {.label_smoothing = 0.2});
                },
            .reference =
                [&](const References& in) {
                  Reference y;
                  for (size_t r = 0; r < 4; ++r)
                    for (size_t j = 0; j < 5; ++j)
                      y[0] -= (0.8 * q[r * 5 + j] + 0.04) * log_softmax_of(in[0], r)[j] / 4;
                  return y;
                },
            .dtypes = {f64, f32}});
  // A class of no weight may have no probability.
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor x = vector<double>({0, -infinity}).view({1, 2});
  const Variable loss = soft_cross_entropy(Variable(x), vector<double>({1, 0}).view({1, 2}));
  CHECK(loss.data().item() == 0);
}

TEST_CASE("weighted_cross_entropy: weights of classes, smoothed or not") {
  const Tensor t = vector<int64_t>({2, -100, 0, 2});
  for (const double s : {0.0, 0.1})
    check_op({.name = "weighted_cross_entropy",
              .inputs = {{4, 5}},
              .op =
                  [&](const Variables& v) {
                    return weighted_cross_entropy(v[0], t, vector<double>({0.5, 1, 3, 1, 2}),
                                                  {.label_smoothing = s});
                  },
              .reference =
                  [&](const References& in) {
                    const std::vector<int64_t> targets = {2, -100, 0, 2};
                    const std::vector<double> c = {0.5, 1, 3, 1, 2};
                    Reference y;
                    for (size_t r = 0; r < 4; ++r) {
                      if (targets[r] < 0) continue;
                      const auto log_p = log_softmax_of(in[0], r);
                      y[0] -= (1 - s) * c[static_cast<size_t>(targets[r])] *
                              log_p[static_cast<size_t>(targets[r])];
                      for (size_t j = 0; j < 5; ++j) y[0] -= s / 5 * c[j] * log_p[j];
                    }
                    y[0] /= 6.5;
                    return y;
                  },
              .dtypes = {f64, f32}});
}

TEST_CASE("nll_loss: the mean, and a weighted sum") {
  const Tensor t = vector<int64_t>({2, -100, 0, 2});
  check_op({.name = "nll_loss",
            .inputs = {{4, 5}},
            .op = [&](const Variables& v) { return nll_loss(v[0], t); },
            .reference =
                [](const References& in) {
                  Reference y;
                  y[0] = -(in[0][2] + in[0][10] + in[0][17]) / 3;
                  return y;
                }});
  check_op({.name = "nll_loss, weighted",
            .inputs = {{4, 5}},
            .op =
                [&](const Variables& v) {
                  return nll_loss(v[0], t, vector<double>({0.5, 1, 3, 1, 2}),
                                  {.reduction = Reduction::sum});
                },
            .reference =
                [](const References& in) {
                  Reference y;
                  y[0] = -(3 * in[0][2] + 0.5 * in[0][10] + 3 * in[0][17]);
                  return y;
                },
            .dtypes = {f64, f32}});
  CHECK_THROWS_WITH_AS(nll_loss(vector<double>({0, 1}).view({1, 2}), t),
                       "nll_loss: targets [4] for [1, 2]", Error);
}

TEST_CASE("soft_cross_entropy takes probabilities, and class numbers by no accident") {
  const Variable x(zeros({2, 3}, f32, test_device()));
  const std::string rest =
      "; class numbers go to cross_entropy, 0 and 1 for each class need a cast";
  for (const DType dtype : {i64, i32, boolean}) {
    const std::string name = to_string(dtype);
    CHECK_THROWS_WITH_AS(
        soft_cross_entropy(x, zeros({2}, dtype, test_device())),
        ("soft_cross_entropy: probabilities [2] for logits [2, 3] are " + name + rest).c_str(),
        Error);
    CHECK_THROWS_WITH_AS(
        soft_cross_entropy(x, zeros({2, 3}, dtype, test_device())),
        ("soft_cross_entropy: probabilities [2, 3] for logits [2, 3] are " + name + rest).c_str(),
        Error);
  }
  CHECK_THROWS_WITH_AS(soft_cross_entropy(x, zeros({3}, f32, test_device())),
                       "soft_cross_entropy: shapes [2, 3] and [3] differ", Error);
  CHECK_THROWS_WITH_AS(soft_cross_entropy(x, x.data(), {.label_smoothing = 1.5}),
                       "soft_cross_entropy: label_smoothing 1.5 is not within [0, 1]", Error);
}
