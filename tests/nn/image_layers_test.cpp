#include <bs/autograd/reduce.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/random.h>
#include <bs/nn/batch_norm.h>
#include <bs/nn/checkpoint.h>
#include <bs/nn/dropout.h>
#include <bs/nn/group_norm.h>
#include <bs/nn/image.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <cmath>
#include <utility>

using namespace bs;
using namespace bs::test;

namespace {
Tensor counted(const Shape& shape) {
  Reference r(shape);
  for (size_t i = 0; i < r.values.size(); ++i) r[i] = static_cast<double>(i);
  return r.tensor(f64, test_device());
}
}  // namespace

TEST_CASE("nn::BatchNorm2d: names, first values and both modes") {
  nn::BatchNorm2d norm({.channels = 2, .eps = 0, .dtype = f64, .device = test_device()});
  const auto parameters = norm.named_parameters(), buffers = norm.named_buffers();
  REQUIRE(parameters.size() == 2);
  REQUIRE(buffers.size() == 3);
  CHECK(parameters[0].name == "weight");
  CHECK(parameters[1].name == "bias");
  CHECK(buffers[0].name == "running_mean");
  CHECK(buffers[1].name == "running_var");
  CHECK(buffers[2].name == "num_batches_tracked");
  CHECK(buffers[2].variable.dtype() == i64);
  // Channels 0 1 2 3 and 4 5 6 7: deviations of 1.5 and 0.5, variance 1.25, unbiased 5 / 3.
  const Tensor x = counted({1, 2, 2, 2});
  const Reference y = Reference::of(norm.forward(x).data());
  CHECK(y[0] == doctest::Approx(-1.5 / std::sqrt(1.25)));
  CHECK(y[7] == doctest::Approx(1.5 / std::sqrt(1.25)));
  CHECK(Reference::of(norm.running_mean.data())[1] == doctest::Approx(0.55));
  CHECK(Reference::of(norm.running_var.data())[1] == doctest::Approx(0.9 + 0.1 * 5 / 3));
  CHECK(norm.num_batches_tracked.data().item() == 1);
  norm.eval();
  const Reference used = Reference::of(norm.forward(x).data());
  CHECK(used[7] == doctest::Approx((7 - 0.55) / std::sqrt(0.9 + 0.1 * 5 / 3)));
  CHECK(norm.num_batches_tracked.data().item() == 1);
}

TEST_CASE("nn::BatchNorm2d: one that is converted is like one made so, and keeps its statistics") {
  for (const DType dtype : {bf16, f16}) {
    const nn::BatchNorm2d made({.channels = 2, .dtype = dtype, .device = test_device()});
    nn::BatchNorm2d moved({.channels = 2, .device = test_device()});
    moved.to(dtype);
    // Around a mean of 5 numbers of bf16 are 1/32 apart, and deviations a tenth.
    const Tensor x = random_reference({16, 2, 8, 8}, 3, 4.9, 5.1).tensor(dtype, test_device());
    for (int step = 0; step < 150; ++step) made.forward(x), moved.forward(x);
    CHECK(moved.weight.dtype() == dtype);
    CHECK(moved.running_mean.dtype() == f32);
    CHECK(moved.running_var.dtype() == f32);
    CHECK(same_bits(made.running_mean.data(), moved.running_mean.data()));
    CHECK(same_bits(made.running_var.data(), moved.running_var.data()));
    const Reference values = Reference::of(x);
    double mean = 0;
    for (size_t i = 0; i < values.values.size(); ++i) mean += i / 64 % 2 == 0 ? values[i] : 0;
    mean /= 16 * 64;
    CHECK(Reference::of(moved.running_mean.data())[0] == doctest::Approx(mean).epsilon(1e-4));
    moved.eval();
    double sum = 0;
    for (const double v : Reference::of(moved.forward(x).data()).values) sum += v;
    CHECK(std::abs(sum / (16 * 128)) < 0.02);
  }
}

TEST_CASE("nn::BatchNorm2d: a residual and a ReLU") {
  const nn::BatchNorm2d norm({.channels = 2, .eps = 0, .dtype = f64, .device = test_device()});
  const Tensor x = counted({1, 2, 2, 2});
  const Reference y =
      Reference::of(norm.forward_relu(x, full({1, 2, 2, 2}, 1, f64, test_device())).data());
  CHECK(y[0] == 0);
  CHECK(y[3] == doctest::Approx(1 + 1.5 / std::sqrt(1.25)));
}

TEST_CASE("nn::BatchNorm1d and 2d: ranks and channels are checked") {
  const nn::BatchNorm2d norm({.channels = 3, .device = test_device()});
  CHECK_THROWS_WITH(norm.forward(zeros({2, 3}, f32, test_device())),
                    "batch_norm2d: x [2, 3] for a layer of 3 channels");
  CHECK_THROWS_WITH(norm.forward(zeros({2, 4, 2, 2}, f32, test_device())),
                    "batch_norm2d: x [2, 4, 2, 2] for a layer of 3 channels");
  CHECK_THROWS_WITH(nn::BatchNorm1d({.channels = 0}), "batch_norm1d: a layer of 0 channels");
  const nn::BatchNorm1d flat(
      {.channels = 3, .affine = false, .track_running_stats = false, .device = test_device()});
  CHECK(flat.named_buffers().empty());
  CHECK(flat.forward(zeros({2, 3, 5}, f32, test_device())).shape() == Shape{2, 3, 5});
}

