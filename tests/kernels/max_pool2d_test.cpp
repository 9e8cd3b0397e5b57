#include <bs/autograd/image.h>
#include <bs/autograd/pool2d.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/image.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

/// Windows as PyTorch counts them, stated anew.
int64_t outputs(int64_t n, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation,
                bool ceil_mode) {
  int64_t count = 0;
  for (int64_t first = -pad;; first += stride, ++count) {
    const int64_t last = first + dilation * (kernel - 1);
    const bool fits = last < n + pad;
    const bool begins = first < n && last - stride < n + pad - 1 && ceil_mode;
    if (!fits && !begins) return count;
  }
}

/// The maxima and, where asked for, which of a window they were: of those alike the first, or the
/// last NaN.
Reference pooled(const Reference& x, const MaxPool2dOptions& o, Reference* winners = nullptr) {
  const Extent2 stride = {o.stride.h ? o.stride.h : o.kernel.h,
                          o.stride.w ? o.stride.w : o.kernel.w};
  const int64_t h = x.shape[2], w = x.shape[3];
  Reference y({x.shape[0], x.shape[1],
               outputs(h, o.kernel.h, stride.h, o.padding.h, o.dilation.h, o.ceil_mode),
               outputs(w, o.kernel.w, stride.w, o.padding.w, o.dilation.w, o.ceil_mode)});
  if (winners) *winners = Reference(y.shape);
  for (int64_t n = 0; n < y.shape[0]; ++n)
    for (int64_t c = 0; c < y.shape[1]; ++c)
      for (int64_t p = 0; p < y.shape[2]; ++p)
        for (int64_t q = 0; q < y.shape[3]; ++q) {
          double best = -std::numeric_limits<double>::infinity();
          int64_t winner = -1;
          for (int64_t r = 0; r < o.kernel.h; ++r)
            for (int64_t s = 0; s < o.kernel.w; ++s) {
              const int64_t row = p * stride.h - o.padding.h + r * o.dilation.h;
              const int64_t column = q * stride.w - o.padding.w + s * o.dilation.w;
              if (row < 0 || row >= h || column < 0 || column >= w) continue;
              const double v = x.at({n, c, row, column});
              if (winner >= 0 && !(v > best || std::isnan(v))) continue;
              best = v;
              winner = r * o.kernel.w + s;
            }
          y.at({n, c, p, q}) = best;
          if (winners) winners->at({n, c, p, q}) = static_cast<double>(winner);
        }
  return y;
}

}  // namespace

TEST_CASE("max_pool2d") {
  struct Case {
    Shape shape;
    MaxPool2dOptions options;
  };
  const Case cases[] = {
      {{2, 8, 6, 6}, {.kernel = {2, 2}}},
      {{2, 16, 7, 5}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
      {{1, 3, 7, 8}, {.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 0}}},
      {{2, 5, 9, 9}, {.kernel = {2, 3}, .stride = {2, 2}, .dilation = {3, 2}}},
      {{3, 5, 6, 5}, {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}}},
      {{1, 8, 6, 7}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .ceil_mode = true}},
      {{1, 1, 1, 1}, {.kernel = {1, 1}}},
      {{3, 2, 4, 4}, {.kernel = {4, 4}}},
      {{0, 2, 4, 4}, {.kernel = {2, 2}}}};
  for (const Case& c : cases)
    for (const bool last : {false, true}) {
      CAPTURE(to_string(c.shape));
      CAPTURE(last);
      // In 16 bits several elements of a window may be the largest. A gradient is a sum of up to
      // nine.
      check_op({.name = "max_pool2d",
                .inputs = {c.shape},
                .op =
                    [&](const Variables& v) {
                      const Variable y = max_pool2d(last ? channels_last(v[0]) : v[0], c.options);
                      CHECK(is_channels_last(y.data()) == (last || c.shape[1] == 1));
                      return y;
                    },
                .reference = [&](const References& in) { return pooled(in[0], c.options); },
                .steps = 8,
                .dtypes = {f64, f32}});
      check_op({.name = "max_pool2d, exactly",
                .inputs = {c.shape},
                .op =
                    [&](const Variables& v) {
                      return max_pool2d(last ? channels_last(v[0]) : v[0], c.options);
                    },
                .reference = [&](const References& in) { return pooled(in[0], c.options); },
                .steps = 0,
                .differentiable = false,
                .dtypes = {f64, f32, f16, bf16}});
    }
}

