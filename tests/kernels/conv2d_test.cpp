#include <bs/autograd/conv2d.h>
#include <bs/kernels/conv2d.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/cpu/conv2d_direct.h>
#include <bs/kernels/fill.h>
#include <bs/lib/threads.h>
#include <bs/tests/kernels/conv2d_reference.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

/// Whole numbers, of which sums are exact.
Reference integers(const Shape& shape, uint64_t seed, double most = 4) {
  Reference r = random_reference(shape, seed, -most - 0.5, most + 0.5);
  for (double& v : r.values) v = std::round(v);
  return r;
}

Reference rounded(const Reference& r, DType dtype) {
  return Reference::of(r.tensor(dtype, Device::cpu()));
}

enum class Format : uint8_t { rows, channels, gaps };

/// The values on the device under test; `gaps`: every second element of something larger.
Tensor image_of(const Reference& r, DType dtype, Format format) {
  const Tensor x = r.tensor(dtype, test_device());
  if (format == Format::rows) return x;
  if (format == Format::channels) return channels_last(x);
  const Shape& s = r.shape;
  const Tensor wide = full({s[0], s[2], 2 * s[1], 2 * s[3]}, 99, dtype, test_device());
  const Tensor view = wide.slice(2, 1, 2 * s[1], 2).slice(3, 0, 2 * s[3], 2).permute({0, 2, 1, 3});
  copy(x, view);
  return view;
}

struct Case {
  Shape x, w;
  Conv2dOptions options = {};
};

std::string name_of(const Case& c) {
  const Conv2dOptions& o = c.options;
  return "x " + to_string(c.x) + " w " + to_string(c.w) + " stride " + std::to_string(o.stride.h) +
         "x" + std::to_string(o.stride.w) + " dilation " + std::to_string(o.dilation.h) + "x" +
         std::to_string(o.dilation.w) + " padding " + std::to_string(o.padding.top) + " " +
         std::to_string(o.padding.bottom) + " " + std::to_string(o.padding.left) + " " +
         std::to_string(o.padding.right) + " groups " + std::to_string(o.groups);
}

struct Stored {
  DType dtype;
  Format format;
};

/// The three passes with whole numbers, bit for bit; the loops of the reference run once.
void check_exact(const Case& c, const std::vector<Stored>& all, uint64_t seed = 1) {
  const bool in_bf16 = std::ranges::any_of(all, [](Stored s) { return s.dtype == bf16; });
  const double most = in_bf16 ? 2 : 4;
  const Reference x = integers(c.x, seed, most), w = integers(c.w, seed + 1, most);
  const Reference y = conv2d_of(x, w, c.options), dy = integers(y.shape, seed + 2, most);
  const Reference dx = conv2d_dx_of(dy, w, c.x, c.options);
  const Reference dw = conv2d_dw_of(x, dy, c.w, c.options);
  for (const auto& [dtype, format] : all) {
    const Tensor tx = image_of(x, dtype, format), tw = image_of(w, dtype, format);
    const Tensor tdy = image_of(dy, dtype, format);
    const auto same = [&, type = dtype](const char* pass, const Tensor& actual,
                                        const Reference& expected) {
      CHECK_MESSAGE(actual.shape() == expected.shape, pass, " ", name_of(c));
      CHECK_MESSAGE(Reference::of(actual).values == rounded(expected, type).values, pass, " ",
                    to_string(type), " ", name_of(c));
    };
    const Tensor ty = conv2d(tx, tw, c.options);
    same("conv2d", ty, y);
    if (ty.size(1) * ty.size(2) * ty.size(3) > 1)
      CHECK(is_channels_last(ty) == is_channels_last(tx));
    same("conv2d_backward_x", conv2d_backward_x(tdy, tw, c.x, c.options), dx);
    same("conv2d_backward_w", conv2d_backward_w(tx, tdy, c.w, c.options), dw);
  }
}

int64_t random_of(const Reference& draws, size_t& at, int64_t low, int64_t high) {
  const double u = draws[at++ % draws.values.size()];
  return low + std::min(high - low, static_cast<int64_t>(u * static_cast<double>(high - low + 1)));
}

}  // namespace

