#include <bs/autograd/group_norm.h>
#include <bs/autograd/image.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/group_norm.h>
#include <bs/kernels/image.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

/// in: x [N, C, ...], weight, bias, and a residual where there is one.
Reference normalised(const References& in, int64_t groups, double eps, bool relu) {
  Reference y = in[0];
  const int64_t channels = y.shape[1];
  const int64_t pixels = y.shape.slice(2, y.shape.rank()).product();
  const auto size = static_cast<size_t>(channels / groups * pixels);
  for (size_t first = 0; first < y.values.size(); first += size) {
    double* x = &y.values[first];
    long double sum = 0, squares = 0;
    for (size_t i = 0; i < size; ++i) sum += x[i];
    const auto mean = static_cast<double>(sum / static_cast<long double>(size));
    for (size_t i = 0; i < size; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const auto variance = static_cast<double>(squares / static_cast<long double>(size));
    for (size_t i = 0; i < size; ++i) {
      const size_t c = (first + i) / static_cast<size_t>(pixels) % static_cast<size_t>(channels);
      x[i] = (x[i] - mean) / std::sqrt(variance + eps);
      if (in.size() > 1) x[i] = x[i] * in[1][c] + in[2][c];
      if (in.size() > 3) x[i] += in[3][first + i];
      if (relu) x[i] = std::max(x[i], 0.0);
    }
  }
  return y;
}

}  // namespace

TEST_CASE("group_norm") {
  struct Case {
    Shape shape;
    int64_t groups;
  };
  const Case cases[] = {{{2, 8, 3, 4}, 2}, {{3, 6, 3, 3}, 3},   {{2, 5, 4, 2}, 5},
                        {{2, 4, 2, 4}, 1}, {{3, 12}, 4},        {{2, 32, 7}, 8},
                        {{1, 1, 5, 5}, 1}, {{2, 3, 65, 64}, 3}, {{1, 2, 192, 192}, 1},
                        {{3, 6, 8, 8}, 3}, {{2, 8, 40, 16}, 2}, {{1, 20, 4, 4}, 1}};
  for (const Case& c : cases) {
    CAPTURE(to_string(c.shape));
    const Shape channels = {c.shape[1]};
    for (const bool last : {false, true}) {
      if (last && c.shape.rank() < 3) continue;
      check_op({.name = last ? "group_norm channels-last" : "group_norm",
                .inputs = {c.shape, channels, channels},
                .op =
                    [&](const Variables& v) {
                      return group_norm(last ? channels_last(v[0]) : v[0], v[1], v[2],
                                        {.groups = c.groups});
                    },
                .reference =
                    [&](const References& in) { return normalised(in, c.groups, 1e-5, false); }});
    }
  }
  // Without a residual x tells the signs; planes of whole vectors have a kernel of their own.
  for (const Shape& shape : {Shape{2, 8, 3, 3}, Shape{2, 8, 4, 4}})
    for (const bool last : {false, true})
      check_op({.name = "group_norm with relu",
                .inputs = {shape, {8}, {8}},
                .op =
                    [&](const Variables& v) {
                      return group_norm(last ? channels_last(v[0]) : v[0], v[1], v[2],
                                        {.groups = 4, .relu = true});
                    },
                .reference = [](const References& in) { return normalised(in, 4, 1e-5, true); },
                .dtypes = {f64, f32}});
  check_op({.name = "group_norm without weights",
            .inputs = {{2, 4, 3, 3}},
            .op = [](const Variables& v) { return group_norm(v[0], {}, {}, {.groups = 2}); },
            .reference = [](const References& in) { return normalised(in, 2, 1e-5, false); }});
}

