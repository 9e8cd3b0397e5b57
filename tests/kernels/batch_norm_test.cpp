#include <bs/autograd/batch_norm.h>
#include <bs/autograd/image.h>
#include <bs/kernels/batch_norm.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/image.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

struct Statistics {
  double mean, variance;
};

/// Where element i of a tensor [N, C, ...] belongs.
size_t channel_of(const Shape& shape, size_t i) {
  const auto channels = static_cast<size_t>(shape[1]);
  const auto pixels = static_cast<size_t>(shape.slice(2, shape.rank()).product());
  return i / pixels % channels;
}

/// Of each channel.
std::vector<Statistics> statistics_of(const Reference& x) {
  const auto channels = static_cast<size_t>(x.shape[1]);
  const size_t pixels = static_cast<size_t>(x.shape.slice(2, x.shape.rank()).product());
  const size_t images = x.values.size() / channels / pixels;
  std::vector<Statistics> all;
  for (size_t c = 0; c < channels; ++c) {
    long double sum = 0, squares = 0;
    const auto each = [&](const auto& f) {
      for (size_t n = 0; n < images; ++n)
        for (size_t i = 0; i < pixels; ++i) f(x[(n * channels + c) * pixels + i]);
    };
    each([&](double v) { sum += v; });
    const auto count = static_cast<long double>(images * pixels);
    const long double mean = sum / count;
    each([&](double v) { squares += (v - mean) * (v - mean); });
    all.push_back({static_cast<double>(mean), static_cast<double>(squares / count)});
  }
  return all;
}
Statistics statistics(const Reference& x, size_t channel) { return statistics_of(x)[channel]; }

/// in: x, weight, bias, and a residual where there is one.
Reference normalised(const References& in, double eps, bool relu) {
  Reference y = in[0];
  const std::vector<Statistics> of = statistics_of(in[0]);
  const auto channels = static_cast<size_t>(y.shape[1]);
  const size_t pixels =
      y.values.size() == 0 ? 1 : y.values.size() / channels / static_cast<size_t>(y.shape[0]);
  for (size_t i = 0; i < y.values.size(); ++i) {
    const size_t c = i / pixels % channels;
    y[i] = (y[i] - of[c].mean) / std::sqrt(of[c].variance + eps);
    if (in.size() > 1) y[i] = y[i] * in[1][c] + in[2][c];
    if (in.size() > 3) y[i] += in[3][i];
    if (relu) y[i] = std::max(y[i], 0.0);
  }
  return y;
}

Tensor on_device(const Reference& r, DType dtype) { return r.tensor(dtype, test_device()); }

}  // namespace

TEST_CASE("batch_norm") {
  // Vectors of channels and of pixels, and neither; long planes, few images, many channels.
  const Shape shapes[] = {{2, 8, 3, 4},  {3, 5, 3, 3}, {9, 16, 1, 1}, {4, 1, 2, 2},
                          {1, 3, 70, 1}, {7, 9},       {2, 264, 5},   {40, 8, 2, 4}};
  for (const Shape& shape : shapes) {
    CAPTURE(to_string(shape));
    const Shape c = {shape[1]};
    check_op({.name = "batch_norm",
              .inputs = {shape, c, c},
              .op = [](const Variables& v) { return batch_norm(v[0], v[1], v[2], {}); },
              .reference = [](const References& in) { return normalised(in, 1e-5, false); }});
    if (shape.rank() < 3) continue;
    check_op({.name = "batch_norm channels-last",
              .inputs = {shape, c, c},
              .op =
                  [](const Variables& v) {
                    const Variable y = batch_norm(channels_last(v[0]), v[1], v[2], {});
                    CHECK(is_channels_last(y.data()));
                    return y;
                  },
              .reference = [](const References& in) { return normalised(in, 1e-5, false); }});
  }
}