TEST_CASE("conv2d of thousands of random shapes, bit for bit") {
  const Reference draws = random_reference({40009}, 5, 0, 1);
  size_t at = 0;
  const auto draw = [&](int64_t low, int64_t high) { return random_of(draws, at, low, high); };
  int ran = 0, grouped = 0, empty = 0;
  for (uint64_t i = 0; i < sampled<uint64_t>(3300); ++i) {
    Case c;
    Conv2dOptions& o = c.options;
    o.groups = draw(0, 2) == 0 ? draw(2, 5) : 1;
    o.stride = {draw(1, 5), draw(1, 5)};
    o.dilation = {draw(1, 3), draw(1, 3)};
    if (draw(0, 1) == 0) o.stride = {1, 1};
    if (draw(0, 1) == 0) o.dilation = {1, 1};
    o.padding = {draw(0, 3), draw(0, 3), draw(0, 3), draw(0, 3)};
    const int64_t r = draw(1, 7), s = draw(1, 7), cg = draw(1, draw(1, 20)), kg = draw(1, 9);
    c.w = {o.groups * kg, cg, r, s};
    const auto least = [](int64_t filter, int64_t dilation, int64_t padding) {
      return std::max<int64_t>(dilation * (filter - 1) + 1 - padding, 1);
    };
    c.x = {draw(0, 15) == 0 ? 0 : draw(1, 2), o.groups * cg,
           least(r, o.dilation.h, o.padding.top + o.padding.bottom) + draw(0, draw(0, 7)),
           least(s, o.dilation.w, o.padding.left + o.padding.right) + draw(0, draw(0, 7))};
    if (c.x.product() * c.w.product() > 60000) continue;
    ++ran;
    grouped += o.groups > 1;
    empty += c.x[0] == 0;
    const DType dtypes[] = {f32, f32, f64, f16, bf16};
    const Format formats[] = {Format::rows, Format::channels, Format::channels, Format::gaps};
    const DType dtype = dtypes[draw(0, 4)];
    check_exact(c, {{dtype, formats[draw(0, 3)]}}, i);
  }
  CHECK(ran >= sampled(2000));
  CHECK(grouped >= sampled(400));
  CHECK(empty >= sampled(100));
}

TEST_CASE("conv2d of few channels in batches, bit for bit") {
  // What the CPU reads from frames of zeros, without packing: see kernels/cpu/conv2d_direct.h.
  const Case cases[] = {
      {{4, 1, 5, 5}, {1, 1, 3, 3}, {.padding = {1, 1, 1, 1}}},
      {{4, 3, 9, 31}, {16, 3, 3, 3}, {.padding = {1, 1, 1, 1}}},    // 31 = 3 * 10 + 1 sums a row
      {{5, 16, 6, 18}, {33, 16, 3, 3}, {.padding = {0, 2, 1, 0}}},  // an odd vector of channels
      {{4, 64, 7, 8}, {64, 64, 3, 3}, {.padding = {1, 1, 1, 1}}},   // the most channels
      {{4, 5, 13, 12}, {7, 5, 3, 2}, {.stride = {2, 3}, .padding = {2, 1, 0, 3}}},
      {{4, 4, 11, 10}, {6, 4, 3, 3}, {.stride = {2, 2}}},
      {{4, 4, 9, 9}, {6, 4, 2, 2}, {.stride = {5, 4}, .padding = {3, 0, 0, 3}}},
      {{4, 6, 12, 11}, {5, 6, 3, 3}, {.padding = {2, 2, 4, 4}, .dilation = {2, 4}}},
      {{4, 2, 10, 9},
       {3, 2, 2, 3},
       {.stride = {3, 2}, .padding = {1, 0, 0, 1}, .dilation = {3, 2}}},
      {{4, 8, 6, 6}, {8, 8, 1, 1}, {.stride = {2, 2}}},         // phases without a tap in dx
      {{4, 3, 2, 2}, {5, 3, 5, 5}, {.padding = {2, 2, 2, 2}}},  // a filter beyond the image
      {{4, 2, 4, 3}, {3, 2, 2, 2}, {.padding = {5, 4, 4, 5}}},  // results of zeros alone
      {{4, 3, 1, 1}, {4, 3, 1, 2}, {.padding = {0, 0, 1, 0}}},
      {{17, 3, 5, 6}, {9, 3, 3, 3}, {.padding = {1, 1, 1, 1}}},  // two images a part
      {{33, 2, 4, 5}, {17, 2, 2, 3}, {.stride = {1, 2}}},        // three, the last part fewer
      // Images in strips: of what x, or dy, holds more than a frame does.
      {{4, 64, 20, 40}, {4, 64, 3, 3}, {.padding = {1, 1, 1, 1}}},
      {{4, 24, 41, 60}, {5, 24, 3, 3}, {.stride = {2, 2}, .padding = {1, 1, 1, 1}}},
      {{2, 2, 61, 80}, {64, 2, 3, 3}, {.stride = {2, 2}, .padding = {1, 1, 1, 1}}},
  };
  uint64_t seed = 300;
  for (const Case& c : cases) {
    const Conv2dProblem d = conv2d_problem("conv2d", c.x, c.w, c.options);
    CHECK_MESSAGE(cpu::is_direct(cpu::backward_gather(d)), name_of(c));
    CHECK_MESSAGE((c.w[2] * c.w[3] == 1 || cpu::is_direct(cpu::forward_gather(d, {}))), name_of(c));
    std::vector<Stored> all;
    for (const Format format : {Format::rows, Format::channels, Format::gaps})
      for (const DType dtype : {f64, f32, f16, bf16}) all.push_back({dtype, format});
    check_exact(c, all, seed += 3);
  }
}