TEST_CASE("group_norm and instance norm with a residual and a ReLU in the same pass") {
  for (const int64_t groups : {2, 3, 6})
    for (const bool last : {false, true})
      for (const bool relu : {false, true}) {
        CAPTURE(groups);
        CAPTURE(last);
        // Planes of whole vectors have a kernel of their own.
        const Shape shape = groups == 2 ? Shape{2, 6, 4, 4} : Shape{2, 6, 3, 5};
        const auto as = [=](const Variable& v) { return last ? channels_last(v) : v; };
        check_op(
            {.name = relu ? "group_norm with a residual and relu" : "group_norm with a residual",
             .inputs = {shape, {6}, {6}, shape},
             .op =
                 [=](const Variables& v) {
                   return group_norm(as(v[0]), v[1], v[2], {.groups = groups, .relu = relu},
                                     as(v[3]));
                 },
             .reference = [=](const References& in) { return normalised(in, groups, 1e-5, relu); },
             // Low precision may round across a ReLU's kink: f64 and f32 do not here.
             .dtypes =
                 relu ? std::vector<DType>{f64, f32} : std::vector<DType>{f64, f32, f16, bf16}});
      }
  // A residual in another format, with gaps, and of another shape.
  const Reference x = random_reference({2, 6, 3, 5}, 1), more = random_reference(x.shape, 2);
  const Tensor wide = more.tensor(f32, test_device()).unsqueeze(4).expand({2, 6, 3, 5, 2});
  const Tensor gaps = clone(wide).select(4, 1);
  const Tensor in = channels_last(x.tensor(f32, test_device()));
  const Tensor y = group_norm(in, {}, {}, {.groups = 3, .relu = true}, gaps).y;
  CHECK(is_channels_last(y));
  Reference ones_({6}), zeros_({6});
  for (double& v : ones_.values) v = 1;
  check_close("residual with gaps", Reference::of(y),
              normalised({x, ones_, zeros_, more}, 3, 1e-5, true), 1e-5);
  CHECK_THROWS_AS(group_norm(in, {}, {}, {.groups = 3}, in.slice(0, 0, 1)), Error);
}

// A GPU reads channels-last images once where there are enough for all multiprocessors.
TEST_CASE("group_norm of many channels-last images") {
  const int64_t images = large_on_gpu(280, 2);
  struct Case {
    Shape shape;
    int64_t groups;
    bool adds;
  };
  for (const Case& c : {Case{{images, 32, 8, 8}, 8, false},
                        {{images, 24, 11, 9}, 8, true},
                        {{images, 96, 5, 5}, 2, false}}) {
    CAPTURE(to_string(c.shape));
    std::vector<Shape> inputs = {c.shape, {c.shape[1]}, {c.shape[1]}};
    if (c.adds) inputs.push_back(c.shape);
    check_op(
        {.name = "group_norm of many images",
         .inputs = inputs,
         .op =
             [&](const Variables& v) {
               return group_norm(channels_last(v[0]), v[1], v[2], {.groups = c.groups},
                                 c.adds ? channels_last(v[3]) : Variable());
             },
         .reference = [&](const References& in) { return normalised(in, c.groups, 1e-5, false); }});
  }
}

// Differences would cross the kinks of some of so many elements.
TEST_CASE("group_norm of many channels-last images with a ReLU agrees with the CPU's" *
          doctest::skip(!test_device().is_cuda())) {
  for (const Shape& shape : {Shape{280, 32, 9, 8}, Shape{280, 8, 37, 15}})
    for (const bool adds : {false, true}) {
      CAPTURE(to_string(shape));
      CAPTURE(adds);
      const auto drawn = [](const Shape& s, uint64_t seed) {
        return random_reference(s, seed).tensor(f64, Device::cpu());
      };
      const Tensor x = drawn(shape, 1), dy = drawn(shape, 2), residual = drawn(shape, 3);
      const Tensor weight = drawn({shape[1]}, 4), bias = drawn({shape[1]}, 5);
      const GroupNormOptions options{.groups = shape[1] / 4, .relu = true};
      const auto run = [&](Device device) {
        const auto on = [&](const Tensor& t) { return t.to(device); };
        const Tensor in = channels_last(on(x));
        const Tensor more = adds ? on(residual) : Tensor();
        GroupNormResult r = group_norm(in, on(weight), on(bias), options, more);
        const Tensor y = r.y;
        if (!adds) r.y = Tensor();
        const GroupNormGradients g =
            group_norm_backward(in, on(weight), on(bias), r, on(dy), options, adds);
        std::vector<Reference> all;
        for (const Tensor& t : {y, r.mean, r.rstd, g.dx, g.dweight, g.dbias})
          all.push_back(Reference::of(t));
        if (adds) all.push_back(Reference::of(g.dresidual));
        return all;
      };
      const std::vector<Reference> expected = run(Device::cpu()), actual = run(test_device());
      for (size_t i = 0; i < expected.size(); ++i)
        check_close("result " + std::to_string(i), actual[i], expected[i],
                    1e-12 * std::max(1.0, largest(expected[i])));
    }
}

