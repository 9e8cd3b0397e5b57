// Gradients of gradients of what layers are made of, and of order and products.
#include <bs/autograd/batch_norm.h>
#include <bs/autograd/binary.h>
#include <bs/autograd/block_float.h>
#include <bs/autograd/conv1d.h>
#include <bs/autograd/conv2d.h>
#include <bs/autograd/grad.h>
#include <bs/autograd/group_norm.h>
#include <bs/autograd/image.h>
#include <bs/autograd/pool2d.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/scan.h>
#include <bs/autograd/soft_cross_entropy.h>
#include <bs/autograd/sort.h>
#include <bs/tests/support/check_twice.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

TEST_CASE("second derivatives: convolutions") {
  const Variable x = random_leaf({2, 4, 5, 4}, 1), w = random_leaf({4, 2, 3, 2}, 2),
                 bias = random_leaf({4}, 3);
  const Conv2dOptions options{
      .stride = {2, 1}, .padding = {1, 0, 1, 2}, .dilation = {1, 2}, .groups = 2};
  const Variable residual = random_leaf(conv2d(x, w, bias, options).shape(), 4);
  for (const Activation f : {Activation::none, Activation::relu, Activation::tanh,
                             Activation::sigmoid, Activation::silu}) {
    CAPTURE(to_string(f));
    const Function layer = [&](const Inputs& in) {
      return conv2d(in[0], in[1], in[2], options, f, in[3]);
    };
    check_twice("conv2d", layer, {x, w, bias, residual});
    check_twice("conv2d of a constant", layer, {x.detach(), w, bias.detach(), Variable()});
    check_twice("conv2d by a constant", layer, {x, w.detach(), Variable(), residual.detach()});
  }
  check_one("conv2d of its own result",
            squared([&](const Variable& v) { return conv2d(v, w.detach(), {}, options); }), x);
  for (const Extent2 more : {Extent2{0, 0}, Extent2{1, 0}}) {
    const Function transposed = [&](const Inputs& in) {
      return conv_transpose2d(in[0], in[1], in[2], options, more);
    };
    check_twice("conv_transpose2d", transposed, {x, w, random_leaf({4}, 5)});
    check_twice("conv_transpose2d by a constant", transposed, {x, w.detach(), Variable()});
  }
  const Function line = [](const Inputs& in) {
    return conv1d(in[0], in[1], in[2], {.stride = 2, .left = 1, .right = 2, .groups = 2});
  };
  const Variable sequence = random_leaf({2, 4, 7}, 6), filter = random_leaf({6, 2, 3}, 7);
  check_twice("conv1d", line, {sequence, filter, random_leaf({6}, 8)});
  check_twice("conv1d of a constant", line, {sequence.detach(), filter, Variable()});
}

TEST_CASE("second derivatives: of a convolution, up to the fourth") {
  const Variable x = random_leaf({1, 2, 4, 4}, 1), w = random_leaf({3, 2, 2, 2}, 2);
  const Variable y = conv2d(x, w);
  const Variable slope = differentiable_grad(sum(y * y) * 0.5, x);
  const Variable second = differentiable_grad(sum(slope * slope) * 0.5, w);
  const Variable third = differentiable_grad(sum(second * second) * 0.5, x);
  CHECK(third.shape() == x.shape());
  // `third` has degree 3 in x and 6 in w, and so f 6 and 12: Euler's theorem.
  const Variable f = sum(third * third);
  const VariableGrads last = differentiable_grad({f}, {x, w});
  const double value = f.data().item();
  CHECK(value > 0);
  CHECK(sum(last[0] * x).data().item() == doctest::Approx(6 * value));
  CHECK(sum(last[1] * w).data().item() == doctest::Approx(12 * value));
}

TEST_CASE("second derivatives: batch norm and group norm") {
  const Variable x = random_leaf({3, 4, 2, 2}, 1), w = positive({4}, 2), b = random_leaf({4}, 3),
                 residual = random_leaf({3, 4, 2, 2}, 4);
  const Tensor mean = random_reference({4}, 5).tensor(f64, test_device());
  const Tensor var = random_reference({4}, 6, 0.5, 2).tensor(f64, test_device());
  for (const bool relu : {false, true}) {
    CAPTURE(relu);
    const auto check = [&](const char* name, const Function& f) {
      check_twice(name, f, {x, w, b, residual});
      check_twice(name, f, {x, w.detach(), b.detach(), residual.detach()});
      check_twice(name, f, {x.detach(), w, b, Variable()});
      check_twice(name, f, {x, Variable(), Variable(), Variable()});
    };
    check("batch_norm", [=](const Inputs& in) {
      return batch_norm(in[0], in[1], in[2], {}, {.relu = relu}, in[3]);
    });
    check("batch_norm_by", [=](const Inputs& in) {
      return batch_norm_by(in[0], in[1], in[2], mean, var, {.relu = relu}, in[3]);
    });
    check("group_norm", [=](const Inputs& in) {
      return group_norm(in[0], in[1], in[2], {.groups = 2, .relu = relu}, in[3]);
    });
  }
  check_one(
      "batch_norm of rows", [](const Variable& v) { return batch_norm(v, {}, {}, {}); },
      random_leaf({5, 3}, 7));
}