TEST_CASE("batch_norm with a residual and a ReLU in the same pass") {
  for (const bool last : {false, true})
    for (const bool residual : {false, true})
      for (const Shape& shape : {Shape{3, 8, 2, 5}, Shape{2, 3, 3, 4}}) {
        CAPTURE(last);
        CAPTURE(residual);
        std::vector<Shape> inputs = {shape, {shape[1]}, {shape[1]}};
        if (residual) inputs.push_back(shape);
        // Low precision may round across a ReLU's kink: f64 and f32 do not here.
        check_op({.name = "batch_norm with relu",
                  .inputs = inputs,
                  .op =
                      [=](const Variables& v) {
                        const auto as = [=](const Variable& x) {
                          return last ? channels_last(x) : x;
                        };
                        return batch_norm(as(v[0]), v[1], v[2], {}, {.relu = true},
                                          residual ? as(v[3]) : Variable());
                      },
                  .reference = [](const References& in) { return normalised(in, 1e-5, true); },
                  .dtypes = {f64, f32}});
      }
}

TEST_CASE("batch_norm adds up over parts of long axes") {
  for (const bool last : {false, true}) {
    CAPTURE(last);
    for (const DType dtype : {f32, bf16}) {
      Reference x = random_reference({3, 16, 61, 64}, 5);
      for (double& v : x.values) v += 64;
      const Tensor in = on_device(x, dtype);
      const BatchNormResult r = batch_norm(last ? channels_last(in) : in, {}, {}, {});
      const Reference expected = normalised({Reference::of(in)}, 1e-5, false);
      // 64 has an error of 2^-18 in f32, and the mean of 11712 of them one of a few.
      const double rounding = dtype == f32 ? 0 : 4 * epsilon(bf16);
      check_close("batch_norm", Reference::of(r.y), expected, 4 * 0x1p-17 + rounding);
    }
  }
}

TEST_CASE("batch_norm keeps running statistics as PyTorch does") {
  const Reference x = random_reference({4, 3, 2, 2}, 7);
  for (const DType dtype : {f64, bf16}) {
    const Tensor mean = full({3}, 0, dtype, test_device());
    const Tensor var = full({3}, 1, dtype, test_device());
    const Tensor batches = full({}, 0, i64, test_device());
    const Tensor in = on_device(x, dtype);
    batch_norm(in, {}, {}, {.mean = mean, .var = var, .batches = batches});
    CHECK(batches.item() == 1);
    for (size_t c = 0; c < 3; ++c) {
      const Statistics s = statistics(Reference::of(in), c);
      const double step = 2 * std::max(epsilon(dtype), epsilon(f32) * (dtype == f64 ? 0 : 1));
      CHECK(std::abs(Reference::of(mean)[c] - 0.1 * s.mean) <= step);
      CHECK(std::abs(Reference::of(var)[c] - (0.9 + 0.1 * s.variance * 16 / 15)) <= step);
    }
  }
  // A plain average of two batches.
  const Tensor mean = full({3}, 100, f64, test_device());
  const Tensor batches = full({}, 0, i64, test_device());
  const RunningStatistics running{.mean = mean, .var = {}, .batches = batches, .momentum = -1};
  const Reference other = random_reference({4, 3, 2, 2}, 8);
  batch_norm(on_device(x, f64), {}, {}, running);
  batch_norm(on_device(other, f64), {}, {}, running);
  for (size_t c = 0; c < 3; ++c)
    CHECK(std::abs(Reference::of(mean)[c] -
                   (statistics(x, c).mean + statistics(other, c).mean) / 2) <= 1e-14);
}

TEST_CASE("batch_norm by given statistics") {
  const Tensor mean = on_device(random_reference({5}, 1), f64);
  const Tensor var = on_device(random_reference({5}, 2, 0.1, 2), f64);
  const Reference m = Reference::of(mean), v = Reference::of(var);
  for (const bool last : {false, true})
    check_op({.name = "batch_norm_by",
              .inputs = {{2, 5, 3, 2}, {5}, {5}},
              .op =
                  [=](const Variables& in) {
                    return batch_norm_by(last ? channels_last(in[0]) : in[0], in[1], in[2], mean,
                                         var);
                  },
              .reference =
                  [=](const References& in) {
                    Reference y = in[0];
                    for (size_t i = 0; i < y.values.size(); ++i) {
                      const size_t c = channel_of(y.shape, i);
                      y[i] = (y[i] - m[c]) / std::sqrt(v[c] + 1e-5) * in[1][c] + in[2][c];
                    }
                    return y;
                  },
              .dtypes = {f64}});
}

