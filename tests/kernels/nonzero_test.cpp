#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/nonzero.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }

/// The coordinates of what is not zero, one by one.
std::vector<double> coordinates_of(const Reference& x) {
  std::vector<double> out;
  for (size_t i = 0; i < x.values.size(); ++i) {
    if (x[i] == 0) continue;
    int64_t place = static_cast<int64_t>(i), size = x.shape.product();
    for (int axis = 0; axis < x.shape.rank(); ++axis) {
      size /= x.shape[axis];
      out.push_back(static_cast<double>(place / size));
      place %= size;
    }
  }
  return out;
}

}  // namespace

TEST_CASE("nonzero of any rank, in several parts") {
  for (const Shape& shape :
       {Shape{1}, Shape{40003}, Shape{1, 1}, Shape{300, 131}, Shape{1, 40000}, Shape{40000, 1},
        Shape{7, 1, 11}, Shape{33, 40, 29}, Shape{5, 6, 7, 8, 9}, Shape{2, 3, 1, 4, 5, 2, 6, 7}}) {
    Reference x(shape);
    for (size_t i = 0; i < x.values.size(); ++i) x[i] = i * i % 7 < 3 ? 1 : 0;
    const Tensor flags = x.tensor(boolean, test_device());
    const Tensor y = nonzero(flags);
    CHECK(y.size(1) == shape.rank());
    CHECK(values(y) == coordinates_of(x));
    CHECK(values(nonzero(x.tensor(f32, test_device()))) == coordinates_of(x));
    const Tensor turned = flags.transpose(0, -1);
    CHECK(values(nonzero(turned)) == coordinates_of(Reference::of(turned)));
  }
}

TEST_CASE("masked_select of every dtype, in several parts") {
  for (const DType dtype : {f64, f32, f16, bf16, i64, i32, u8, boolean})
    for (const Shape& shape : {Shape{1, 3}, Shape{211, 160}, Shape{7, 5003}}) {
      Reference x(shape), mask({shape[1]});
      std::vector<double> expected;
      for (size_t i = 0; i < mask.values.size(); ++i) mask[i] = static_cast<double>(i * i % 5 < 2);
      for (size_t i = 0; i < x.values.size(); ++i) x[i] = static_cast<double>(i * 7 % 200);
      const Tensor t = x.tensor(dtype, test_device());
      const Reference seen = Reference::of(t);
      for (size_t i = 0; i < x.values.size(); ++i)
        if (mask[i % mask.values.size()] != 0) expected.push_back(seen[i]);
      const Tensor m = mask.tensor(boolean, test_device());
      CHECK_MESSAGE(values(masked_select(t, m)) == expected, to_string(dtype));
      CHECK(values(masked_select(contiguous(t.transpose(0, 1)).transpose(0, 1),
                                 mask.tensor(i32, test_device()))) == expected);
      CHECK(masked_select(t, zeros({1}, boolean, test_device())).numel() == 0);
    }
}

TEST_CASE("masked_select where elements or flags begin between vectors") {
  Reference x({50000}), mask({50000});
  for (size_t i = 0; i < x.values.size(); ++i) {
    x[i] = static_cast<double>(i * 7 % 200);
    mask[i] = static_cast<double>(i * i % 5 < 2);
  }
  for (const DType dtype : {f64, f32, bf16, u8})
    for (const auto& [of_x, of_mask] :
         {std::pair<int64_t, int64_t>{0, 0}, {1, 0}, {0, 1}, {3, 2}, {16, 16}}) {
      constexpr int64_t count = 3 * nonzero_part;
      std::vector<double> expected;
      for (int64_t i = 0; i < count; ++i)
        if (mask[static_cast<size_t>(of_mask + i)] != 0)
          expected.push_back(x[static_cast<size_t>(of_x + i)]);
      const Tensor t = x.tensor(dtype, test_device()).slice(0, of_x, of_x + count);
      const Tensor m = mask.tensor(boolean, test_device()).slice(0, of_mask, of_mask + count);
      CHECK(values(masked_select(t, m)) == expected);
    }
}

TEST_CASE("one_hot of every dtype, in whole vectors and others") {
  for (const DType dtype : {f64, f32, f16, bf16, i64, i32, u8, boolean})
    for (const DType number : {i64, i32})
      for (const int64_t classes : {1, 10, 64, 4096, 5003, 12000}) {
        const int64_t rows = 37;
        Reference indices({rows}), expected({rows, classes});
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t index = r * 977 % (classes + 2) - 1;  // some are outside
          indices.at({r}) = static_cast<double>(index);
          if (index >= 0 && index < classes) expected.at({r, index}) = 1;
        }
        const Tensor y = one_hot(indices.tensor(number, test_device()), classes, dtype);
        CHECK(y.dtype() == dtype);
        CHECK_MESSAGE(values(y) == expected.values, to_string(dtype));
      }
  const Tensor some = Reference({2, 3}).tensor(i64, test_device());
  CHECK(one_hot(some.transpose(0, 1), 4).shape() == Shape{3, 2, 4});
  CHECK(one_hot(some, 0).numel() == 0);
  CHECK_THROWS_WITH_AS(one_hot(some, -1), "one_hot: -1 classes", Error);
}

TEST_CASE("nonzero of all, of none, of nothing and of one number") {
  const Tensor all = ones({70, 500}, f32, test_device());
  CHECK(nonzero(all).shape() == Shape{35000, 2});
  CHECK(values(nonzero(all)) == coordinates_of(Reference::of(all)));
  CHECK(nonzero(zeros({70, 500}, f32, test_device())).shape() == Shape{0, 2});
  CHECK(nonzero(Tensor::empty({3, 0}, f32, test_device())).shape() == Shape{0, 2});
  CHECK(nonzero(full({}, 3, f32, test_device())).shape() == Shape{1, 0});
  CHECK(nonzero(full({}, 0, f32, test_device())).shape() == Shape{0, 0});
}

TEST_CASE("nonzero of bools that other programs wrote: any byte but 0 is true") {
  std::vector<uint8_t> bytes(5000);
  std::vector<double> expected;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(i % 3 == 0 ? 0 : i % 256);
    if (bytes[i] != 0) expected.push_back(static_cast<double>(i));
  }
  const Tensor flags = Tensor::from_blob(bytes.data(), {5000}, DType::boolean);
  CHECK(values(flat_nonzero(flags)) == expected);
}

TEST_CASE("flat_nonzero where parts have none") {
  Reference x({100003});
  std::vector<double> places;
  for (size_t i = 0; i < x.values.size(); ++i) {
    x[i] = i > 20000 && i < 60000 ? 0 : static_cast<double>(i % 7 < 3);
    if (x[i] != 0) places.push_back(static_cast<double>(i));
  }
  CHECK(values(flat_nonzero(x.tensor(i64, test_device()))) == places);
  CHECK(flat_nonzero(zeros({40000}, boolean, test_device())).numel() == 0);
}