TEST_CASE("conv2d of few channels in batches of hundreds of random shapes, bit for bit") {
  const Reference draws = random_reference({10007}, 6, 0, 1);
  size_t at = 0;
  const auto draw = [&](int64_t low, int64_t high) { return random_of(draws, at, low, high); };
  int ran = 0;
  for (uint64_t i = 0; i < sampled<uint64_t>(700); ++i) {
    Case c;
    Conv2dOptions& o = c.options;
    o.stride = {draw(1, 4), draw(1, 4)};
    o.dilation = {draw(1, 2), draw(1, 3)};
    o.padding = {draw(0, 4), draw(0, 4), draw(0, 4), draw(0, 4)};
    const int64_t r = draw(1, 4), s = draw(2, 5);
    c.w = {draw(1, draw(1, 40)), draw(1, draw(1, 20)), r, s};
    c.x = {draw(4, draw(4, 18)), c.w[1], o.dilation.h * (r - 1) + draw(1, 6),
           o.dilation.w * (s - 1) + draw(1, 14)};
    if (c.x.product() * c.w.product() > 400000) continue;
    const Conv2dProblem d = conv2d_problem("conv2d", c.x, c.w, o);
    CHECK(cpu::is_direct(cpu::forward_gather(d, {})));
    ++ran;
    const DType dtypes[] = {f32, f64, f16, bf16};
    const Format formats[] = {Format::rows, Format::channels, Format::gaps};
    check_exact(c, {{dtypes[draw(0, 3)], formats[draw(0, 2)]}}, i);
  }
  CHECK(ran >= sampled(300));
}

TEST_CASE("conv2d of few channels in batches: results of any number of threads") {
  const Tensor x = random_reference({21, 5, 9, 11}, 1).tensor(f32, test_device());
  const Tensor w = random_reference({19, 5, 3, 3}, 2).tensor(f32, test_device());
  const auto all = [&] {
    const Tensor y = conv2d(x, w);
    return std::vector{y, conv2d_backward_x(y, w, x.shape()), conv2d_backward_w(x, y, w.shape())};
  };
  const int team = threads();
  const std::vector<Tensor> before = all();
  set_threads(team == 1 ? 3 : 1);
  const std::vector<Tensor> after = all();
  set_threads(team);
  for (size_t i = 0; i < before.size(); ++i) CHECK(same_bits(before[i], after[i]));
}

