#include <bs/autograd/conv1d.h>
#include <bs/autograd/grad_check.h>
#include <bs/kernels/conv1d.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>

using namespace bs;
using namespace bs::test;

namespace {

struct Case {
  Shape x, w;
  Conv1dOptions options = {};

  /// Zeros before and behind x.
  std::pair<int64_t, int64_t> padding() const {
    const Conv1dOptions& o = options;
    if (!o.same) return {o.left, o.right};
    const int64_t results = (x[2] + o.stride - 1) / o.stride;
    const int64_t all =
        std::max<int64_t>((results - 1) * o.stride + o.dilation * (w[2] - 1) + 1 - x[2], 0);
    return {all / 2, all - all / 2};
  }
  int64_t covered() const { return options.dilation * (w[2] - 1) + 1; }
  Shape y() const {
    const auto [left, right] = padding();
    return {x[0], w[0], (x[2] + left + right - covered()) / options.stride + 1};
  }
};

/// Calls f(y index, x index, weight index) for each product.
template <class F>
void for_each_product(const Case& c, const F& f) {
  const Conv1dOptions& o = c.options;
  const Shape y = c.y();
  for (int64_t n = 0; n < y[0]; ++n)
    for (int64_t k = 0; k < y[1]; ++k)
      for (int64_t l = 0; l < y[2]; ++l)
        for (int64_t i = 0; i < c.w[1]; ++i)
          for (int64_t s = 0; s < c.w[2]; ++s) {
            const int64_t at = l * o.stride + s * o.dilation - c.padding().first;
            const int64_t channel = k / (y[1] / o.groups) * c.w[1] + i;
            if (at >= 0 && at < c.x[2])
              f(static_cast<size_t>((n * y[1] + k) * y[2] + l),
                static_cast<size_t>((n * c.x[1] + channel) * c.x[2] + at),
                static_cast<size_t>((k * c.w[1] + i) * c.w[2] + s));
          }
}

Reference whole(const Shape& shape, uint64_t seed, double most) {
  Reference r = random_reference(shape, seed, -most - 0.5, most + 0.5);
  for (double& v : r.values) v = std::round(v);
  return r;
}

void check_exact(const Case& c, DType dtype, bool last, uint64_t seed) {
  CAPTURE(seed);
  CAPTURE(to_string(c.x));
  CAPTURE(to_string(c.w));
  const double most = dtype == bf16 ? 1 : 3;
  const Reference x = whole(c.x, seed, most), w = whole(c.w, seed + 1, most);
  const Reference dy = whole(c.y(), seed + 2, most);
  Reference y(c.y()), dx(c.x), dw(c.w);
  for_each_product(c, [&](size_t i, size_t j, size_t l) {
    y[i] += x[j] * w[l];
    dx[j] += dy[i] * w[l];
    dw[l] += dy[i] * x[j];
  });
  const auto sequence = [&](const Reference& r) {
    const Tensor t = r.tensor(dtype, test_device());
    return last ? contiguous(t.permute({0, 2, 1})).permute({0, 2, 1}) : t;
  };
  const auto same = [&](const char* pass, const Tensor& actual, const Reference& expected) {
    CHECK_MESSAGE(actual.shape() == expected.shape, pass);
    CHECK_MESSAGE(
        Reference::of(actual).values == Reference::of(expected.tensor(dtype, Device::cpu())).values,
        pass);
  };
  const Tensor tw = w.tensor(dtype, test_device());
  same("y", conv1d(sequence(x), tw, c.options), y);
  same("dx", conv1d_backward_x(sequence(dy), tw, c.x, c.options), dx);
  same("dw", conv1d_backward_w(sequence(x), sequence(dy), c.w, c.options), dw);
}

}  // namespace

