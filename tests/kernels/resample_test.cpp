// Average pooling, interpolation and padding: linear maps of an image's axes.
#include <bs/autograd/image.h>
#include <bs/autograd/interpolate.h>
#include <bs/autograd/pad.h>
#include <bs/autograd/pool2d.h>
#include <bs/kernels/concat.h>
#include <bs/kernels/image.h>
#include <bs/kernels/random.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <functional>
#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

using Function = std::function<Variable(const Variable&)>;
/// A pixel of a result, from the pixels (row, column) of its plane.
using Pixel =
    std::function<double(const std::function<double(int64_t, int64_t)>&, int64_t p, int64_t q)>;

Reference mapped(const Reference& x, Extent2 size, const Pixel& pixel) {
  Reference y({x.shape[0], x.shape[1], size.h, size.w});
  for (int64_t n = 0; n < y.shape[0]; ++n)
    for (int64_t c = 0; c < y.shape[1]; ++c)
      for (int64_t p = 0; p < size.h; ++p)
        for (int64_t q = 0; q < size.w; ++q)
          y.at({n, c, p, q}) = pixel(
              [&](int64_t row, int64_t column) {
                return x.at({n, c, row, column});
              },
              p, q);
  return y;
}

/// In both formats, with channels that fill vectors and that do not, with fewer planes than go
/// together on CUDA, as many, and some over.
void check_map(const char* name, Extent2 in, Extent2 out, const Function& f, const Pixel& pixel) {
  for (const Shape& shape :
       {Shape{2, 8, in.h, in.w}, Shape{1, 3, in.h, in.w}, Shape{3, 5, in.h, in.w}})
    for (const bool last : {false, true}) {
      CAPTURE(name);
      CAPTURE(to_string(shape));
      CAPTURE(last);
      check_op({.name = name,
                .inputs = {shape},
                .op =
                    [&](const Variables& v) {
                      const Variable y = f(last ? channels_last(v[0]) : v[0]);
                      CHECK(is_channels_last(y.data()) == last);
                      return y;
                    },
                .reference = [&](const References& x) { return mapped(x[0], out, pixel); }});
    }
}

}  // namespace

TEST_CASE("avg_pool2d") {
  struct Case {
    Extent2 in, out;
    AvgPool2dOptions o;
  };
  const Case cases[] = {
      {{6, 4}, {3, 2}, {.kernel = {2, 2}}},
      {{5, 7}, {3, 4}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
      {{5, 7},
       {3, 4},
       {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .count_padding = false}},
      {{6, 6}, {3, 3}, {.kernel = {3, 3}, .stride = {2, 2}, .ceil_mode = true}},
      {{7, 3}, {3, 1}, {.kernel = {1, 2}, .stride = {3, 2}}}};
  for (const Case& c : cases) {
    const auto& o = c.o;
    const Extent2 stride = {o.stride.h ? o.stride.h : 2, o.stride.w ? o.stride.w : 2};
    check_map(
        "avg_pool2d", c.in, c.out, [&](const Variable& x) { return avg_pool2d(x, o); },
        [&](const auto& x, int64_t p, int64_t q) {
          double sum = 0, count = 0;
          for (int64_t r = 0; r < o.kernel.h; ++r)
            for (int64_t s = 0; s < o.kernel.w; ++s) {
              const int64_t row = p * stride.h - o.padding.h + r;
              const int64_t column = q * stride.w - o.padding.w + s;
              if (row >= c.in.h + o.padding.h || column >= c.in.w + o.padding.w) continue;
              const bool inside = row >= 0 && row < c.in.h && column >= 0 && column < c.in.w;
              sum += inside ? x(row, column) : 0;
              count += inside || o.count_padding ? 1 : 0;
            }
          return sum / count;
        });
  }
}

TEST_CASE("adaptive_avg_pool2d") {
  for (const auto& [in, out] : {std::pair<Extent2, Extent2>{{7, 5}, {3, 2}},
                                {{4, 6}, {1, 1}},
                                {{2, 3}, {5, 4}},
                                {{6, 6}, {6, 3}}}) {
    const auto begin = [](int64_t i, int64_t n, int64_t m) { return i * n / m; };
    const auto end = [](int64_t i, int64_t n, int64_t m) { return ((i + 1) * n + m - 1) / m; };
    check_map(
        "adaptive_avg_pool2d", in, out,
        [out = out](const Variable& x) { return adaptive_avg_pool2d(x, out); },
        [&, in = in, out = out](const auto& x, int64_t p, int64_t q) {
          double sum = 0, count = 0;
          for (int64_t r = begin(p, in.h, out.h); r < end(p, in.h, out.h); ++r)
            for (int64_t s = begin(q, in.w, out.w); s < end(q, in.w, out.w); ++s) {
              sum += x(r, s);
              count += 1;
            }
          return sum / count;
        });
  }
}

TEST_CASE("adaptive_avg_pool2d_backward of one window, of any number of packs") {
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const Shape& shape : {Shape{7, 24, 8, 9}, {5, 3, 7, 11}, {33, 40, 16, 2}, {2, 1, 5, 8}})
      for (const bool last : {false, true}) {
        CAPTURE(to_string(dtype));
        CAPTURE(to_string(shape));
        CAPTURE(last);
        const Tensor dy = in_format(
            random_reference({shape[0], shape[1], 1, 1}, 3).tensor(dtype, test_device()), last);
        // Of a view, too, that begins where no vector does.
        const Tensor behind = concat({dy, dy}, 0).slice(0, 1, 1 + shape[0]);
        for (const Tensor& given : {dy, behind}) {
          const Reference of = Reference::of(given);
          Reference expected(shape);
          const auto pixels = static_cast<size_t>(shape[2] * shape[3]);
          for (size_t i = 0; i < expected.values.size(); ++i)
            expected[i] = of[i / pixels] / static_cast<double>(pixels);
          const Tensor dx = adaptive_avg_pool2d_backward(given, shape);
          check_close("gradient", Reference::of(dx), expected, epsilon(dtype));
        }
      }
}

