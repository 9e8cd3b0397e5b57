#include <bs/autograd/image.h>
#include <bs/kernels/conv2d.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/image.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <array>

using namespace bs;
using namespace bs::test;

namespace {

constexpr ImageFormat formats[] = {ImageFormat::nchw, ImageFormat::nhwc, ImageFormat::chwn};

/// n, c, h and w in the order of a format.
std::array<int64_t, 4> ordered(ImageFormat format, std::array<int64_t, 4> nchw) {
  const auto [n, c, h, w] = nchw;
  if (format == ImageFormat::nchw) return {n, c, h, w};
  if (format == ImageFormat::nhwc) return {n, h, w, c};
  return {c, h, w, n};
}

Shape shape_of(ImageFormat format, const std::array<int64_t, 4>& nchw) {
  const auto [a, b, c, d] = ordered(format, nchw);
  return {a, b, c, d};
}

/// Element by element.
Reference moved(const Reference& x, ImageFormat from, ImageFormat to,
                const std::array<int64_t, 4>& size) {
  Reference y(shape_of(to, size));
  for (int64_t n = 0; n < size[0]; ++n)
    for (int64_t c = 0; c < size[1]; ++c)
      for (int64_t h = 0; h < size[2]; ++h)
        for (int64_t w = 0; w < size[3]; ++w) {
          const auto i = ordered(from, {n, c, h, w}), o = ordered(to, {n, c, h, w});
          y.at({o[0], o[1], o[2], o[3]}) = x.at({i[0], i[1], i[2], i[3]});
        }
  return y;
}

}  // namespace

TEST_CASE("relayout: every order to every other, and back") {
  const std::array<int64_t, 4> sizes[] = {{32, 32, 4, 4}, {2, 3, 5, 7},   {1, 1, 1, 1},
                                          {3, 1, 1, 2},   {1, 70, 33, 2}, {0, 3, 4, 5}};
  for (const auto& size : sizes)
    for (const ImageFormat from : formats)
      for (const ImageFormat to : formats)
        for (const DType dtype : {f32, f16, bf16, f64}) {
          CAPTURE(to_string(from));
          CAPTURE(to_string(to));
          const Tensor x = random_reference(shape_of(from, size), 1).tensor(dtype, test_device());
          const Tensor y = relayout(x, from, to);
          CHECK(y.is_contiguous());
          const Reference expected = moved(Reference::of(x), from, to, size);
          CHECK(y.shape() == expected.shape);
          CHECK(Reference::of(y).values == expected.values);
          CHECK(same_bits(relayout(y, to, from), x));
          if (from == to) CHECK(y.data() == x.data());
        }
}

TEST_CASE("relayout: gradients, views with gaps, and what it refuses") {
  check_op(
      {.name = "relayout",
       .inputs = {{2, 3, 4, 5}},
       .op =
           [](const Variables& v) { return relayout(v[0], ImageFormat::nhwc, ImageFormat::chwn); },
       .reference =
           [](const References& in) {
             return moved(in[0], ImageFormat::nhwc, ImageFormat::chwn, {2, 5, 3, 4});
           }});
  const Tensor wide = random_reference({4, 3, 6, 5}, 2).tensor(f32, test_device());
  const Tensor gaps = wide.slice(0, 0, 4, 2).slice(2, 1, 6, 2);
  CHECK(Reference::of(relayout(gaps, ImageFormat::nchw, ImageFormat::chwn)).values ==
        moved(Reference::of(gaps), ImageFormat::nchw, ImageFormat::chwn, {2, 3, 3, 5}).values);
  CHECK_THROWS_WITH_AS(relayout(zeros({2, 3, 4}), ImageFormat::chwn, ImageFormat::nchw),
                       "relayout: x [2, 3, 4] has not the four axes of chwn", Error);
  CHECK_THROWS_AS(as_image(zeros({2, 3, 4}), ImageFormat::nhwc), Error);
}

TEST_CASE("as_image: convolutions read an array of any order as the view it is") {
  const std::array<int64_t, 4> size{3, 8, 6, 5};
  const Tensor x =
      random_reference(shape_of(ImageFormat::nchw, size), 1).tensor(f64, test_device());
  const Tensor w = random_reference({4, 8, 3, 3}, 2).tensor(f64, test_device());
  const Reference y = Reference::of(conv2d(x, w));
  for (const ImageFormat format : formats) {
    const Tensor stored = relayout(x, ImageFormat::nchw, format);
    const Tensor image = as_image(stored, format);
    CHECK(image.data() == stored.data());
    CHECK(image.shape() == x.shape());
    check_close(to_string(format), Reference::of(conv2d(image, w)), y, 1e-13);
  }
}