TEST_CASE("conv1d of hundreds of random shapes, bit for bit") {
  const Reference draws = random_reference({7001}, 17, 0, 1);
  size_t at = 0;
  const auto draw = [&](int64_t low, int64_t high) {
    const double u = draws[at++ % draws.values.size()];
    return low +
           std::min(high - low, static_cast<int64_t>(u * static_cast<double>(high - low + 1)));
  };
  const DType dtypes[] = {f64, f32, f16, bf16};
  int ran = 0, grouped = 0, same = 0, uneven = 0;
  for (uint64_t i = 0; i < 800; ++i) {
    Case c;
    Conv1dOptions& o = c.options;
    o.groups = draw(0, 1) == 0 ? draw(2, 5) : 1;
    o.stride = draw(1, 4);
    o.dilation = draw(1, 3);
    o.same = draw(0, 3) == 0;
    if (!o.same) o.left = draw(0, 4), o.right = draw(0, 4);
    c.w = {o.groups * draw(1, 5), draw(1, 9), draw(1, 7)};
    c.x = {draw(0, 3), o.groups * c.w[1], draw(1, 40)};
    if (c.x[2] + o.left + o.right < c.covered() && !o.same) continue;
    ++ran;
    grouped += o.groups > 1;
    same += o.same;
    uneven += o.left != o.right;
    check_exact(c, dtypes[draw(0, 3)], draw(0, 1) == 1, i);
  }
  CHECK(ran > 600);
  CHECK(grouped > 250);
  CHECK(same > 120);
  CHECK(uneven > 250);
}

TEST_CASE("conv1d and its gradients in every dtype") {
  const Case c{{2, 6, 11}, {4, 3, 3}, {.stride = 2, .left = 1, .right = 2, .groups = 2}};
  check_op({.name = "conv1d",
            .inputs = {c.x, c.w, {4}},
            .op = [&](const Variables& v) { return conv1d(v[0], v[1], v[2], c.options); },
            .reference =
                [&](const References& in) {
                  Reference y(c.y());
                  for_each_product(
                      c, [&](size_t i, size_t j, size_t l) { y[i] += in[0][j] * in[1][l]; });
                  const auto length = static_cast<size_t>(y.shape[2]);
                  for (size_t i = 0; i < y.values.size(); ++i) y[i] += in[2][i / length % 4];
                  return y;
                }});
  const auto variable = [](const Shape& shape, uint64_t seed) {
    return Variable(random_reference(shape, seed).tensor(f64, test_device()), true);
  };
  for (const Conv1dOptions& o :
       {Conv1dOptions{.left = 2, .right = 0, .dilation = 2}, Conv1dOptions{.same = true},
        Conv1dOptions{.stride = 3, .groups = 3}})
    gradcheck([&](const std::vector<Variable>& v) { return conv1d(v[0], v[1], v[2], o); },
              {variable({2, 6, 9}, 1), variable({6, 6 / o.groups, 4}, 2), variable({6}, 3)});
}

TEST_CASE("conv1d: bias, residual, activation, formats and messages") {
  const Reference x = whole({2, 3, 8}, 1, 3), w = whole({4, 3, 3}, 2, 3), bias = whole({4}, 3, 3);
  const Case c{x.shape, w.shape, {.left = 1, .right = 1}};
  const Reference more = whole(c.y(), 4, 3);
  Reference y = more;
  for_each_product(c, [&](size_t i, size_t j, size_t l) { y[i] += x[j] * w[l]; });
  for (size_t i = 0; i < y.values.size(); ++i) y[i] = std::max(y[i] + bias[i / 8 % 4], 0.0);
  const auto on_device = [](const Reference& r) { return r.tensor(f32, test_device()); };
  const Tensor last = contiguous(on_device(x).permute({0, 2, 1})).permute({0, 2, 1});
  const Tensor result = conv1d(
      last, on_device(w), c.options,
      {.bias = on_device(bias), .residual = on_device(more), .activation = Activation::relu});
  CHECK(Reference::of(result).values == y.values);
  CHECK(result.strides()[1] == 1);  // neighbours are channels, as in x
  CHECK_THROWS_WITH_AS(conv1d(zeros({2, 3, 2}, f32, test_device()), on_device(w)),
                       "conv1d: a filter of 3 with dilation 1 covers 3, the padded image has 2",
                       Error);
  CHECK_THROWS_WITH_AS(
      conv1d(zeros({2, 3, 2, 2}, f32, test_device()), on_device(w)),
      "conv1d: x [2, 3, 2, 2] has not three axes: x [N, C, L] and weight [K, C / groups, S] are "
      "expected",
      Error);
}