TEST_CASE("max_pool2d gives a tie to the first, and NaN wins") {
  Reference x({1, 1, 2, 4});
  x.values = {1, 1, -std::numeric_limits<double>::infinity(), 0,
              1, 1, std::numeric_limits<double>::quiet_NaN(), 5};
  for (const DType dtype : {f64, f32, f16, bf16}) {
    const MaxPool2dOptions options{.kernel = {2, 2}};
    const MaxPool2dResult r = max_pool2d(x.tensor(dtype, test_device()), options);
    CHECK(Reference::of(r.y)[0] == 1);
    CHECK(std::isnan(Reference::of(r.y)[1]));
    Reference dy({1, 1, 1, 2});
    dy.values = {3, 4};
    const Reference dx = Reference::of(
        max_pool2d_backward(dy.tensor(dtype, test_device()), r.winner, x.shape, options));
    CHECK(dx.values == std::vector<double>{3, 0, 0, 0, 0, 0, 4, 0});
  }
}

TEST_CASE("max_pool2d finds the same values and winners in planes and in channels") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const MaxPool2dOptions all[] = {
      {.kernel = {2, 2}, .stride = {2, 1}, .padding = {1, 0}},
      {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}},
      {.kernel = {2, 4}, .stride = {1, 1}, .padding = {1, 2}},
      {.kernel = {2, 5}, .stride = {3, 3}, .padding = {0, 2}, .dilation = {2, 2}},
      {.kernel = {6, 5}, .stride = {4, 2}, .padding = {3, 1}, .ceil_mode = true}};
  int number = 0;
  // Single planes and channels, packs of both, planes that blocks hold, and channels that are whole
  // pieces or not.
  for (const Shape& shape :
       {Shape{2, 3, 45, 331}, Shape{2, 8, 23, 38}, Shape{17, 64, 20, 32}, Shape{2, 83, 11, 8}}) {
    CAPTURE(to_string(shape));
    Reference x(shape);
    for (size_t i = 0; i < x.values.size(); ++i) {
      x[i] = static_cast<double>(i * 7919 % 13);  // many ties
      if (i / 40 % 3 == 0) x[i] = -infinity;      // windows of nothing else
      if (i % 1999 == 0) x[i] = std::numeric_limits<double>::quiet_NaN();
    }
    for (const MaxPool2dOptions& options : all)
      for (const DType dtype : {f64, f32, f16, bf16}) {
        if (!is_sampled(number++)) continue;
        const Tensor planes = x.tensor(dtype, test_device());
        const MaxPool2dResult y = max_pool2d(planes, options);
        const MaxPool2dResult z = max_pool2d(in_format(planes, true), options);
        Reference first;
        const Reference expected = pooled(x, options, &first);
        size_t wrong = 0;
        for (const Tensor& maxima : {y.y, z.y, max_pool2d_values(planes, options),
                                     max_pool2d_values(in_format(planes, true), options)}) {
          const Reference values = Reference::of(maxima);
          for (size_t i = 0; i < values.values.size(); ++i) {
            const bool both_nan = std::isnan(values[i]) && std::isnan(expected[i]);
            wrong += !both_nan && values[i] != expected[i];
          }
        }
        CHECK(wrong == 0);
        CHECK(Reference::of(y.winner).values == first.values);
        CHECK(Reference::of(z.winner).values == first.values);
        const Tensor dy = cast(y.winner, dtype);
        const Tensor dx = max_pool2d_backward(dy, y.winner, x.shape, options);
        CHECK(Reference::of(dx).values ==
              Reference::of(max_pool2d_backward(in_format(dy, true), z.winner, x.shape, options))
                  .values);
      }
  }
}

