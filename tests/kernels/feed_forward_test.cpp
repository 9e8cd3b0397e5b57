#include <bs/autograd/feed_forward.h>
#include <bs/kernels/feed_forward.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numbers>

using namespace bs;
using namespace bs::test;

namespace {

/// x W^T + bias for rows of x.
Reference layer(const Reference& x, const Reference& weight, const Reference& bias) {
  const int64_t k = x.shape.back(), n = weight.shape[0];
  Shape shape = x.shape;
  shape[-1] = n;
  Reference y(shape);
  for (size_t i = 0; i < y.values.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / n, column = static_cast<int64_t>(i) % n;
    y[i] = bias[static_cast<size_t>(column)];
    for (int64_t l = 0; l < k; ++l)
      y[i] += x[static_cast<size_t>(row * k + l)] * weight[static_cast<size_t>(column * k + l)];
  }
  return y;
}

Reference reference(const References& in) {
  Reference hidden = layer(in[0], in[1], in[2]);
  for (double& v : hidden.values)
    v *= (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v))) / 2;
  return layer(hidden, in[3], in[4]);
}

Variable of(const Variables& v) { return feed_forward(v[0], v[1], v[2], v[3], v[4]); }

}  // namespace

TEST_CASE("feed_forward") {
  // Rows, in, hidden, out.
  const std::vector<std::array<int64_t, 4>> cases = {
      {3, 4, 5, 2}, {0, 4, 5, 2}, {3, 0, 5, 2},     {3, 4, 0, 2},      {3, 4, 5, 0},
      {1, 1, 1, 1}, {7, 9, 8, 3}, {33, 16, 24, 40}, {64, 32, 128, 32}, {130, 64, 72, 64}};
  for (const auto& [rows, in, hidden, out] : cases)
    check_op({.name = "feed_forward",
              .inputs = {{rows, in}, {hidden, in}, {hidden}, {out, hidden}, {out}},
              .op = of,
              .reference = reference,
              .terms = out == 1 ? 1. : 0.});  // a single output may be a small difference
  check_op({.name = "feed_forward of a vector",
            .inputs = {{8}, {16, 8}, {16}, {8, 16}, {8}},
            .op = of,
            .reference = reference});
  check_op({.name = "feed_forward of a batch",
            .inputs = {{2, 3, 8}, {16, 8}, {16}, {8, 16}, {8}},
            .op = of,
            .reference = reference});
}

TEST_CASE("feed_forward takes rows of any strides") {
  const auto drawn = [](const Shape& shape, uint64_t seed) {
    return random_reference(shape, seed).tensor(bf16, test_device());
  };
  const Tensor x = drawn({8, 6, 16}, 1).transpose(0, 1);
  const FeedForwardWeights weights{drawn({16, 24}, 2).transpose(0, 1),
                                   drawn({48}, 3).slice(0, 0, 48, 2),
                                   drawn({24, 8}, 4).transpose(0, 1), drawn({9}, 5).slice(0, 1, 9)};
  const Reference expected =
      reference({Reference::of(x), Reference::of(weights.weight1), Reference::of(weights.bias1),
                 Reference::of(weights.weight2), Reference::of(weights.bias2)});
  check_close("y", Reference::of(feed_forward(x, weights).y), expected,
              16 * epsilon(bf16) * largest(expected));
}

TEST_CASE("feed_forward keeps large and infinite sums as gelu has them") {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> given = {30, -30, 1e4, -1e4, infinity, 0, 1, -1};
  for (const DType dtype : {f32, bf16, f16}) {
    Reference x({8, 8}), one({8, 8}), none({8});
    for (size_t i = 0; i < 8; ++i) one[i * 8 + i] = 1;
    Reference bias({8});
    bias.values = given;
    const auto on = [&](const Reference& r) { return r.tensor(dtype, test_device()); };
    const FeedForwardWeights weights{on(one), on(bias), on(one), on(none)};
    const FeedForwardResult forward = feed_forward(on(x), weights);
    const Reference hidden = Reference::of(forward.hidden);
    Reference dy({8, 8});
    for (double& v : dy.values) v = 1;
    const Reference dbias1 =
        Reference::of(feed_forward_backward(on(x), weights, forward, on(dy)).dbias1);
    const std::vector<double> expected = {30, 0, 1e4, 0, infinity, 0, 0.8412, -0.1588};
    const std::vector<double> slopes = {8, 0, 8, 0, 8, 4, 8 * 1.0830, 8 * -0.0830};
    for (size_t i = 0; i < 8; ++i) {
      CAPTURE(to_string(dtype));
      CAPTURE(i);
      if (std::isfinite(given[i])) {
        CHECK(hidden[i] == doctest::Approx(expected[i]).epsilon(0.01));
        CHECK(dbias1[i] == doctest::Approx(slopes[i]).epsilon(0.01));
      } else {
        CHECK(hidden[i] == expected[i]);
      }
    }
  }
}

TEST_CASE("feed_forward refuses what does not fit") {
  const auto x = [](const Shape& shape, DType dtype = f32) { return Tensor::empty(shape, dtype); };
  CHECK_THROWS_WITH_AS(
      feed_forward(x({2, 3}), {x({4, 3}), x({4}), x({3, 5}), x({3})}),
      "feed_forward: x [2, 3], weights [4, 3] and [3, 5], biases [4] and [3] do not match: [..., "
      "in], [hidden, in], [out, hidden], [hidden] and [out] are expected",
      Error);
  CHECK_THROWS_WITH_AS(feed_forward(x({2, 3}), {x({4, 3}), x({4}), x({3, 4}, bf16), x({3})}),
                       "feed_forward: dtypes f32 and bf16 differ", Error);
  const FeedForwardWeights weights{x({4, 3}), x({4}), x({3, 4}), x({3})};
  const FeedForwardResult forward{x({2, 3}), x({2, 4}), x({2, 4})};
  CHECK_THROWS_WITH_AS(feed_forward_backward(x({2, 3}), weights, forward, x({2, 4})),
                       "feed_forward_backward: dy [2, 4], before [2, 4] and hidden [2, 4] for x "
                       "[2, 3] and weights [4, 3] and [3, 4]",
                       Error);
}
