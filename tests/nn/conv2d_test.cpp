#include <bs/autograd/activation.h>
#include <bs/autograd/binary.h>
#include <bs/autograd/grad_check.h>
#include <bs/autograd/reduce.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/lib/random.h>
#include <bs/nn/batch_norm.h>
#include <bs/nn/conv2d.h>
#include <bs/tests/nn/golden/recorded.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>

using namespace bs;
using namespace bs::test;

namespace {

Tensor given(const Shape& shape, uint32_t number) {
  return formula(shape, number).tensor(f64, test_device());
}

/// Result and gradients of a layer of PyTorch's values.
template <class Layer>
void check_layer(const Layer& layer, const RecordedCase& c, bool last,
                 const Shape& shape = {2, 6, 11, 9}) {
  layer.bias.set_data(given(layer.bias.shape(), 10));
  layer.weight.set_data(given(layer.weight.shape(), 11));
  const Tensor rows = given(shape, 1);
  const Variable x(last ? channels_last(rows) : rows, true);
  const Variable y = layer.forward(x);
  sum(y * given(y.shape(), 4)).backward();
  check_recorded("y", y.data(), c.tensors.at("y"), 1e-13);
  check_recorded("dx", x.grad(), c.tensors.at("dx"), 1e-13);
  check_recorded("bias", layer.bias.grad(), c.tensors.at("bias"), 1e-13);
  check_recorded("weight", layer.weight.grad(), c.tensors.at("weight"), 1e-12);
}

/// The layers of record_conv.py's cases.
bs::Conv2dOptions walk_of(const RecordedCase& c) {
  const int64_t pad = std::max(c.options[5], 0);
  return {.stride = {c.options[4], c.options[4]},
          .padding = {pad, pad, pad, pad},
          .same = c.options[5] < 0,
          .dilation = {c.options[6], c.options[6]},
          .groups = c.options[7]};
}

nn::Conv2d plain(const RecordedCase& c) {
  const std::vector<int>& o = c.options;
  return nn::Conv2d({.in = o[1],
                     .out = o[2],
                     .kernel = {o[3], o[3]},
                     .walk = walk_of(c),
                     .dtype = f64,
                     .device = test_device()});
}

nn::ConvTranspose2d transposed(const RecordedCase& c) {
  const std::vector<int>& o = c.options;
  return nn::ConvTranspose2d({.in = o[1],
                              .out = o[2],
                              .kernel = {o[3], o[3]},
                              .walk = walk_of(c),
                              .output_padding = {o[8], o[8]},
                              .dtype = f64,
                              .device = test_device()});
}

nn::Conv2d padded(const RecordedCase& c) {
  const std::vector<int>& o = c.options;
  return nn::Conv2d({.in = o[1],
                     .out = o[2],
                     .kernel = {o[3], o[3]},
                     .walk = {.stride = {o[4], o[4]},
                              .padding = {o[5], o[6], o[7], o[8]},
                              .dilation = {o[9], o[9]},
                              .groups = o[10]},
                     .activation = static_cast<Activation>(o[11]),
                     .dtype = f64,
                     .device = test_device()});
}

nn::Conv1d line(const RecordedCase& c) {
  const std::vector<int>& o = c.options;
  return nn::Conv1d({.in = o[1],
                     .out = o[2],
                     .kernel = o[3],
                     .walk = {.stride = o[4],
                              .left = std::max(o[5], 0),
                              .right = std::max(o[6], 0),
                              .same = o[5] < 0,
                              .dilation = o[7],
                              .groups = o[8]},
                     .dtype = f64,
                     .device = test_device()});
}

}  // namespace

TEST_CASE("nn: convolutions compute what PyTorch's do") {
  const auto cases = read_recorded(std::string(BS_GOLDEN) + "/conv.txt");
  REQUIRE(cases.size() == 20);
  for (const RecordedCase& c : cases)
    for (const bool last : {false, true}) {
      const int kind = c.options[0];
      if (kind == 1) {
        check_layer(transposed(c), c, last);
      } else if (kind == 3) {
        check_layer(line(c), c, last, {2, 6, 23});
      } else {
        check_layer(kind == 0 ? plain(c) : padded(c), c, last);
      }
    }
}