TEST_CASE("interpolate") {
  for (const auto& [in, out] : {std::pair<Extent2, Extent2>{{3, 4}, {6, 8}},
                                {{5, 3}, {3, 7}},
                                {{4, 4}, {1, 9}},
                                {{1, 2}, {4, 5}},
                                {{2, 3}, {250, 5}}}) {
    check_map(
        "interpolate nearest", in, out,
        [out = out](const Variable& x) { return interpolate(x, {.size = out}); },
        [in = in, out = out](const auto& x, int64_t p, int64_t q) {
          return x(p * in.h / out.h, q * in.w / out.w);
        });
    for (const bool align : {false, true}) {
      const auto place = [=](int64_t o, int64_t n, int64_t m) {
        if (align) return m > 1 ? double(o) * double(n - 1) / double(m - 1) : 0;
        return std::max((double(o) + 0.5) * double(n) / double(m) - 0.5, 0.0);
      };
      check_map(
          "interpolate bilinear", in, out,
          [out = out, align](const Variable& x) {
            return interpolate(
                x, {.size = out, .mode = Interpolation::bilinear, .align_corners = align});
          },
          [&, in = in, out = out](const auto& x, int64_t p, int64_t q) {
            const double v = place(p, in.h, out.h), u = place(q, in.w, out.w);
            const auto r = int64_t(v), s = int64_t(u);
            const int64_t below = std::min(r + 1, in.h - 1), right = std::min(s + 1, in.w - 1);
            const double a = v - double(r), b = u - double(s);
            return (1 - a) * ((1 - b) * x(r, s) + b * x(r, right)) +
                   a * ((1 - b) * x(below, s) + b * x(below, right));
          });
    }
  }
}

TEST_CASE("pad") {
  const Extent2 in = {4, 3};
  for (const Padding2& b : {Padding2{.top = 1, .bottom = 2, .left = 2, .right = 0},
                            Padding2{.top = 3, .bottom = 3, .left = 2, .right = 2}})
    for (const PadMode mode : {PadMode::constant, PadMode::reflect, PadMode::replicate}) {
      const Extent2 out = {in.h + b.top + b.bottom, in.w + b.left + b.right};
      // Walks back into the image one mirror or edge at a time.
      const auto inside = [=](int64_t i, int64_t n) {
        while (i < 0 || i >= n) {
          if (mode == PadMode::replicate) return i < 0 ? int64_t{0} : n - 1;
          i = i < 0 ? -i : 2 * (n - 1) - i;
        }
        return i;
      };
      check_map(
          "pad", in, out,
          [=](const Variable& x) { return pad(x, {.padding = b, .mode = mode, .value = 1.5}); },
          [=](const auto& x, int64_t p, int64_t q) {
            const int64_t row = p - b.top, column = q - b.left;
            const bool is_inside = row >= 0 && row < in.h && column >= 0 && column < in.w;
            if (mode == PadMode::constant) return is_inside ? x(row, column) : 1.5;
            return x(inside(row, in.h), inside(column, in.w));
          });
    }
}

