#include <bs/autograd/conv2d.h>
#include <bs/autograd/grad_check.h>
#include <bs/kernels/conv2d.h>
#include <bs/kernels/fill.h>
#include <bs/tests/kernels/conv2d_reference.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <algorithm>

using namespace bs;
using namespace bs::test;

namespace {

Reference whole(const Shape& shape, uint64_t seed, double most) {
  Reference r = random_reference(shape, seed, -most - 0.5, most + 0.5);
  for (double& v : r.values) v = std::round(v);
  return r;
}

struct Case {
  Shape x, w;  // [N, K, H, W], [K, C / groups, R, S]
  Conv2dOptions options = {};
  Extent2 more = {0, 0};  // output padding

  Shape result() const {
    const auto& [stride, pad, same, dilation, groups] = options;
    return {x[0], w[1] * groups,
            (x[2] - 1) * stride.h - pad.top - pad.bottom + dilation.h * (w[2] - 1) + more.h + 1,
            (x[3] - 1) * stride.w - pad.left - pad.right + dilation.w * (w[3] - 1) + more.w + 1};
  }
};

/// Products of the convolution that x is the result of; those that output padding adds are left
/// out.
Reference transposed(const Reference& x, const Reference& w, const Case& c) {
  Reference y(c.result());
  for_each_product(y.shape, w.shape, x.shape, c.options,
                   [&](size_t i, size_t j, size_t l) { y[j] += x[i] * w[l]; });
  return y;
}

/// Forward and both gradients in whole numbers, bit for bit.
void check_exact(const Case& c, DType dtype, bool last, uint64_t seed) {
  CAPTURE(seed);
  CAPTURE(to_string(c.x));
  CAPTURE(to_string(c.w));
  const double most = dtype == bf16 ? 1 : 3;
  const Reference x = whole(c.x, seed, most), w = whole(c.w, seed + 1, most);
  const Reference y = transposed(x, w, c), dy = whole(y.shape, seed + 2, most);
  const Reference bias = whole({y.shape[1]}, seed + 3, most);
  const auto image = [&](const Reference& r) {
    const Tensor t = r.tensor(dtype, test_device());
    return last ? channels_last(t) : t;
  };
  const Variable vx(image(x), true), vw(w.tensor(dtype, test_device()), true);
  const Variable vbias(bias.tensor(dtype, test_device()), true);
  const Variable vy = conv_transpose2d(vx, vw, vbias, c.options, c.more);
  vy.backward(image(dy));
  const auto same = [&](const char* what, const Tensor& actual, const Reference& expected) {
    CHECK_MESSAGE(actual.shape() == expected.shape, what);
    CHECK_MESSAGE(
        Reference::of(actual).values == Reference::of(expected.tensor(dtype, Device::cpu())).values,
        what);
  };
  Reference biased = y, dx(c.x), dw(c.w);
  const auto pixels = static_cast<size_t>(y.shape[2] * y.shape[3]);
  for (size_t i = 0; i < biased.values.size(); ++i)
    biased[i] += bias[i / pixels % bias.values.size()];
  for_each_product(y.shape, w.shape, x.shape, c.options, [&](size_t i, size_t j, size_t l) {
    dx[i] += dy[j] * w[l];
    dw[l] += dy[j] * x[i];
  });
  same("y", vy.data(), biased);
  same("dx", vx.grad(), dx);
  same("dw", vw.grad(), dw);
}

}  // namespace

TEST_CASE("conv_transpose2d of hundreds of random shapes, bit for bit") {
  const Reference draws = random_reference({9001}, 13, 0, 1);
  size_t at = 0;
  const auto draw = [&](int64_t low, int64_t high) {
    const double u = draws[at++ % draws.values.size()];
    return low +
           std::min(high - low, static_cast<int64_t>(u * static_cast<double>(high - low + 1)));
  };
  const DType dtypes[] = {f64, f32, f16, bf16};
  int of_dtype[4] = {}, grouped = 0, padded = 0, empty = 0;
  for (uint64_t i = 0; i < sampled<uint64_t>(1200); ++i) {
    Case c;
    Conv2dOptions& o = c.options;
    o.groups = draw(0, 1) == 0 ? draw(2, 4) : 1;
    o.stride = {draw(1, 4), draw(1, 4)};
    o.dilation = {draw(1, 2), draw(1, 3)};
    o.padding = {draw(0, 2), draw(0, 2), draw(0, 2), draw(0, 2)};
    c.w = {o.groups * draw(1, 5), draw(1, 6), draw(1, 4), draw(1, 4)};
    c.x = {draw(0, 11) == 0 ? 0 : draw(1, 2), c.w[0], draw(1, 6), draw(1, 6)};
    c.more = {draw(0, std::max(o.stride.h, o.dilation.h) - 1),
              draw(0, std::max(o.stride.w, o.dilation.w) - 1)};
    // The convolution that this is the gradient of must have room for its filter.
    const Shape y = c.result();
    const auto& p = o.padding;
    if (y[2] < 1 || y[3] < 1 || y[2] + p.top + p.bottom < o.dilation.h * (c.w[2] - 1) + 1 ||
        y[3] + p.left + p.right < o.dilation.w * (c.w[3] - 1) + 1)
      continue;
    const int64_t which = draw(0, 3);
    ++of_dtype[which];
    grouped += o.groups > 1;
    padded += c.more.h + c.more.w > 0;
    empty += c.x[0] == 0;
    check_exact(c, dtypes[which], draw(0, 1) == 1, i);
  }
  for (const int count : of_dtype) CHECK(count > sampled(150));
  CHECK(grouped > sampled(300));
  CHECK(padded > sampled(300));
  CHECK(empty > sampled(40));
}

TEST_CASE("conv_transpose2d: gradients by differences") {
  const auto variable = [](const Shape& shape, uint64_t seed) {
    return Variable(random_reference(shape, seed).tensor(f64, test_device()), true);
  };
  struct Options {
    Conv2dOptions walk;
    Extent2 more;
    Shape w;
  };
  for (const Options& o :
       {Options{{}, {0, 0}, {4, 3, 3, 2}},
        Options{{.stride = {2, 3}, .padding = {1, 0, 1, 1}}, {1, 2}, {4, 2, 3, 3}},
        Options{{.stride = {2, 1}, .dilation = {1, 2}, .groups = 2}, {1, 1}, {4, 3, 2, 2}}}) {
    const int64_t out = o.w[1] * o.walk.groups;
    gradcheck(
        [&](const std::vector<Variable>& v) {
          return conv_transpose2d(v[0], v[1], v[2], o.walk, o.more);
        },
        {variable({2, 4, 3, 4}, 1), variable(o.w, 2), variable({out}, 3)});
  }
}
