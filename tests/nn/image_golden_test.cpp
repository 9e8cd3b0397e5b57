// Layers around convolutions beside PyTorch's, whose values golden/record_image.py recorded.
#include <bs/autograd/binary.h>
#include <bs/autograd/reduce.h>
#include <bs/nn/batch_norm.h>
#include <bs/nn/group_norm.h>
#include <bs/nn/image.h>
#include <bs/tests/nn/golden/recorded.h>
#include <bs/tests/support/devices.h>

#include <map>

using namespace bs;
using namespace bs::test;

namespace {

constexpr int64_t channels = 6;

Tensor given(const Shape& shape, uint32_t number) {
  return formula(shape, number).tensor(f64, test_device());
}

/// The gradient of a layer's inputs and parameters, and its buffers, in both formats.
template <class Layer, class Prepare>
void check_layer(const typename Layer::Options& options, const RecordedCase& c,
                 const Prepare& prepare) {
  for (const bool last : {false, true}) {
    CAPTURE(last);
    Layer layer(options);
    prepare(layer);
    uint32_t number = 10;  // bias comes before weight
    std::map<std::string, Variable> parameters;
    for (const auto& [name, parameter] : layer.named_parameters()) parameters[name] = parameter;
    for (auto& [name, parameter] : parameters)
      parameter.set_data(given(parameter.shape(), number++));
    const Tensor rows = given({3, channels, 7, 5}, 1);
    const Variable x(last ? channels_last(rows) : rows, true);
    const Variable y = layer.forward(x);
    sum(y * given(y.shape(), 4)).backward();
    check_recorded("y", y.data(), c.tensors.at("y"), 1e-13);
    check_recorded("dx", x.grad(), c.tensors.at("dx"), 1e-13);
    for (const auto& [name, parameter] : parameters)
      check_recorded(name, parameter.grad(), c.tensors.at(name), 1e-13);
    for (const auto& [name, buffer] : layer.named_buffers())
      check_recorded(name, buffer.data(), c.tensors.at(name), 1e-13);
  }
}
template <class Layer>
void check_layer(const typename Layer::Options& options, const RecordedCase& c) {
  check_layer<Layer>(options, c, [](const Layer&) {});
}

/// As record_image.py's batch_norm_in_use: one batch seen, by a layer of ones and zeros.
void use(nn::BatchNorm2d& layer) {
  layer.forward(given({3, channels, 7, 5}, 7));
  layer.eval();
}

}  // namespace

TEST_CASE("nn: layers for images compute what PyTorch's do") {
  const auto cases = read_recorded(std::string(BS_GOLDEN) + "/image.txt");
  REQUIRE(cases.size() == 15);
  const Device device = test_device();
  const auto linear = Interpolation::bilinear;
  const Padding2 border{.top = 0, .bottom = 2, .left = 3, .right = 1};
  size_t i = 0;
  const auto next = [&]() -> const RecordedCase& {
    CAPTURE(i);
    return cases[i++];
  };
  check_layer<nn::BatchNorm2d>(
      {.channels = channels, .momentum = 0.3, .dtype = f64, .device = device}, next());
  check_layer<nn::BatchNorm2d>({.channels = channels, .eps = 1e-3, .dtype = f64, .device = device},
                               next(), use);
  check_layer<nn::GroupNorm>({.groups = 3, .channels = channels, .dtype = f64, .device = device},
                             next());
  check_layer<nn::InstanceNorm>(
      {.channels = channels, .affine = true, .dtype = f64, .device = device}, next());
  check_layer<nn::MaxPool2d>({.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}, next());
  check_layer<nn::MaxPool2d>(
      {.kernel = {2, 3}, .stride = {3, 2}, .padding = {1, 0}, .ceil_mode = true}, next());
  check_layer<nn::AvgPool2d>({.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}, next());
  check_layer<nn::AvgPool2d>({.kernel = {2, 2},
                              .stride = {3, 3},
                              .padding = {1, 1},
                              .ceil_mode = true,
                              .count_padding = false},
                             next());
  check_layer<nn::AdaptiveAvgPool2d>({.size = {3, 4}}, next());
  check_layer<nn::Upsample>({.size = {4, 9}}, next());
  check_layer<nn::Upsample>({.size = {4, 9}, .mode = linear}, next());
  check_layer<nn::Upsample>({.size = {4, 9}, .mode = linear, .align_corners = true}, next());
  check_layer<nn::Pad>({.padding = border, .mode = PadMode::reflect}, next());
  check_layer<nn::Pad>({.padding = border, .mode = PadMode::replicate}, next());
  check_layer<nn::Pad>({.padding = border, .value = 0.5}, next());
}