TEST_CASE("group_norm of what is not finite stays in its group") {
  const int64_t images = large_on_gpu(280, 3);
  for (const bool last : {false, true}) {
    Reference x = random_reference({images, 16, 8, 8}, 4);
    x.at({1, 5, 3, 0}) = std::numeric_limits<double>::infinity();
    x.at({2, 15, 0, 7}) = std::numeric_limits<double>::quiet_NaN();
    const Tensor in = x.tensor(f32, test_device());
    const Tensor t = last ? channels_last(in) : in;
    const GroupNormResult r = group_norm(t, {}, {}, {.groups = 4, .relu = true});
    const Tensor dx = group_norm_backward(t, {}, {}, r, t, {.groups = 4, .relu = true}).dx;
    for (const Reference& result : {Reference::of(r.y), Reference::of(dx)})
      for (size_t i = 0; i < result.values.size(); ++i) {
        const size_t group = i / 256;  // of four channels
        CHECK(std::isnan(result[i]) == (group == 4 + 1 || group == 8 + 3));
      }
  }
}

TEST_CASE("group_norm takes weights of x's dtype and of the statistics'") {
  const Tensor x = random_reference({2, 6, 4, 4}, 1).tensor(bf16, test_device());
  const Tensor dy = random_reference({2, 6, 4, 4}, 2).tensor(bf16, test_device());
  const Tensor weight = random_reference({6}, 3).tensor(bf16, test_device());
  const Tensor bias = random_reference({6}, 4).tensor(bf16, test_device());
  for (const bool last : {false, true}) {
    const Tensor in = last ? channels_last(x) : x;
    const auto run = [&](DType of_weight, DType of_bias) {
      const Tensor w = cast(weight, of_weight), b = cast(bias, of_bias);
      const GroupNormOptions options{.groups = 3, .relu = true};
      const GroupNormResult r = group_norm(in, w, b, options);
      const GroupNormGradients g = group_norm_backward(in, w, b, r, dy, options);
      CHECK(g.dweight.dtype() == of_weight);
      CHECK(g.dbias.dtype() == of_bias);
      return std::vector<Tensor>{r.y, g.dx, cast(g.dweight, bf16), cast(g.dbias, bf16)};
    };
    const std::vector<Tensor> narrow = run(bf16, bf16);
    for (const DType of_bias : {f32, bf16}) {
      const std::vector<Tensor> mixed = run(f32, of_bias);
      for (size_t i = 0; i < narrow.size(); ++i) CHECK(same_bits(narrow[i], mixed[i]));
    }
  }
}

TEST_CASE("group_norm of nothing, and what it refuses") {
  const Tensor none = Tensor::empty({0, 4, 2, 2}, f32, test_device());
  CHECK(group_norm(none, {}, {}, {.groups = 2}).y.shape() == none.shape());
  const Tensor x = Tensor::empty({2, 6, 2, 2}, f32, test_device());
  CHECK_THROWS_WITH(group_norm(x, {}, {}, {.groups = 4}),
                    "group_norm: 4 groups do not divide the 6 channels of x [2, 6, 2, 2]");
}