TEST_CASE("second derivatives: max pooling and formats") {
  const Variable x = random_leaf({2, 3, 7, 6}, 1);
  check_one("max_pool2d", squared([](const Variable& v) {
              return max_pool2d(v, {.kernel = {2, 2}});
            }),
            x);
  check_one("max_pool2d, overlapping", squared([](const Variable& v) {
              return max_pool2d(v, {.kernel = {3, 2},
                                    .stride = {1, 2},
                                    .padding = {1, 1},
                                    .dilation = {2, 1},
                                    .ceil_mode = true});
            }),
            x);
  check_one("max_pool2d, channels last", squared([](const Variable& v) {
              return max_pool2d(channels_last(v), {.kernel = {2, 3}, .stride = {1, 1}});
            }),
            x);
  check_one("relayout", squared([](const Variable& v) {
              return relayout(v, ImageFormat::nchw, ImageFormat::chwn);
            }),
            x);
  // Rounding passes gradients on as they are: that of round(x)^2 is 2 round(x), and then 2.
  const Variable v = random_leaf({2, 8}, 2);
  for (const bool blocks : {false, true}) {
    const Variable y = blocks ? block_float(v) : round_to(v, bf16);
    const Variable slope = differentiable_grad(sum(y * y), v);
    const Grads twice = grad(sum(slope), {v});
    for (const double g : Reference::of(twice[0]).values) CHECK(g == 2);
  }
}

TEST_CASE("second derivatives: order") {
  const Variable x = random_leaf({3, 5}, 1);
  for (const int axis : {0, 1}) {
    check_one("sort", squared([=](const Variable& v) { return sort(v, axis).values; }), x);
    check_one("topk", squared([=](const Variable& v) { return topk(v, 2, axis).values; }), x);
    for (const bool keepdim : {false, true}) {
      check_one("kthvalue",
                squared([=](const Variable& v) { return kthvalue(v, 2, axis, keepdim).values; }),
                x);
      check_one("max", squared([=](const Variable& v) { return max(v, axis, keepdim).values; }), x);
      check_one("min", squared([=](const Variable& v) { return min(v, axis, keepdim).values; }), x);
    }
  }
}

TEST_CASE("second derivatives: products along an axis, with zeros") {
  const Variable zeros(
      Tensor::from<double>({2, 0, 3, 0, 1, 4, 5, 6, 7, 0, 8, 9}, {3, 4}).to(test_device()), true);
  for (const Variable& x : {random_leaf({3, 4}, 1), zeros})
    for (const int axis : {0, 1}) {
      check_one(
          "cumprod", [=](const Variable& v) { return cumprod(v, axis); }, x);
      check_one(
          "prod", [=](const Variable& v) { return prod(v, axis, true); }, x);
      check_one(
          "prod of all", [](const Variable& v) { return prod(v); }, x);
    }
}

TEST_CASE("second derivatives: cross entropy of soft targets") {
  const Variable x = random_leaf({3, 5}, 1);
  const Tensor share = random_reference({3, 5}, 2, 0, 1).tensor(f64, test_device());
  const Tensor weight = random_reference({5}, 3, 0.5, 2).tensor(f64, test_device());
  const Tensor targets = Tensor::from<int64_t>({4, 7, 0}).to(test_device());
  for (const Reduction how : {Reduction::mean, Reduction::none}) {
    check_one(
        "soft_cross_entropy",
        [&](const Variable& v) {
          return soft_cross_entropy(v, share, {.label_smoothing = 0.1, .reduction = how});
        },
        x);
    check_one(
        "weighted_cross_entropy",
        [&](const Variable& v) {
          return weighted_cross_entropy(v, targets, weight, {.ignore_index = 7, .reduction = how});
        },
        x);
  }
}
