#include <bs/kernels/accumulate.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
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
    for (const Shape& shape :
         {Shape{4, 6, 20, 16}, Shape{3, 40, 2, 24}, Shape{5, 3, 7, 4}, Shape{4, 40, 2, 64}}) {
      const Tensor x = numbers(shape).tensor(dtype, test_device());
      std::array<int64_t, 4> axes = {0, 1, 2, 3};
      do {
        const Tensor view = x.permute(Dims(std::span<const int64_t>(axes)));
        check_equal(clone(view), view);
      } while (std::next_permutation(axes.begin(), axes.end()));
    }
}

TEST_CASE("copies of views of five axes, and of rows that repeat") {
  for (const DType dtype : {u8, bf16, f32, f64}) {
    const Tensor x = numbers({2, 3, 2, 3, 16}).tensor(dtype, test_device());
    for (const Dims& axes : {Dims{3, 1, 0, 2, 4}, Dims{2, 0, 3, 1, 4}, Dims{1, 0, 2, 3, 4}})
      check_equal(clone(x.permute(axes)), x.permute(axes));
    for (const Shape& shape : {Shape{1, 3, 16}, Shape{3, 1, 16}, Shape{5, 3, 1, 16}}) {
      const Tensor rows = numbers(shape).tensor(dtype, test_device());
      Shape wide = shape;
      for (int axis = 0; axis < wide.rank(); ++axis) wide[axis] = wide[axis] == 1 ? 4 : wide[axis];
      check_equal(clone(rows.expand(wide)), rows.expand(wide));
    }
  }
  // So many elements that the copies of a stretch are written one after the other.
  const Tensor many = numbers({1, 1025, 2048}).tensor(bf16, test_device());
  check_equal(clone(many.expand({3, 1025, 2048})), many.expand({3, 1025, 2048}));
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

TEST_CASE("every second element, of lines that are whole vectors and others") {
  for (const DType dtype : every_dtype)
    for (const Shape& shape : {Shape{640}, Shape{3, 128}, Shape{2, 5, 64}, Shape{4, 66},
                               Shape{3, 24}, Shape{20008}, Shape{2, 8200}}) {
      const Tensor x = numbers(shape).tensor(dtype, Device::cpu()), moved = x.to(test_device());
      for (const int64_t cut : {0, 1, 2, 16, 32, 33}) {
        if (cut >= shape[-1]) continue;
        const auto seconds = [&](const Tensor& t) { return t.slice(-1, cut, shape[-1], 2); };
        check_equal(clone(seconds(moved)).to(Device::cpu()), seconds(x));
      }
    }
  // Memory that ends with the last element of the view, once and for several rows.
  const Tensor x = numbers({639}).tensor(bf16, Device::cpu()), moved = x.to(test_device());
  for (const Shape& shape : {Shape{320}, Shape{3, 320}}) {
    const auto seconds = [&](const Tensor& t) { return t.slice(0, 0, 639, 2).expand(shape); };
    check_equal(clone(seconds(moved)).to(Device::cpu()), seconds(x));
  }
}

TEST_CASE("neighbours that begin where no vector does") {
  for (const DType dtype : every_dtype)
    for (const Shape& shape : {Shape{97}, Shape{3, 97}, Shape{2, 5, 64}, Shape{4, 65}}) {
      const Tensor x = numbers(shape).tensor(dtype, Device::cpu()), moved = x.to(test_device());
      for (int64_t cut = 0; cut <= 17; ++cut)
        for (const int64_t length : {16, 32, 33}) {
          const auto part = [&](const Tensor& t) { return t.slice(-1, cut, cut + length); };
          check_equal(clone(part(moved)).to(Device::cpu()), part(x));
        }
      if (shape.rank() > 1) {  // each line begins elsewhere
        const auto inner = [&](const Tensor& t) { return t.slice(-2, 1, 3).slice(-1, 1, 49); };
        check_equal(clone(inner(moved)).to(Device::cpu()), inner(x));
      }
    }
  // Memory that begins or ends with an element of the view, once and for several rows.
  for (const DType dtype : {u8, bf16, f32, f64}) {
    const Tensor x = numbers({333}).tensor(dtype, Device::cpu()), moved = x.to(test_device());
    for (const Shape& shape : {Shape{320}, Shape{3, 320}})
      for (const int64_t cut : {0, 1, 13}) {
        const auto part = [&](const Tensor& t) { return t.slice(0, cut, cut + 320).expand(shape); };
        check_equal(clone(part(moved)).to(Device::cpu()), part(x));
      }
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

TEST_CASE("contiguous copies of some megabytes, of any length and from anywhere") {
  constexpr int64_t megabyte = int64_t{1} << 20;
  for (const DType dtype : {u8, bf16, f32, f64})
    for (const int64_t more : {-1, 0, 1, 1003})
      for (const int64_t first : {0, 16, 1}) {
        const auto size = static_cast<int64_t>(size_of(dtype)), count = megabyte / size + more;
        const Tensor host = Tensor::empty({first + count}, dtype);
        auto* const bytes = static_cast<unsigned char*>(host.data());
        for (int64_t i = 0; i < (first + count) * size; ++i)
          bytes[i] = static_cast<unsigned char>(i * 2654435761 >> 13);
        const Tensor x = to(host, test_device()).slice(0, first, first + count);
        const Tensor y = to(clone(x), Device::cpu());
        CAPTURE(count);
        REQUIRE(std::memcmp(y.data(), bytes + first * size, static_cast<size_t>(count * size)) ==
                0);
      }
}

TEST_CASE("many rows of a few bytes") {
  for (const DType dtype : every_dtype)
    for (const int64_t bytes : {8, 16, 24, 32, 64, 128, 136}) {
      CAPTURE(to_string(dtype));
      CAPTURE(bytes);
      const int64_t n = bytes / static_cast<int64_t>(size_of(dtype));
      const Tensor x = numbers({5001, n + 1}).tensor(dtype, test_device()).slice(1, 1, n + 1);
      check_equal(clone(x), x);
      const Tensor y = full({5001, n + 2}, 1, dtype, test_device());
      copy(x, y.slice(1, 1, n + 1));
      check_equal(y.slice(1, 1, n + 1), x);
      check_equal(y.slice(1, n + 1, n + 2), full({5001, 1}, 1, dtype, test_device()));
      check_equal(y.slice(1, 0, 1), full({5001, 1}, 1, dtype, test_device()));
    }
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

TEST_CASE("casts of matrices whose axes are exchanged") {
  for (const Shape& shape : {Shape{64, 64}, Shape{16, 24}, Shape{2, 72, 136}, Shape{3, 65, 80}})
    for (const DType from : {f32, f16, bf16, f64})
      for (const DType to : {f32, f16, bf16, f64}) {
        const Tensor x = numbers(shape).tensor(from, test_device()).transpose(-2, -1);
        Reference expected = Reference::of(x);
        CAPTURE(shape);
        CAPTURE(from);
        CAPTURE(to);
        CHECK(Reference::of(cast(x, to)).values == expected.values);
        const Tensor inner = x.slice(-1, 8, shape[shape.rank() - 2]);
        CHECK(Reference::of(cast(inner, to)).values == Reference::of(inner).values);
        const Tensor swapped = Tensor::empty(shape, to, test_device());
        copy(x, swapped.transpose(-2, -1));
        CHECK(Reference::of(swapped.transpose(-2, -1)).values == expected.values);
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
  CHECK_THROWS_WITH_AS(clone(Tensor()), doctest::Contains("clone: a Tensor is undefined"), Error);
  CHECK_THROWS_WITH_AS(copy(Tensor::empty({2, 3}, f32), Tensor::empty({3, 2}, f32)),
                       "copy: shapes [2, 3] and [3, 2] differ", Error);
}

TEST_CASE("copies between views that overlap take what was there before") {
  const auto check = [](const Tensor& memory, const Tensor& from, const Tensor& to) {
    const Reference before = Reference::of(from);
    copy(from, to);
    CHECK(Reference::of(to).values == before.values);
    CHECK(memory.defined());
  };
  for (const DType dtype : {u8, f16, f32, f64}) {
    const auto fresh = [&] { return numbers({60}).tensor(dtype, test_device()); };
    Tensor x = fresh();
    check(x, x.slice(0, 0, 50), x.slice(0, 3, 53));
    x = fresh();
    check(x, x.slice(0, 3, 53), x.slice(0, 0, 50));
    x = fresh();
    check(x, x.slice(0, 0, 40, 2), x.slice(0, 1, 21));
    x = fresh().view({6, 10});
    check(x, x.slice(0, 0, 5), x.slice(0, 1, 6));
    x = fresh().view({6, 10});
    check(x, x.slice(1, 0, 8), x.slice(1, 2, 10));
    x = fresh().view({6, 10});
    check(x, x.slice(1, 0, 6).transpose(0, 1), x.slice(1, 0, 6));
    x = fresh().view({3, 4, 5});
    check(x, x.slice(2, 0, 4).slice(0, 0, 2), x.slice(2, 1, 5).slice(0, 1, 3));
    x = fresh();
    check(x, x.select(0, 7).expand({60}), x);
    x = fresh();
    check(x, x, x);
  }
  const Tensor bytes = numbers({64}).tensor(f32, test_device());  // one memory, two dtypes
  const Tensor as_ints =
      Tensor::from_blob(bytes.data<float>(), {64}, i32, test_device(), [bytes] {});
  const Reference before = Reference::of(bytes.slice(0, 0, 40));
  copy(bytes.slice(0, 0, 40), as_ints.slice(0, 5, 45));
  CHECK(Reference::of(as_ints.slice(0, 5, 45)).values == before.values);
}

TEST_CASE("sums in place of views that overlap take what was there before") {
  const Tensor x = numbers({60}).tensor(f32, test_device());
  const Reference before = Reference::of(x);
  accumulate(x.slice(0, 1, 60), x.slice(0, 0, 59));
  const Reference after = Reference::of(x);
  for (size_t i = 1; i < 60; ++i) CHECK(after[i] == before[i] + before[i - 1]);
}

TEST_CASE("copy refuses a view that names an element twice") {
  const Tensor one = ones({1, 4}, f32, test_device()), x = ones({3, 4}, f32, test_device());
  CHECK_THROWS_WITH_AS(copy(x, one.expand({3, 4})),
                       "copy: cannot write to shape [3, 4] with strides [0, 1], which names an "
                       "element twice",
                       Error);
  const Tensor line = ones({12}, f32, test_device());
  CHECK_THROWS_AS(copy(x, line.as_strided({3, 4}, {2, 1})), Error);
  CHECK_THROWS_AS(copy(ones({4, 4}, f32, test_device()), line.as_strided({4, 4}, {2, 1})), Error);
  copy(ones({2, 3}, f32, test_device()), line.as_strided({2, 3}, {3, 2}));  // 0 2 4, 3 5 7
  copy(ones({1, 4}, f32, test_device()), one.expand({1, 4}));
}