TEST_CASE("nn::Conv2d: names, shapes, initial values, options") {
  const nn::Conv2d layer(
      {.in = 8, .out = 12, .kernel = {3, 5}, .walk = {.groups = 4}, .device = test_device()});
  const auto parameters = layer.named_parameters();
  REQUIRE(parameters.size() == 2);
  CHECK(parameters[0].name == "weight");
  CHECK(parameters[1].name == "bias");
  CHECK(layer.weight.shape() == Shape{12, 2, 3, 5});
  const double bound = 1 / std::sqrt(30.0);
  CHECK(largest(Reference::of(layer.weight.data())) <= bound);
  CHECK(largest(Reference::of(layer.weight.data())) > 0.9 * bound);
  const nn::Conv1d line({.in = 4, .out = 6, .kernel = 3, .bias = false, .device = test_device()});
  CHECK(line.weight.shape() == Shape{6, 4, 3});
  CHECK(line.named_parameters().size() == 1);
  CHECK(line.forward(Tensor::empty({2, 4, 9}, f32, test_device())).shape() == Shape{2, 6, 7});
  CHECK_THROWS_WITH_AS(nn::Conv2d({.in = 3, .out = 4, .walk = {.groups = 2}}),
                       "conv2d: a layer from 3 to 4 channels with a filter of 1x1 and 2 groups",
                       Error);
}

TEST_CASE("nn::Conv2d: gradients with an activation and a residual") {
  for (const Activation f : {Activation::relu, Activation::silu, Activation::gelu, Activation::tanh,
                             Activation::sigmoid}) {
    const nn::Conv2d layer({.in = 3,
                            .out = 2,
                            .kernel = {3, 3},
                            .walk = {.stride = {2, 1}, .padding = {1, 1, 0, 1}},
                            .activation = f,
                            .dtype = f64,
                            .device = test_device()});
    for (const bool last : {false, true}) {
      const Tensor x = given({2, 3, 5, 4}, 1), residual = given({2, 2, 3, 3}, 2);
      gradcheck(
          [&](const std::vector<Variable>& v) {
            return conv2d(v[0], v[1], v[2], {.stride = {2, 1}, .padding = {1, 1, 0, 1}}, f, v[3]);
          },
          {Variable(last ? channels_last(x) : x, true), layer.weight, layer.bias,
           Variable(residual, true)});
    }
  }
}

TEST_CASE("nn::Conv2d: a folded batch norm") {
  const nn::Conv2d plain(
      {.in = 3, .out = 4, .kernel = {3, 3}, .dtype = f64, .device = test_device()});
  const Variable x = given({2, 3, 6, 6}, 1);
  const Tensor scale = given({4}, 2), shift = given({4}, 3);
  const Variable expected = plain.forward(x) * scale.view({1, 4, 1, 1}) + shift.view({1, 4, 1, 1});
  nn::Conv2d folded({.in = 3, .out = 4, .kernel = {3, 3}, .dtype = f64, .device = test_device()});
  copy(plain.weight.data(), folded.weight.data());
  copy(plain.bias.data(), folded.bias.data());
  folded.fold(scale, shift);
  check_close("folded", Reference::of(folded.forward(x).data()), Reference::of(expected.data()),
              1e-14);
}

TEST_CASE("nn::BatchNorm2d: folded into the convolution before it") {
  for (const bool bias : {false, true}) {
    nn::Conv2d conv(
        {.in = 3, .out = 4, .kernel = {3, 3}, .bias = bias, .dtype = f64, .device = test_device()});
    nn::BatchNorm2d norm({.channels = 4, .dtype = f64, .device = test_device()});
    copy(given({4}, 2), norm.weight.data());
    copy(given({4}, 3), norm.bias.data());
    const Variable x = given({2, 3, 6, 6}, 1);
    norm.forward(conv.forward(x));  // leaves statistics
    norm.eval();
    const Variable expected = norm.forward_relu(conv.forward(x));
    norm.fold_into(conv);
    CHECK(conv.parameters().size() == 2);
    check_close("folded", Reference::of(norm.forward_relu(conv.forward(x)).data()),
                Reference::of(expected.data()), 1e-14);
    check_close("without the norm", Reference::of(relu(conv.forward(x)).data()),
                Reference::of(expected.data()), 1e-14);
  }
  nn::BatchNorm2d untracked({.channels = 4, .track_running_stats = false});
  nn::Conv2d conv({.in = 3, .out = 4});
  CHECK_THROWS_WITH_AS(untracked.fold_into(conv),
                       "batch_norm2d: without running statistics nothing can be folded", Error);
}