TEST_CASE("conv2d of three channels, large enough to be filled up for tensor cores, bit for bit") {
  const int64_t side = sanitized ? 16 : 64;
  const Case c = {{5, 3, side + 1, side}, {64, 3, 3, 3}, {.padding = {1, 1, 1, 1}}};
  check_exact(c, {{bf16, Format::channels}, {f16, Format::rows}}, 900);
}

TEST_CASE("conv2d of shapes that other libraries test, bit for bit") {
  const auto pad = [](int64_t n) { return Padding2{n, n, n, n}; };
  const Case cases[] = {
      {{1, 8, 13, 17}, {24, 8, 3, 3}, {.stride = {2, 2}}},
      {{1, 12, 4, 4}, {8, 12, 3, 3}, {.stride = {3, 3}}},
      {{1, 32, 35, 20}, {40, 32, 5, 5}, {.stride = {2, 2}, .padding = pad(2)}},
      {{1, 1, 8, 8}, {1, 1, 3, 3}, {.padding = pad(1)}},
      {{1, 64, 13, 27}, {40, 64, 3, 3}, {.stride = {2, 1}, .padding = pad(1)}},
      {{1, 2, 16, 16}, {16, 2, 3, 3}, {.stride = {2, 2}, .padding = pad(1)}},
      {{1, 8, 8, 8}, {16, 8, 3, 3}, {.stride = {2, 2}, .padding = pad(1)}},
      {{1, 12, 56, 56}, {8, 12, 1, 1}, {.stride = {2, 2}}},
      {{2, 3, 33, 30}, {8, 3, 7, 7}, {.stride = {2, 2}, .padding = pad(3)}},
      // Few channels, whose gradients CUDA computes as those of other problems.
      {{2, 3, 33, 30}, {40, 3, 7, 7}, {.stride = {2, 2}, .padding = pad(3)}},
      {{3, 1, 20, 20}, {32, 1, 3, 3}, {.padding = pad(1)}},
      {{2, 3, 19, 23}, {64, 3, 5, 5}, {.stride = {1, 3}, .padding = {2, 1, 0, 4}}},
      {{1, 4, 18, 18}, {32, 4, 3, 5}, {.stride = {3, 1}, .dilation = {2, 2}}},
      {{2, 12, 9, 11}, {48, 12, 3, 2}, {.stride = {2, 2}, .padding = pad(1)}},
      {{2, 130, 9, 8}, {130, 1, 3, 3}, {.padding = pad(1), .groups = 130}},
      {{2, 520, 3, 3}, {38, 520, 3, 3}, {.padding = pad(1)}},
  };
  uint64_t seed = 100;
  for (const Case& c : cases)
    check_exact(c,
                {{f32, Format::rows},
                 {f32, Format::channels},
                 {f16, Format::rows},
                 {f16, Format::channels}},
                seed += 3);
}

