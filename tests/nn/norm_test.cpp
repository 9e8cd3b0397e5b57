#include <bs/nn/norm.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <utility>

using namespace bs;
using namespace bs::test;

namespace {
Variable row() {
  return Reference::of(Tensor::from({1.0, 2.0, 3.0, 6.0})).tensor(f64, test_device());
}
}  // namespace

TEST_CASE("nn::LayerNorm: starts as plain normalisation") {
  const nn::LayerNorm norm({.width = 4, .eps = 0.5, .dtype = f64, .device = test_device()});
  // Mean 3, variance 14 / 4: deviations (-2, -1, 0, 3) over sqrt(3.5 + 0.5).
  CHECK(Reference::of(norm.forward(row()).data()).values == std::vector<double>{-1, -0.5, 0, 1.5});
  CHECK(norm.weight.shape() == Shape{4});
  CHECK(norm.named_parameters().size() == 2);
  CHECK(norm.named_parameters()[0].name == "weight");
  CHECK(norm.named_parameters()[1].name == "bias");
}

TEST_CASE("nn::LayerNorm: weight and bias are options") {
  const nn::LayerNorm norm({.width = 4,
                            .eps = 0.5,
                            .weight = false,
                            .bias = false,
                            .dtype = f64,
                            .device = test_device()});
  CHECK(norm.parameters().empty());
  CHECK(Reference::of(norm.forward(row()).data()).values == std::vector<double>{-1, -0.5, 0, 1.5});
}

TEST_CASE("nn::RMSNorm: divides by the root of the mean square") {
  const nn::RMSNorm norm({.width = 4, .eps = 12.5, .dtype = f64, .device = test_device()});
  // Mean square 50 / 4; with eps 25.
  const std::vector<double> y = Reference::of(norm.forward(row()).data()).values;
  for (size_t i = 0; i < 4; ++i)
    CHECK(y[i] == doctest::Approx(std::vector<double>{0.2, 0.4, 0.6, 1.2}[i]).epsilon(1e-15));
  CHECK(norm.named_parameters().size() == 1);
}

TEST_CASE("nn norms: widths are checked") {
  CHECK_THROWS_WITH_AS(nn::LayerNorm({.width = 0}), "layer_norm: a layer of width 0", Error);
  CHECK_THROWS_WITH_AS(nn::RMSNorm({.width = -1}), "rms_norm: a layer of width -1", Error);
  const nn::LayerNorm norm({.width = 3, .weight = false, .bias = false, .device = test_device()});
  CHECK_THROWS_WITH_AS(norm.forward(row()), "layer_norm: x [4] for a layer of width 3", Error);
}

TEST_CASE("nn norms: one that was moved away does not compute without its weights") {
  nn::LayerNorm layer({.width = 4, .dtype = f64, .device = test_device()});
  nn::RMSNorm rms({.width = 4, .dtype = f64, .device = test_device()});
  const nn::LayerNorm other_layer = std::move(layer);
  const nn::RMSNorm other_rms = std::move(rms);
  CHECK(other_layer.forward(row()).defined());
  CHECK(other_rms.forward_sum(row(), {}).sum.defined());
  CHECK_THROWS_WITH_AS(layer.forward(row()), "layer_norm: the layer was moved away", Error);
  CHECK_THROWS_WITH_AS(layer.forward_sum(row(), row()), "add_layer_norm: the layer was moved away",
                       Error);
  const nn::LayerNorm nothing = std::move(layer);
  CHECK_THROWS_WITH_AS(nothing.forward(row()), "layer_norm: the layer was moved away", Error);
  CHECK_THROWS_WITH_AS(rms.forward(row()), "rms_norm: the layer was moved away", Error);
  CHECK_THROWS_WITH_AS(rms.forward_sum(row(), row()), "add_rms_norm: the layer was moved away",
                       Error);
}