TEST_CASE("max_pool2d of windows far apart takes no more memory than the image") {
  for (const int64_t stride : {int64_t{40}, int64_t{4000}, int64_t{1} << 24})
    for (const Shape& shape : {Shape{1, 1, 64, 64}, Shape{3, 2, 90, 41}}) {
      CAPTURE(stride);
      const MaxPool2dOptions options{
          .kernel = {2, 3}, .stride = {stride, stride}, .padding = {1, 1}};
      const Reference x = random_reference(shape, 7);
      Reference winners;
      const Tensor in = x.tensor(f32, test_device());
      const Reference expected = pooled(Reference::of(in), options, &winners);
      const MaxPool2dResult r = max_pool2d(in, options);
      CHECK(Reference::of(r.y).values == expected.values);
      CHECK(Reference::of(r.winner).values == winners.values);
      CHECK(Reference::of(max_pool2d_values(in, options)).values == expected.values);
    }
}

TEST_CASE("max_pool2d_backward of winners that are of no window") {
  const MaxPool2dOptions small{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
  const MaxPool2dOptions large{.kernel = {6, 6}, .stride = {2, 2}, .padding = {3, 3}};
  struct Wrong {
    MaxPool2dOptions options;
    int middle;                ///< an element that each window has
    std::vector<int> numbers;  ///< above, beside, or no elements of the first window
  };
  for (const Wrong& wrong :
       {Wrong{small, 4, {0, 2, 6, 9, 255}}, Wrong{large, 21, {0, 12, 17, 32, 36, 255}}})
    for (const int64_t channels : {1, 5, 64})
      for (const int number : wrong.numbers)
        for (const DType dtype : {f64, f32, f16, bf16})
          for (const bool last : {false, true}) {
            const Shape image = {2, channels, 7, 7}, result = {2, channels, 4, 4};
            INFO("channels " << channels << ", number " << number << ", last " << last);
            Reference winners(result), ones(result);
            for (double& v : winners.values) v = wrong.middle;
            for (double& v : ones.values) v = 1;
            const Tensor dy = in_format(ones.tensor(dtype, test_device()), last);
            const Tensor right = in_format(winners.tensor(u8, test_device()), last);
            winners.at({1, channels - 1, 0, 0}) = number;
            const Tensor of = in_format(winners.tensor(u8, test_device()), last);
            const auto sum_of = [&](const Tensor& winner) {
              double sum = 0;
              const Tensor dx = max_pool2d_backward(dy, winner, image, wrong.options);
              for (const double v : Reference::of(dx).values) sum += v;
              return sum;
            };
            const auto all = static_cast<double>(ones.values.size());
            CHECK(sum_of(right) == all);
            if (test_device().is_cpu()) {
              CHECK_THROWS_AS(max_pool2d_backward(dy, of, image, wrong.options), Error);
            } else {  // all others hand out what they have
              CHECK(sum_of(of) == all - 1);
            }
          }
  if (!test_device().is_cpu()) return;
  const Tensor dy = Tensor::empty({1, 2, 4, 4}, f32);
  const Tensor winners = Tensor::from<uint8_t>(std::vector<uint8_t>(32, 0), {1, 2, 4, 4});
  CHECK_THROWS_WITH_AS(max_pool2d_backward(dy, winners, {1, 2, 7, 7}, small),
                       "max_pool2d_backward: winners of image 0 of [2, 7, 7, 1] lie outside of it",
                       Error);
}

TEST_CASE("max_pool2d says what is wrong") {
  const Tensor x = Tensor::empty({2, 3, 4, 4}, f32, test_device());
  CHECK_THROWS_WITH(max_pool2d(x, {.kernel = {17, 17}}),
                    "max_pool2d: a kernel of 17 x 17 does not have 1 to 256 elements");
  CHECK_THROWS_WITH(max_pool2d(x, {.kernel = {5, 2}}),
                    "max_pool2d: a window of 5 does not fit 4 elements and padding 0");
  CHECK_THROWS_WITH(max_pool2d(x, {.kernel = {2, 2}, .padding = {2, 0}}),
                    "max_pool2d: padding 2 is not in [0, 2 / 2]");
  CHECK_THROWS_WITH(max_pool2d(x.select(0, 0), {.kernel = {2, 2}}),
                    "max_pool2d: x [3, 4, 4] is no [N, C, H, W]");
}