TEST_CASE("nn::Conv2d: nothing folds into a layer whose own activation comes first") {
  nn::Conv2d conv({.in = 3, .out = 4, .activation = Activation::relu, .device = test_device()});
  nn::BatchNorm2d norm({.channels = 4, .device = test_device()});
  const Reference weight = Reference::of(conv.weight.data());
  fill(norm.running_mean.data(), 3);
  const char* message =
      "conv2d: the layer's relu comes before the scale and shift to fold, which must follow the "
      "sums";
  CHECK_THROWS_WITH_AS(norm.fold_into(conv), message, Error);
  CHECK(Reference::of(conv.weight.data()).values == weight.values);
  CHECK(norm.running_mean.data().select(0, 0).item() == 3);  // the norm stays one
  const Tensor ones_of = ones({4}, f32, test_device());
  CHECK_THROWS_WITH_AS(conv.fold(ones_of, ones_of), message, Error);
}

TEST_CASE("nn: initial values of convolutions are PyTorch's") {
  // Uniform in +-1 / sqrt(fan-in), whose variance is a third of the bound's square; the fan-in is
  // what PyTorch takes: the second extent of the weight times the extents of the filter.
  const auto check = [](const Variable& weight, const Variable& bias, int64_t fan_in) {
    const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
    for (const Variable& v : {weight, bias}) {
      const Reference r = Reference::of(v.data());
      double sum = 0, squares = 0;
      for (const double value : r.values) sum += value, squares += value * value;
      const auto n = static_cast<double>(r.values.size());
      CHECK(largest(r) <= bound);
      CHECK(largest(r) > 0.98 * bound);
      // Five standard errors: of the mean bound / sqrt(3 n), of the mean square .298 bound^2 /
      // sqrt(n).
      CHECK(std::abs(sum / n) < 5 * bound / std::sqrt(3 * n));
      CHECK(std::abs(squares / n - bound * bound / 3) < 5 * 0.299 * bound * bound / std::sqrt(n));
    }
  };
  manual_seed(3);
  const nn::Conv1d line(
      {.in = 6, .out = 1200, .kernel = 5, .walk = {.groups = 3}, .device = test_device()});
  check(line.weight, line.bias, 2 * 5);
  const nn::Conv2d plain(
      {.in = 6, .out = 1200, .kernel = {3, 2}, .walk = {.groups = 2}, .device = test_device()});
  check(plain.weight, plain.bias, 3 * 3 * 2);
  const nn::ConvTranspose2d up(
      {.in = 8, .out = 1200, .kernel = {2, 3}, .walk = {.groups = 4}, .device = test_device()});
  check(up.weight, up.bias, 300 * 2 * 3);
}

TEST_CASE("nn::init::fixup") {
  const nn::Conv2d a({.in = 64, .out = 64, .kernel = {3, 3}, .device = test_device()});
  const nn::Conv2d b({.in = 64, .out = 64, .kernel = {3, 3}, .device = test_device()});
  const Variable branch[] = {a.weight, b.weight};
  nn::init::fixup(branch, 16);
  CHECK(largest(Reference::of(b.weight.data())) == 0);
  double squares = 0;
  const Reference w = Reference::of(a.weight.data());
  for (const double v : w.values) squares += v * v;
  // He's deviation sqrt(2 / 576), times 16^(-1 / 2).
  const double deviation = std::sqrt(squares / static_cast<double>(w.values.size()));
  CHECK(std::abs(deviation / (std::sqrt(2.0 / 576) / 4) - 1) < 0.02);
}

TEST_CASE("a ReLU with a scale, a bias and a residual, as networks of nn::init::fixup have it") {
  const Shape shape = {4, 6, 5, 5};
  Reference steep(shape);  // far from the kink on either side
  for (size_t i = 0; i < steep.values.size(); ++i) steep[i] = i % 3 == 0 ? -16 : 16;
  check_op({.name = "relu(x * scale + bias + residual)",
            .inputs = {shape, {1}, {1}, shape},
            .op =
                [&](const Variables& v) {
                  const Variable x = v[0] * steep.tensor(v[0].dtype(), test_device());
                  const Variable &scale = v[1], &bias = v[2], &residual = v[3];
                  return relu(x * scale + bias + residual);
                },
            .reference =
                [&](const References& in) {
                  Reference y(shape);
                  for (size_t i = 0; i < y.values.size(); ++i)
                    y[i] = std::max(0.0, in[0][i] * steep[i] * in[1][0] + in[2][0] + in[3][i]);
                  return y;
                },
            .low = 0.5,
            .high = 1});
}