TEST_CASE("maps of many small planes give what they give of a few") {
  // On CUDA many are held in shared memory.
  Generator generator(5);
  const InterpolateOptions larger{.size = {16, 16}, .mode = Interpolation::bilinear};
  const PadOptions mirror{.padding = {1, 2, 1, 1}, .mode = PadMode::reflect};
  const PadOptions border{.padding = {2, 2, 3, 1}, .value = 1.5};
  const AvgPool2dOptions squares{.kernel = {2, 2}};
  for (const DType dtype : {f64, f32, f16, bf16}) {
    CAPTURE(to_string(dtype));
    const auto check = [&](Extent2 in, const std::function<Tensor(const Tensor&)>& f) {
      const Tensor x = randn({36, 64, in.h, in.w}, dtype, test_device(), generator);
      const Tensor y = f(x);
      for (const int64_t image : {0, 17, 35})
        CHECK(Reference::of(y.slice(0, image, image + 1)).values ==
              Reference::of(f(x.slice(0, image, image + 1))).values);
    };
    const auto shape = [](const Tensor& dy, Extent2 of) {
      return Shape{dy.size(0), dy.size(1), of.h, of.w};
    };
    for (const Extent2 out : {Extent2{13, 16}, {10, 12}, {31, 8}, {5, 8}, {1, 8}}) {
      const InterpolateOptions o{.size = out, .mode = Interpolation::bilinear};
      check({16, 10}, [&](const Tensor& x) { return interpolate(x, o); });
      check(out, [&](const Tensor& dy) {
        return interpolate_backward(dy, shape(dy, {16, 10}), o);
      });
    }
    // Lines between the windows, to which no gradient comes.
    const AvgPool2dOptions apart{.kernel = {1, 3}, .stride = {3, 2}};
    check({6, 8}, [&](const Tensor& dy) {
      return avg_pool2d_backward(dy, shape(dy, {16, 17}), apart);
    });
    check({6, 8}, [&](const Tensor& x) { return interpolate(x, larger); });
    check({16, 16}, [&](const Tensor& dy) {
      return interpolate_backward(dy, shape(dy, {6, 8}), larger);
    });
    check({9, 11}, [&](const Tensor& x) { return pad(x, mirror); });
    check({12, 13}, [&](const Tensor& dy) { return pad_backward(dy, shape(dy, {9, 11}), mirror); });
    check({9, 11}, [&](const Tensor& x) { return pad(x, border); });
    check({16, 16}, [&](const Tensor& x) { return avg_pool2d(x, squares); });
    check({8, 8}, [&](const Tensor& dy) {
      return avg_pool2d_backward(dy, shape(dy, {16, 16}), squares);
    });
  }
}

TEST_CASE("enlarged channels of many images are those of a few") {
  // On CUDA threads of many walk down a column.
  Generator generator(7);
  const InterpolateOptions larger{.size = {13, 10}, .mode = Interpolation::bilinear};
  for (const DType dtype : {f64, f32, f16, bf16}) {
    CAPTURE(to_string(dtype));
    const Tensor x = channels_last(randn({1100, 64, 7, 5}, dtype, test_device(), generator));
    const Tensor y = interpolate(x, larger);
    for (const int64_t image : {0, 611, 1099})
      CHECK(Reference::of(y.slice(0, image, image + 1)).values ==
            Reference::of(interpolate(x.slice(0, image, image + 1), larger)).values);
  }
}