TEST_CASE("batch_norm by statistics of either dtype, and of nothing") {
  const Tensor x = on_device(random_reference({2, 16, 3, 3}, 1), bf16);
  const Tensor mean = on_device(random_reference({16}, 2), bf16);
  const Tensor var = on_device(random_reference({16}, 3, 0.1, 2), bf16);
  for (const bool last : {false, true}) {
    const Tensor in = last ? channels_last(x) : x;
    const BatchNormResult narrow = batch_norm_by(in, mean, {}, mean, var);
    const BatchNormResult wide =
        batch_norm_by(in, cast(mean, f32), {}, cast(mean, f32), cast(var, f32));
    CHECK(narrow.mean.dtype() == f32);
    CHECK(same_bits(narrow.mean, cast(mean, f32)));
    CHECK(same_bits(narrow.rstd, wide.rstd));
    CHECK(same_bits(narrow.y, wide.y));
  }
  const Reference v = Reference::of(var);
  const BatchNormResult none = batch_norm_by(x.slice(0, 0, 0), {}, {}, mean, var);
  CHECK(none.y.shape() == Shape{0, 16, 3, 3});
  for (size_t c = 0; c < 16; ++c)
    CHECK(std::abs(Reference::of(none.rstd)[c] * std::sqrt(v[c] + 1e-5) - 1) <= 4 * epsilon(f32));
}

TEST_CASE("batch_norm of channels-last rows, wherever its weights begin") {
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const int64_t channels : {8, 24, 264})
      for (const bool fused : {false, true}) {
        CAPTURE(to_string(dtype));
        CAPTURE(channels);
        CAPTURE(fused);
        const auto drawn = [&](const Shape& shape, uint64_t seed) {
          return on_device(random_reference(shape, seed), dtype);
        };
        const auto images = [&](uint64_t seed) {
          return channels_last(drawn({3, channels, 5, 7}, seed));
        };
        const Tensor x = images(1), residual = fused ? images(2) : Tensor();
        const Tensor weights = drawn({channels + 1}, 3), biases = drawn({channels + 1}, 4);
        const auto at = [&](const Tensor& t, int64_t first) {
          return t.slice(0, first, first + channels);
        };
        const Tensor weight = at(weights, 0), bias = at(biases, 0);
        const BatchNormOptions options{.relu = fused};
        const Tensor y = batch_norm(x, weight, bias, {}, options, residual).y;
        References in = {Reference::of(x), Reference::of(weight), Reference::of(bias)};
        if (fused) in.push_back(Reference::of(residual));
        check_close("batch_norm", Reference::of(y), normalised(in, 1e-5, fused),
                    16 * epsilon(dtype));
        // In the dtype that they are computed in, and where no vector begins.
        const DType wide = dtype == f64 ? f64 : f32;
        CHECK(same_bits(
            y, batch_norm(x, cast(weight, wide), cast(bias, wide), {}, options, residual).y));
        copy(clone(weight), at(weights, 1));
        copy(clone(bias), at(biases, 1));
        const Tensor shifted =
            batch_norm(x, at(weights, 1), at(biases, 1), {}, options, residual).y;
        CHECK(same_bits(y, shifted));
        const Tensor none = batch_norm(x, {}, {}, {}, options, residual).y;
        const Tensor ones = full({channels}, 1, wide, test_device());
        const Tensor zeros = full({channels}, 0, wide, test_device());
        CHECK(same_bits(none, batch_norm(x, ones, zeros, {}, options, residual).y));
      }
}

TEST_CASE("batch_norm gives gradients of its weights' dtypes") {
  const Tensor x = on_device(random_reference({2, 8, 3, 3}, 1), f16);
  const Tensor dy = on_device(random_reference({2, 8, 3, 3}, 2), f16);
  const Tensor weight = on_device(random_reference({8}, 3), f16);
  const auto run = [&](DType of_weight, DType of_bias) {
    const Tensor w = cast(weight, of_weight), b = cast(weight, of_bias);
    const BatchNormResult r = batch_norm(x, w, b, {});
    const BatchNormGradients g =
        batch_norm_backward({.x = x, .weight = w, .bias = b, .mean = r.mean, .rstd = r.rstd}, dy);
    CHECK(g.dweight.dtype() == of_weight);
    CHECK(g.dbias.dtype() == of_bias);
    return std::vector<Tensor>{r.y, g.dx, cast(g.dweight, f16), cast(g.dbias, f16)};
  };
  const std::vector<Tensor> narrow = run(f16, f16);
  for (const DType of_bias : {f32, f16}) {
    const std::vector<Tensor> mixed = run(f32, of_bias);
    for (size_t i = 0; i < narrow.size(); ++i) CHECK(same_bits(narrow[i], mixed[i]));
  }
}