TEST_CASE("conv2d: bias, residual and activation") {
  const Activation all[] = {Activation::none,     Activation::relu, Activation::tanh,
                            Activation::sigmoid,  Activation::silu, Activation::gelu,
                            Activation::gelu_tanh};
  const auto f = [](Activation a, double v) {
    const double logistic = 1 / (1 + std::exp(-v));
    switch (a) {
      case Activation::relu:
        return std::max(v, 0.0);
      case Activation::tanh:
        return std::tanh(v);
      case Activation::sigmoid:
        return logistic;
      case Activation::silu:
        return v * logistic;
      case Activation::gelu:
        return v * std::erfc(-v / std::sqrt(2.0)) / 2;
      case Activation::gelu_tanh:
        return v / 2 * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
      default:
        return v;
    }
  };
  // Dense, depthwise and grouped; whole blocks of pixels and the rest of one.
  const Case cases[] = {{{2, 6, 5, 7}, {40, 6, 3, 3}, {.padding = {1, 1, 1, 1}}},
                        {{2, 6, 5, 7}, {6, 1, 3, 3}, {.stride = {2, 1}, .groups = 6}},
                        {{1, 6, 5, 7}, {4, 3, 1, 1}, {.groups = 2}}};
  for (const Case& c : cases)
    for (const Activation a : all)
      for (const DType dtype : {f64, f32, f16, bf16})
        for (const Format format : {Format::rows, Format::channels, Format::gaps}) {
          const Reference x = rounded(random_reference(c.x, 1), dtype);
          const Reference w = rounded(random_reference(c.w, 2), dtype);
          const Reference bias = rounded(random_reference({c.w[0]}, 3), dtype);
          Reference y = conv2d_of(x, w, c.options);
          const Reference more = rounded(random_reference(y.shape, 4), dtype);
          const int64_t image = y.shape[2] * y.shape[3];
          for (size_t i = 0; i < y.values.size(); ++i) {
            const auto k = static_cast<int64_t>(i) / image % c.w[0];
            y[i] = f(a, y[i] + bias[static_cast<size_t>(k)] + more[i]);
          }
          const Conv2dEpilogue e{.bias = bias.tensor(dtype, test_device()),
                                 .residual = image_of(more, dtype, format),
                                 .activation = a};
          const Tensor actual =
              conv2d(image_of(x, dtype, format), w.tensor(dtype, test_device()), c.options, e);
          check_close(to_string(a) + " " + to_string(dtype), Reference::of(actual), y,
                      16 * epsilon(dtype) * std::max(1.0, largest(y)));
        }
}

TEST_CASE("conv_transpose2d is the gradient of conv2d, with an epilogue") {
  for (const Format format : {Format::rows, Format::channels}) {
    const Conv2dOptions o{.stride = {3, 2}, .padding = {1, 0, 1, 2}, .dilation = {1, 2}};
    const Reference x = integers({2, 5, 4, 3}, 1), w = integers({5, 6, 3, 2}, 2);
    const Reference bias = integers({6}, 3);
    const Shape shape{2, 6, (4 - 1) * 3 - 1 + 2 + 2 + 1, (3 - 1) * 2 - 3 + 2 + 1 + 1};
    Reference y = conv2d_dx_of(x, w, shape, o);
    for (size_t i = 0; i < y.values.size(); ++i)
      y[i] = std::max(y[i] + bias[i / static_cast<size_t>(shape[2] * shape[3]) % 6], 0.0);
    const Tensor actual =
        conv_transpose2d(image_of(x, f32, format), w.tensor(f32, test_device()), o, {2, 1},
                         {.bias = bias.tensor(f32, test_device()), .activation = Activation::relu});
    CHECK(actual.shape() == shape);
    CHECK(Reference::of(actual).values == y.values);
    CHECK(Reference::of(conv_transpose2d_backward_w(image_of(x, f32, format),
                                                    image_of(y, f32, format), w.shape, o))
              .values == conv2d_dw_of(y, x, w.shape, o).values);
  }
}

TEST_CASE("conv2d: same padding, and results of any number of threads") {
  const Tensor x = random_reference({2, 5, 11, 8}, 1).tensor(f32, test_device());
  const Tensor w = random_reference({7, 5, 4, 3}, 2).tensor(f32, test_device());
  CHECK(conv2d(x, w, {.same = true}).shape() == Shape{2, 7, 11, 8});
  CHECK(conv2d(x, w, {.stride = {2, 3}, .same = true}).shape() == Shape{2, 7, 6, 3});
  CHECK(same_bits(conv2d(x, w, {.same = true}), conv2d(x, w, {.padding = {1, 2, 1, 1}})));
  const Tensor large = random_reference({2, 20, 40, 40}, 3).tensor(f32, test_device());
  const Tensor filter = random_reference({40, 20, 3, 3}, 4).tensor(f32, test_device());
  const int team = threads();
  const auto all = [&] {
    const Tensor y = conv2d(large, filter);
    return std::vector{y, conv2d_backward_x(y, filter, large.shape()),
                       conv2d_backward_w(large, y, filter.shape())};
  };
  const std::vector<Tensor> before = all();
  set_threads(team == 1 ? 3 : 1);
  const std::vector<Tensor> after = all();
  set_threads(team);
  for (size_t i = 0; i < before.size(); ++i) CHECK(same_bits(before[i], after[i]));
}