TEST_CASE("images too large for a thread to hold") {
  const Reference whole = random_reference({1, 2, 190, 110}, 3);
  for (const DType dtype : {f64, f32, bf16}) {
    CAPTURE(to_string(dtype));
    const Tensor x = whole.tensor(dtype, test_device());
    const Reference seen = Reference::of(x);
    Reference means({1, 2, 1, 5}), spread({1, 2, 190, 110});
    for (int64_t c = 0; c < 2; ++c)
      for (int64_t p = 0; p < 190; ++p)
        for (int64_t q = 0; q < 110; ++q)
          means.at({0, c, 0, q / 22}) += seen.at({0, c, p, q}) / (190 * 22);
    const Tensor y = adaptive_avg_pool2d(x, {1, 5});
    check_close("means", Reference::of(y), means, 2 * epsilon(dtype) + 1e-6);
    const Reference given = Reference::of(y);
    for (int64_t c = 0; c < 2; ++c)
      for (int64_t p = 0; p < 190; ++p)
        for (int64_t q = 0; q < 110; ++q)
          spread.at({0, c, p, q}) = given.at({0, c, 0, q / 22}) / (190 * 22);
    check_close("gradient", Reference::of(adaptive_avg_pool2d_backward(y, x.shape())), spread,
                epsilon(dtype) / 190);
  }
}

TEST_CASE("what is not finite stays where it has a weight") {
  Reference x({1, 8, 3, 3});
  for (int64_t c = 0; c < 8; ++c) x.at({0, c, 1, 1}) = std::numeric_limits<double>::infinity();
  const Tensor in = channels_last(x.tensor(f32, test_device()));
  const InterpolateOptions same{
      .size = {3, 3}, .mode = Interpolation::bilinear, .align_corners = true};
  const Reference y = Reference::of(interpolate(in, same));
  for (size_t i = 0; i < y.values.size(); ++i) CHECK(y[i] == x[i]);
}

TEST_CASE("image maps of nothing, and what they refuse") {
  const Tensor none = Tensor::empty({0, 3, 4, 4}, f32, test_device());
  CHECK(pad(none, {.padding = {.top = 1}}).shape() == Shape{0, 3, 5, 4});
  const Tensor x = Tensor::empty({1, 3, 4, 4}, f32, test_device());
  CHECK_THROWS_WITH(pad(x, {.padding = {.left = 4}, .mode = PadMode::reflect}),
                    "pad: 4 and 0 elements cannot be reflected from 4");
  CHECK_THROWS_WITH(pad(x, {.padding = {.top = -1}}), "pad: padding -1 and 0 is negative");
  CHECK_THROWS_WITH(interpolate(x, {.size = {0, 2}}),
                    "interpolate: x [1, 3, 4, 4] cannot become 0 x 2 pixels");
  CHECK_THROWS_WITH(avg_pool2d(x, {.kernel = {5, 5}}),
                    "avg_pool2d: a window of 5 does not fit 4 elements and padding 0");
  CHECK_THROWS_WITH(adaptive_avg_pool2d(x, {0, 1}),
                    "adaptive_avg_pool2d: 0 x 1 windows of x [1, 3, 4, 4]");
  CHECK_THROWS_WITH(avg_pool2d(Tensor::empty({1, 1, 1, 1 << 22}, f32, test_device()),
                               {.kernel = {1, 1 << 20}, .stride = {1, 1}}),
                    "avg_pool2d: 3145729 windows of 1048576 elements along an axis are more than "
                    "2147483647");
}

TEST_CASE("gradients of image maps refuse another number of images or channels") {
  const Tensor dy = Tensor::empty({2, 3, 2, 2}, f32, test_device());
  const auto refused = [](const char* op, const Shape& x) {
    return std::string(op) + ": dy [2, 3, 2, 2] does not have the images and channels of x " +
           to_string(x);
  };
  for (const Shape& x : {Shape{4, 3, 4, 4}, Shape{2, 5, 4, 4}, Shape{3, 2, 4, 4}}) {
    CHECK_THROWS_WITH(avg_pool2d_backward(dy, x, {.kernel = {2, 2}}),
                      refused("avg_pool2d_backward", x).c_str());
    CHECK_THROWS_WITH(adaptive_avg_pool2d_backward(dy, x),
                      refused("adaptive_avg_pool2d_backward", x).c_str());
    CHECK_THROWS_AS(adaptive_avg_pool2d_backward(dy.slice(2, 0, 1).slice(3, 0, 1), x), Error);
    CHECK_THROWS_WITH(interpolate_backward(dy, x, {.size = {2, 2}}),
                      refused("interpolate_backward", x).c_str());
    const Shape inner = {x[0], x[1], 1, 1};
    CHECK_THROWS_WITH(
        pad_backward(dy, inner, {.padding = {.top = 1, .left = 1}, .mode = PadMode::replicate}),
        refused("pad_backward", inner).c_str());
  }
}
