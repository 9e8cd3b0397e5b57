#include <bs/interop/xtensor.h>
#include <bs/kernels.h>
#include <doctest/doctest.h>

#include <cmath>
#include <xtensor/xbuilder.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xsort.hpp>
#include <xtensor/xview.hpp>

using namespace bs;

namespace {

Tensor counting(const Shape& shape, DType dtype = f32) {
  return arange(shape.product(), dtype).view(shape);
}

}  // namespace

TEST_CASE("xtensor reads a tensor where it lies") {
  const Tensor x = counting({2, 3, 4});
  const auto view = to_xtensor<float>(x);
  CHECK(view.dimension() == 3);
  CHECK(view.storage().data() == x.data<float>());
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < 3; ++j)
      for (size_t k = 0; k < 4; ++k) CHECK(view(i, j, k) == static_cast<float>(12 * i + 4 * j + k));
}

TEST_CASE("xtensor follows strides: turned, sliced, expanded, one element, none") {
  const Tensor x = counting({4, 6}, f64);
  for (const Tensor& t :
       {x, x.transpose(0, 1), x.slice(0, 1, 4, 2), x.slice(1, 2, 3), x.select(1, 5),
        x.slice(1, 0, 1).expand({4, 3}), x.slice(0, 0, 0), x.select(0, 1).select(0, 2)}) {
    CAPTURE(t.shape());
    const auto view = to_xtensor<double, xt::layout_type::dynamic>(t);
    const Tensor copied = contiguous(t);
    const auto* expected = copied.data<double>();
    CHECK(static_cast<int64_t>(view.size()) == t.numel());
    int64_t at = 0;
    for (const double value : view) CHECK(value == expected[at++]);
    CHECK(at == t.numel());
  }
}

TEST_CASE("xtensor writes through to the tensor") {
  const Tensor x = counting({3, 4}, i64);
  auto view = to_xtensor<int64_t, xt::layout_type::dynamic>(x.transpose(0, 1));
  xt::row(view, 2) = 7;
  view(0, 1) = -1;
  CHECK(equal(x, Tensor::from<int64_t>({0, 1, 7, 3, -1, 5, 7, 7, 8, 9, 7, 11}, {3, 4})));
}

TEST_CASE("an expression is written to a view of any strides") {
  const Tensor x = zeros({3, 4});
  const xt::xarray<float> values = {{1, 2, 3}, {4, 5, 6}};
  auto view = to_xtensor<float, xt::layout_type::dynamic>(x.slice(1, 0, 4, 2).transpose(0, 1));
  xt::noalias(view) = 2.0F * values;
  CHECK(equal(x, Tensor::from<float>({2, 0, 8, 0, 4, 0, 10, 0, 6, 0, 12, 0}, {3, 4})));
}

TEST_CASE("files: xtensor") {
  const Tensor x = arange(6, f32).view({2, 3});

  const auto array = to_xtensor<float>(x);  // the same memory
  const Tensor means = from_xtensor(xt::mean(array, {1}));

  CHECK(equal(means, Tensor::from<float>({1, 4})));
}

TEST_CASE("an axis of one element broadcasts") {
  const Tensor column = counting({3, 1}), row = counting({1, 4}).slice(0, 0, 1);
  const Tensor both = from_xtensor(to_xtensor<float>(column) * 10.0F + to_xtensor<float>(row));
  CHECK(equal(both, Tensor::from<float>({0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23}, {3, 4})));
}

TEST_CASE("the view keeps the memory alive") {
  auto view = to_xtensor<float>(counting({1000}));
  const Tensor next = full({1000}, -1);  // would take the memory that were free
  CHECK(view(999) == 999.0F);
}

TEST_CASE("expressions become tensors of the type that holds their values") {
  const auto x = to_xtensor<float>(counting({2, 3}));
  const auto check = [](const Tensor& t, DType dtype, const Shape& shape, double last) {
    CHECK(t.dtype() == dtype);
    CHECK(t.shape() == shape);
    CHECK(t.is_contiguous());
    CHECK(t.flatten().select(0, -1).item() == last);
  };
  check(from_xtensor(xt::sqrt(x) + 1.0F), f32, {2, 3}, std::sqrt(5.0F) + 1.0F);
  check(from_xtensor(xt::cast<double>(x) / 2.0), f64, {2, 3}, 2.5);
  check(from_xtensor(x > 2.0F), boolean, {2, 3}, 1);
  check(from_xtensor(xt::argmax(x, 1)), i64, {2}, 2);
  check(from_xtensor(xt::cast<int16_t>(x)), i32, {2, 3}, 5);
  check(from_xtensor(xt::cast<uint8_t>(x)), u8, {2, 3}, 5);
  check(from_xtensor(xt::cast<uint32_t>(x)), i64, {2, 3}, 5);
  check(from_xtensor(xt::view(x, xt::all(), 1)), f32, {2}, 4);
  const xt::xarray<float> none = xt::zeros<float>(std::vector<size_t>{3, 0, 2});
  CHECK(from_xtensor(none + 1.0F).shape() == Shape{3, 0, 2});
  const xt::xtensor<double, 2, xt::layout_type::column_major> turned = {{1, 2}, {3, 4}};
  CHECK(equal(from_xtensor(turned), Tensor::from<double>({1, 2, 3, 4}, {2, 2})));
}

TEST_CASE("an array that is handed over is not copied") {
  xt::xarray<float> array = xt::arange<float>(12).reshape({3, 4});
  const float* data = array.data();
  const Tensor x = from_xtensor(std::move(array));
  CHECK(x.data<float>() == data);
  CHECK(equal(x, counting({3, 4})));
}

TEST_CASE("16-bit elements go both ways") {
  for (const DType dtype : {f16, bf16}) {
    const Tensor x = cast(counting({5}), dtype);
    if (dtype == f16)
      CHECK(equal(from_xtensor(to_xtensor<half>(x)), x));
    else
      CHECK(equal(from_xtensor(to_xtensor<bfloat16>(x)), x));
  }
}

TEST_CASE("to_xtensor and from_xtensor say what they refuse") {
  CHECK_THROWS_WITH_AS(to_xtensor<float>(Tensor()), "to_xtensor: an undefined tensor", Error);
  CHECK_THROWS_AS(to_xtensor<double>(counting({2})), Error);
  const Tensor reversed = counting({3}).slice(0, 2, 3).as_strided({3}, {-1});
  CHECK_THROWS_WITH_AS((to_xtensor<float, xt::layout_type::dynamic>(reversed)),
                       "to_xtensor: stride -1 of axis 0 is negative", Error);
  CHECK_THROWS_WITH_AS(to_xtensor<float>(counting({2, 3}).transpose(0, 1)),
                       "to_xtensor: shape [3, 2] with strides [1, 3] is not contiguous: call "
                       "contiguous(), or ask for the layout `dynamic`",
                       Error);
  const xt::xarray<float> deep = xt::zeros<float>(std::vector<size_t>(9, 1));
  CHECK_THROWS_WITH_AS(from_xtensor(deep), "from_xtensor: 9 axes, the most are 8", Error);
}