TEST_CASE("conv2d and its gradients in every dtype") {
  const Conv2dOptions o{.stride = {2, 1}, .padding = {1, 0, 1, 1}, .groups = 2};
  check_op({.name = "conv2d",
            .inputs = {{2, 6, 5, 6}, {4, 3, 3, 2}, {4}},
            .op = [=](const Variables& v) { return conv2d(v[0], v[1], v[2], o); },
            .reference =
                [=](const References& in) {
                  Reference y = conv2d_of(in[0], in[1], o);
                  const auto image = static_cast<size_t>(y.shape[2] * y.shape[3]);
                  for (size_t i = 0; i < y.values.size(); ++i) y[i] += in[2][i / image % 4];
                  return y;
                }});
}

TEST_CASE("conv2d's messages") {
  const auto some = [](const Shape& shape, DType dtype = f32) {
    return zeros(shape, dtype, test_device());
  };
  const Tensor x = some({2, 4, 5, 6}), w = some({8, 4, 3, 3});
  CHECK_THROWS_WITH_AS(conv2d(x, some({8, 3, 3, 3})),
                       "conv2d: x [2, 4, 5, 6] and weight [8, 3, 3, 3] with 1 groups: x has C "
                       "channels, the weight C / groups, and groups divide its K",
                       Error);
  CHECK_THROWS_WITH_AS(conv2d(x, some({8, 4, 7, 3})),
                       "conv2d: a filter of 7 with dilation 1 covers 7, the padded image has 5",
                       Error);
  CHECK_THROWS_WITH_AS(conv2d(x, w, {.padding = {-1, 0, 0, 0}}),
                       "conv2d: padding -1 0 0 0 (top, bottom, left, right) is negative", Error);
  CHECK_THROWS_WITH_AS(conv2d(x, w, {.stride = {0, 1}}),
                       "conv2d: stride 0x1, dilation 1x1 and 1 groups; they are 1 and more", Error);
  CHECK_THROWS_WITH_AS(conv2d(x, w, {}, {.bias = some({4})}),
                       "conv2d: bias [4] for a result [2, 8, 3, 4]", Error);
  CHECK_THROWS_WITH_AS(conv2d(x, w, {}, {.residual = some({2, 8, 3, 3})}),
                       "conv2d: residual [2, 8, 3, 3] for a result [2, 8, 3, 4]", Error);
  CHECK_THROWS_WITH_AS(conv2d(x, some({8, 4, 3, 3}, f64)), "conv2d: dtypes f32 and f64 differ",
                       Error);
  CHECK_THROWS_AS(conv2d(some({4, 5, 6}), w), Error);
  CHECK_THROWS_AS(conv2d(some({2, 4, 0, 6}), w, {.padding = {2, 2, 2, 2}}), Error);
  CHECK_THROWS_WITH_AS(conv2d_backward_x(some({2, 8, 5, 6}), w, x.shape()),
                       "conv2d_backward_x: dy [2, 8, 5, 6] for x [2, 4, 5, 6] and weight "
                       "[8, 4, 3, 3], whose y is [2, 8, 3, 4]",
                       Error);
  CHECK_THROWS_AS(conv2d_backward_w(x, some({2, 8, 5, 6}), w.shape()), Error);
  CHECK_THROWS_AS(conv_transpose2d(x, w), Error);
  CHECK_THROWS_AS(conv_transpose2d(x, some({4, 2, 3, 3}), {}, {1, 0}), Error);
}

TEST_CASE("conv2d of an empty batch") {
  const Tensor x = zeros({0, 4, 5, 6}, f32, test_device()),
               w = ones({8, 4, 3, 3}, f32, test_device());
  const Tensor y = conv2d(x, w);
  CHECK(y.shape() == Shape{0, 8, 3, 4});
  CHECK(conv2d_backward_x(y, w, x.shape()).shape() == x.shape());
  CHECK(Reference::of(conv2d_backward_w(x, y, w.shape())).values ==
        std::vector<double>(8 * 4 * 9, 0));
}