TEST_CASE("batch_norm over parts of a batch equals that over the whole") {
  const Tensor x = channels_last(on_device(random_reference({6, 8, 3, 3}, 3), f64));
  const Tensor dy = channels_last(on_device(random_reference({6, 8, 3, 3}, 4), f64));
  const Tensor weight = on_device(random_reference({8}, 5), f64);
  const auto part = [](const Tensor& t, int64_t from, int64_t to) { return t.slice(0, from, to); };
  const ChannelMoments whole =
      merge_moments(channel_moments(part(x, 0, 4)), channel_moments(part(x, 4, 6)));
  const BatchNormResult expected = batch_norm(x, weight, {}, {});
  CHECK(whole.count == 54);
  check_close("mean", Reference::of(whole.mean), Reference::of(expected.mean), 1e-14);
  const BatchNormSaved saved{
      .x = x, .weight = weight, .bias = {}, .mean = expected.mean, .rstd = expected.rstd};
  BatchNormSaved first = saved, second = saved;
  first.x = part(x, 0, 4), second.x = part(x, 4, 6);
  const Tensor sums = add(batch_norm_backward_sums(first, part(dy, 0, 4)),
                          batch_norm_backward_sums(second, part(dy, 4, 6)));
  const BatchNormGradients g = batch_norm_backward(saved, dy);
  const Tensor dx = batch_norm_backward_x(first, part(dy, 0, 4), sums, whole.count).dx;
  check_close("dx", Reference::of(dx), Reference::of(part(g.dx, 0, 4)), 1e-13);
  check_close("dweight", Reference::of(sums.select(0, 1)), Reference::of(g.dweight), 1e-13);
}

TEST_CASE("batch_norm_backward_x by the sums of a whole is the whole's gradient") {
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const Shape& shape : {Shape{3, 5, 7, 5},
                               {2, 264, 3, 4},
                               {4, 2064, 3, 1},
                               {3, 4120, 2, 1},
                               {20, 8, 40, 40},
                               {9, 24, 8, 16}})
      for (const bool last : {false, true}) {
        CAPTURE(to_string(dtype));
        CAPTURE(to_string(shape));
        CAPTURE(last);
        const auto image = [&](uint64_t seed, double middle) {
          const Reference r = random_reference(shape, seed, middle - 1, middle + 1);
          return in_format(on_device(r, dtype), last);
        };
        const Tensor x = image(1, last ? 16 : 0), dy = image(2, 0);
        const int64_t channels = shape[1], count = x.numel() / channels;
        const Tensor drawn = on_device(random_reference({channels}, 3), dtype);
        const Reference factor = Reference::of(drawn);
        const BatchNormResult r = batch_norm(x, {}, {}, {});
        const DType wide = dtype == f64 ? f64 : f32;
        for (const Tensor& weight : {Tensor(), drawn, cast(drawn, wide)})
          for (const bool relu : {false, true}) {
            const BatchNormSaved saved{
                .x = x, .weight = weight, .bias = {}, .mean = r.mean, .rstd = r.rstd, .relu = relu};
            const Tensor sums = batch_norm_backward_sums(saved, dy);
            const Tensor dx = batch_norm_backward_x(saved, dy, sums, count).dx;
            const Reference whole = Reference::of(batch_norm_backward(saved, dy).dx);
            // Channels of equal elements have gradients of hundreds, which are rounded.
            const double most = (16 + largest(whole)) * epsilon(dtype);
            check_close("dx", Reference::of(dx), whole, most);
            if (relu) continue;
            const Reference h = Reference::of(x), dz = Reference::of(dy), of = Reference::of(sums),
                            mean = Reference::of(r.mean), rstd = Reference::of(r.rstd);
            Reference expected = h;
            for (size_t i = 0; i < h.values.size(); ++i) {
              const size_t c = channel_of(shape, i), all = static_cast<size_t>(channels);
              const double scale = rstd[c] * (weight.defined() ? factor[c] : 1);
              const double normal = (h[i] - mean[c]) * rstd[c];
              expected[i] =
                  scale * (dz[i] - (of[c] + normal * of[all + c]) / static_cast<double>(count));
            }
            check_close("dx", Reference::of(dx), expected, most);
          }
      }
}