TEST_CASE("nn::BatchNorm2d: a checkpoint brings the running statistics back") {
  nn::BatchNorm2d norm({.channels = 2, .device = test_device()});
  norm.forward(cast(counted({2, 2, 2, 2}), f32));
  const Scratch folder;
  nn::save_checkpoint(folder / "saved", {.model = &norm});
  nn::BatchNorm2d other({.channels = 2, .device = test_device()});
  nn::Checkpoint(folder / "saved").restore({.model = &other});
  CHECK(same_bits(norm.running_mean.data(), other.running_mean.data()));
  CHECK(same_bits(norm.running_var.data(), other.running_var.data()));
  CHECK(other.num_batches_tracked.data().item() == 1);
}

TEST_CASE("nn::GroupNorm and nn::InstanceNorm") {
  const nn::GroupNorm group(
      {.groups = 1, .channels = 2, .eps = 0, .dtype = f64, .device = test_device()});
  const Tensor x = counted({1, 2, 1, 2});
  CHECK(Reference::of(group.forward(x).data())[0] == doctest::Approx(-1.5 / std::sqrt(1.25)));
  CHECK(group.named_parameters().size() == 2);
  const nn::InstanceNorm instance({.channels = 2, .eps = 0, .dtype = f64, .device = test_device()});
  CHECK(instance.parameters().empty());
  CHECK(Reference::of(instance.forward(x).data()).values == std::vector<double>{-1, 1, -1, 1});
  CHECK_THROWS_WITH(nn::GroupNorm({.groups = 2, .channels = 3}),
                    "group_norm: 2 groups do not divide 3 channels");
}

TEST_CASE("nn::BatchNorm2d and nn::GroupNorm: none computes without what was moved away") {
  nn::BatchNorm2d batch({.channels = 2, .dtype = f64, .device = test_device()});
  nn::GroupNorm group({.groups = 1, .channels = 2, .dtype = f64, .device = test_device()});
  const Tensor x = counted({1, 2, 2, 2});
  const nn::BatchNorm2d other_batch = std::move(batch);
  const nn::GroupNorm other_group = std::move(group);
  CHECK(other_batch.forward(x).shape() == other_group.forward(x).shape());
  CHECK_THROWS_WITH_AS(batch.forward(x), "batch_norm2d: the layer was moved away", Error);
  CHECK_THROWS_WITH_AS(group.forward_relu(x), "group_norm: the layer was moved away", Error);
}

TEST_CASE("nn image layers call their functions") {
  const Variable x = counted({1, 1, 2, 2});
  CHECK(Reference::of(nn::MaxPool2d({.kernel = {2, 2}}).forward(x).data())[0] == 3);
  CHECK(Reference::of(nn::AvgPool2d({.kernel = {2, 2}}).forward(x).data())[0] == 1.5);
  CHECK(Reference::of(nn::AdaptiveAvgPool2d().forward(x).data())[0] == 1.5);
  CHECK(nn::Pad({.padding = {.left = 1}}).forward(x).shape() == Shape{1, 1, 2, 3});
  CHECK(nn::Upsample({.scale = 1.5}).forward(x).shape() == Shape{1, 1, 3, 3});
  CHECK_THROWS_WITH_AS(nn::Upsample({.scale = 1e300}).forward(x),
                       "upsample: x [1, 1, 2, 2] by a scale of 1e+300 is too large", Error);
  CHECK(nn::Flatten().forward(x).shape() == Shape{1, 4});
  CHECK(nn::Flatten({.from = 2}).forward(counted({2, 3, 2, 2})).shape() == Shape{2, 3, 4});
  // The order of elements is that of the shape.
  const Variable last = channels_last(Variable(counted({1, 3, 2, 2})));
  CHECK(Reference::of(nn::Flatten().forward(last).data())[5] == 5);
}

TEST_CASE("nn::Dropout2d drops whole channels, and hands their gradients on alike") {
  Generator generator(3);
  for (const bool channels_last_too : {false, true}) {
    const nn::Dropout2d dropout({.p = 0.5, .generator = &generator});
    const Tensor ones_ = ones({4, 16, 3, 2}, f32, test_device());
    const Variable x(channels_last_too ? channels_last(ones_) : ones_, true);
    const Variable y = dropout.forward(x);
    const Reference r = Reference::of(y.data());
    int dropped = 0;
    for (size_t plane = 0; plane < 64; ++plane) {
      for (size_t i = 0; i < 6; ++i) CHECK(r[plane * 6 + i] == r[plane * 6]);
      CHECK((r[plane * 6] == 0 || r[plane * 6] == 2));
      dropped += r[plane * 6] == 0;
    }
    CHECK(dropped > 16);
    CHECK(dropped < 48);
    sum(y).backward();
    CHECK(Reference::of(x.grad()).values == r.values);
  }
}
