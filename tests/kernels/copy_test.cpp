#include <bs/kernels/copy.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>

using namespace bs;
using namespace bs::test;

namespace {

constexpr std::array every_dtype = {boolean, u8, i32, i64, f16, bf16, f32, f64};

/// Small whole numbers, which every dtype but bool holds.
Reference numbers(const Shape& shape) {
  Reference r(shape);
  for (size_t i = 0; i < r.values.size(); ++i) r[i] = static_cast<double>(i * 7 % 101);
  return r;
}

void check_equal(const Tensor& actual, const Tensor& expected) {
  const Reference a = Reference::of(actual);
  const Reference b = Reference::of(expected);
  CHECK(a.shape == b.shape);
  CHECK(a.values == b.values);
}

}  // namespace

TEST_CASE("copies of permuted views, in every dtype") {
  for (const DType dtype : every_dtype)
    for (const Shape& shape :
         {Shape{1, 1, 1}, Shape{3, 33, 65}, Shape{2, 64, 1}, Shape{70, 2, 31}}) {
      const Tensor x = numbers(shape).tensor(dtype, test_device());
      for (const Dims& axes : {Dims{0, 2, 1}, Dims{2, 1, 0}, Dims{1, 0, 2}, Dims{2, 0, 1}}) {
        const Tensor y = clone(x.permute(axes));
        CHECK(y.is_contiguous());
        check_equal(y, x.permute(axes));
      }
    }
}

TEST_CASE("copies of views of four axes, in every order") {
  for (const DType dtype : {u8, bf16, f32, f64})
    for (const Shape& shape : {Shape{4, 6, 20, 16}, Shape{3, 40, 2, 24}, Shape{5, 3, 7, 4}}) {
      const Tensor x = numbers(shape).tensor(dtype, test_device());
      std::array<int64_t, 4> axes = {0, 1, 2, 3};
      do {
        const Tensor view = x.permute(Dims(std::span<const int64_t>(axes)));
        check_equal(clone(view), view);
      } while (std::next_permutation(axes.begin(), axes.end()));
    }
}

TEST_CASE("matrices are turned, whatever lines they have") {
  for (const DType dtype : {f16, bf16, f32, i32})
    for (const Shape& shape : {Shape{64, 64}, Shape{2, 16, 24}, Shape{72, 200}, Shape{3, 136, 8},
                               Shape{130, 64}, Shape{64, 70}, Shape{1, 640, 320}}) {
      const Tensor x = numbers(shape).tensor(dtype, Device::cpu());
      const Tensor moved = x.to(test_device());
      const Tensor turned = clone(moved.transpose(-2, -1));
      CHECK(turned.is_contiguous());
      check_equal(turned.to(Device::cpu()), x.transpose(-2, -1));
      // Lines that lie at odd places, and results inside a larger matrix.
      for (const int64_t first : {1, 8}) {
        const int64_t end = shape[-1];
        if (first >= end) continue;
        check_equal(clone(moved.slice(-1, first, end).transpose(-2, -1)).to(Device::cpu()),
                    x.slice(-1, first, end).transpose(-2, -1));
      }
      Shape around = shape;
      around[-2] = shape[-1] + 8;
      around[-1] = shape[-2] + 16;
      const Tensor target = Reference(around).tensor(dtype, test_device());
      const auto inside = [&](const Tensor& t) {
        return t.slice(-2, 0, shape[-1]).slice(-1, 8, 8 + shape[-2]);
      };
      copy(moved.transpose(-2, -1), inside(target));
      const Tensor result = target.to(Device::cpu());
      check_equal(inside(result), x.transpose(-2, -1));
      check_equal(result.slice(-1, 0, 8),
                  Reference(result.slice(-1, 0, 8).shape()).tensor(dtype, Device::cpu()));
    }
}

TEST_CASE("copies into views leave what lies between them") {
  const Tensor x = numbers({40, 70}).tensor(f32, test_device());
  const Tensor y = Reference({70, 80}).tensor(f32, test_device());
  copy(x.transpose(0, 1), y.slice(1, 1, 80, 2));
  check_equal(y.slice(1, 1, 80, 2), x.transpose(0, 1));
  check_equal(y.slice(1, 0, 80, 2), Reference({70, 40}).tensor(f32, test_device()));
  copy(x.slice(0, 0, 1).expand({40, 70}), y.slice(0, 0, 40).slice(1, 0, 70));
  check_equal(y.slice(0, 7, 8).slice(1, 0, 70), x.slice(0, 0, 1));
  const Tensor column = x.slice(1, 3, 4);
  check_equal(clone(column.expand({40, 50})), column.expand({40, 50}));
}

TEST_CASE("casts between all dtypes") {
  const Reference r = numbers({3, 35});
  for (const DType from : every_dtype)
    for (const DType to : every_dtype) {
      const Tensor x = r.tensor(from, test_device());
      Reference expected = Reference::of(x);
      if (to == boolean)
        for (double& v : expected.values) v = v != 0;
      const Tensor y = cast(x, to);
      CHECK(y.dtype() == to);
      CHECK(Reference::of(y).values == expected.values);
      CHECK(Reference::of(cast(x.transpose(0, 1), to)).at({34, 2}) == expected.at({2, 34}));
    }
}

TEST_CASE("casts to 16 bits round to nearest even") {
  const Tensor x = Tensor::from<float>({1 + 0x1p-11F, 1 + 3 * 0x1p-11F, 65520, 1e-8F});
  CHECK(Reference::of(cast(x.to(test_device()), f16)).values ==
        std::vector<double>{1, 1 + 0x1p-9, std::numeric_limits<double>::infinity(), 0});
  const Tensor y = Tensor::from<float>({1 + 0x1p-8F, 1 + 3 * 0x1p-8F, -1 - 0x1p-8F});
  CHECK(Reference::of(cast(y.to(test_device()), bf16)).values ==
        std::vector<double>{1, 1 + 0x1p-6, -1});
}

TEST_CASE("copy refuses what does not fit") {
  CHECK_THROWS_WITH_AS(copy(Tensor::empty({2, 3}, f32), Tensor::empty({3, 2}, f32)),
                       "copy: shapes [2, 3] and [3, 2] differ", Error);
}