TEST_CASE("batch_norm of what is not finite stays in its channel") {
  Reference x = random_reference({3, 8, 4, 4}, 2);
  x.at({1, 2, 3, 0}) = std::numeric_limits<double>::infinity();
  x.at({2, 5, 0, 1}) = std::numeric_limits<double>::quiet_NaN();
  const Tensor in = on_device(x, f32);
  for (const Tensor& t : {in, channels_last(in)}) {
    const Reference y = Reference::of(batch_norm(t, {}, {}, {}, {.relu = true}).y);
    for (size_t i = 0; i < y.values.size(); ++i) {
      const size_t c = channel_of(y.shape, i);
      CHECK(std::isnan(y[i]) == (c == 2 || c == 5));
    }
  }
}

TEST_CASE("batch_norm of numbers whose squares are infinite is finite") {
  for (const Shape& shape : {Shape{2, 3, 4, 5}, {8, 16, 1, 1}, {1, 8, 60, 70}})
    for (const bool last : {false, true}) {
      const Tensor x = in_format(full(shape, 3e19, f32, test_device()), last);
      for (const double v : Reference::of(batch_norm(x, {}, {}, {}).y).values)
        CHECK(std::isfinite(v));
    }
}

TEST_CASE("batch_norm of nothing, and of views") {
  const Tensor none = Tensor::empty({0, 4, 2, 2}, f32, test_device());
  const Tensor ones = full({4}, 1, f32, test_device());
  const BatchNormResult r = batch_norm(none, ones, {}, {});
  CHECK(r.y.shape() == none.shape());
  const BatchNormGradients g = batch_norm_backward(
      {.x = none, .weight = ones, .bias = {}, .mean = ones, .rstd = ones}, none);
  for (double v : Reference::of(g.dweight).values) CHECK(v == 0);
  const Tensor x = channels_last(on_device(random_reference({2, 8, 5, 6}, 1), f32));
  const Tensor crop = x.slice(3, 1, 4);
  const BatchNormResult of_view = batch_norm(crop, {}, {}, {});
  CHECK(is_channels_last(of_view.y));
  CHECK(same_bits(contiguous(of_view.y),
                  contiguous(batch_norm(channels_last(clone(crop)), {}, {}, {}).y)));
}

TEST_CASE("batch_norm says what is wrong") {
  const Tensor x = Tensor::empty({2, 3, 4, 4}, f32, test_device());
  const Tensor four = full({4}, 1, f32, test_device());
  CHECK_THROWS_WITH(batch_norm(x, four, {}, {}),
                    "batch_norm: weight [4] does not fit the 3 channels of x [2, 3, 4, 4]");
  CHECK_THROWS_WITH(batch_norm(four, {}, {}, {}), "batch_norm: x [4] has no axis of channels");
  CHECK_THROWS_WITH(batch_norm(x.slice(0, 0, 1).slice(2, 0, 1).slice(3, 0, 1), {}, {}, {}),
                    "batch_norm: x [1, 3, 1, 1] has one element a channel, which has no variance");
  CHECK_THROWS_WITH(batch_norm(x, {}, {}, {}, {}, x.slice(3, 0, 2)),
                    "batch_norm: shapes [2, 3, 4, 4] and [2, 3, 4, 2] differ");
  CHECK_THROWS_WITH(
      batch_norm(x, {}, {}, {.mean = {}, .var = {}, .batches = zeros({2}, i64, test_device())}),
      "batch_norm: the number of batches is i64 [2]");
  if (test_device().is_cuda())
    CHECK_THROWS_WITH(batch_norm(x, {}, {}, {.mean = {}, .var = {}, .batches = zeros({}, i64)}),
                      doctest::Contains("batch_norm: the number of batches is on cpu, x on cuda"));
}
