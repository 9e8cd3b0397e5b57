#include <bs/autograd/index_select.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>
#include <bs/kernels/index_select.h>
#include <bs/lib/threads.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

using namespace bs;
using namespace bs::test;

namespace {

Tensor indices_of(const std::vector<int64_t>& values, DType dtype = i64) {
  Reference r({static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) r[i] = static_cast<double>(values[i]);
  return r.tensor(dtype, test_device());
}

/// y[.., k, ..] = x[.., indices[k], ..], element by element.
Reference selected(const Reference& x, int axis, const std::vector<int64_t>& indices) {
  Shape shape = x.shape;
  shape[axis] = static_cast<int64_t>(indices.size());
  Reference y(shape);
  const int64_t inner = shape.slice(axis + 1, shape.rank()).product();
  for (size_t i = 0; i < y.values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t o = at / inner / shape[axis];
    const int64_t row = o * x.shape[axis] + indices[static_cast<size_t>(at / inner % shape[axis])];
    y[i] = x[static_cast<size_t>(row * inner + at % inner)];
  }
  return y;
}

std::vector<int64_t> random_indices(int64_t count, int64_t extent, uint64_t seed = 1) {
  std::vector<int64_t> out;
  for (double v : random_reference({count}, seed, 0, static_cast<double>(extent)).values)
    out.push_back(static_cast<int64_t>(v));
  return out;
}

}  // namespace

TEST_CASE("index_select of rows of every width, in units of every size") {
  const std::vector<int64_t> indices{4, 0, 3, 3, 1, 4, 2};
  int number = 0;
  for (const DType dtype : {u8, bf16, f32, f64})
    for (const int64_t width : {1, 2, 3, 4, 5, 8, 12, 16, 20, 33, 100, 700})
      for (const int64_t outer : {1, 3})
        for (const int64_t first : {0, 1}) {  // the latter begins where no vector does
          if (!is_sampled(number++)) continue;
          const Shape shape{outer, 5, width};
          Reference all({shape.product() + first});
          for (size_t i = 0; i < all.values.size(); ++i) all[i] = static_cast<double>(i % 251);
          const Tensor x =
              all.tensor(dtype, test_device()).slice(0, first, all.shape[0]).view(shape);
          CAPTURE(width);
          REQUIRE(Reference::of(index_select(x, 1, indices_of(indices))).values ==
                  selected(Reference::of(x), 1, indices).values);
        }
}

TEST_CASE("index_select of many short rows") {
  const std::vector<int64_t> indices = random_indices(1500, 300);
  for (const DType dtype : {u8, bf16, f32, f64})
    for (const int64_t width : {2, 3, 5, 6, 7}) {
      Reference x({300, width});
      for (size_t i = 0; i < x.values.size(); ++i) x[i] = static_cast<double>(i % 251);
      const Reference expected = selected(x, 0, indices);
      CAPTURE(width);
      for (const DType of_indices : {i32, i64})
        REQUIRE(Reference::of(index_select(x.tensor(dtype, test_device()), 0,
                                           indices_of(indices, of_indices)))
                    .values == expected.values);
    }
}

TEST_CASE("index_select") {
  const auto check = [](const Shape& shape, int axis, const std::vector<int64_t>& indices,
                        DType index_dtype) {
    check_op({.name = "index_select",
              .inputs = {shape},
              .op =
                  [=](const Variables& v) {
                    return index_select(v[0], axis, indices_of(indices, index_dtype));
                  },
              .reference =
                  [=](const References& in) {
                    return selected(in[0], axis < 0 ? axis + shape.rank() : axis, indices);
                  }});
  };
  for (DType dtype : {i64, i32}) {
    for (int axis : {0, 1, 2, -1}) check({3, 4, 5}, axis, {2, 0, 0, 1, 2, 2}, dtype);
    check({5, 130}, 0, {4, 4, 4}, dtype);
    check({5, 130}, 0, {}, dtype);
    check({1, 1}, 1, {0}, dtype);
    check({7}, 0, {6, 0, 3}, dtype);
    check({0, 4}, 1, {3, 1}, dtype);
  }
  // Many positions of few rows, and few of many: runs of equal indices of all lengths.
  check({3, 8}, 0, random_indices(1000, 3), i64);
  check({2, 300, 3}, 1, random_indices(500, 300), i64);
}

TEST_CASE("index_select of single elements and short runs of long lines") {
  for (const int64_t inner : {1, 3}) {
    Reference from({9, 50, inner});
    for (size_t i = 0; i < from.values.size(); ++i) from[i] = static_cast<double>(i * 5 % 128);
    const auto at = random_indices(400, 50);
    const auto expected = selected(from, 1, at).values;
    for (const DType dtype : {f64, f32, bf16, u8})
      CHECK(Reference::of(index_select(from.tensor(dtype, test_device()), 1, indices_of(at)))
                .values == expected);
  }
}

TEST_CASE("index_select of single elements of rows of whole vectors") {
  for (const auto& [n, count] : {std::pair<int64_t, int64_t>{256, 512}, {48, 128}, {4096, 4096}}) {
    Reference from({21, n});
    for (size_t i = 0; i < from.values.size(); ++i) from[i] = static_cast<double>(i * 5 % 128);
    const auto at = random_indices(count, n);
    const auto expected = selected(from, 1, at).values;
    for (const DType dtype : {f64, f32, bf16, u8})
      CHECK(Reference::of(index_select(from.tensor(dtype, test_device()), 1, indices_of(at)))
                .values == expected);
  }
}

TEST_CASE("index_select of any dtype and strides") {
  Reference r({4, 6});
  for (size_t i = 0; i < r.values.size(); ++i) r[i] = static_cast<double>(i % 2);
  for (DType dtype : {boolean, u8, i32, i64, f16, bf16, f32, f64}) {
    const Tensor x = r.tensor(dtype, test_device());
    const Tensor y = index_select(x.transpose(0, 1), 0, indices_of({5, 5, 0, 1, 2, 0, 3}));
    CHECK(y.dtype() == dtype);
    CHECK(y.shape() == Shape{7, 4});
    const Reference transposed = Reference::of(x.transpose(0, 1));
    CHECK(Reference::of(y).values == selected(transposed, 0, {5, 5, 0, 1, 2, 0, 3}).values);
    const Tensor spread = indices_of({1, 9, 0, 9, 3, 9}).slice(0, 0, 6, 2);
    CHECK(Reference::of(index_select(x, 0, spread)).values == selected(r, 0, {1, 0, 3}).values);
  }
}

TEST_CASE("index_select_backward sums rows of any number of positions") {
  for (DType dtype : {f64, f32, f16, bf16}) {
    const int64_t count = 5000;
    std::vector<int64_t> indices = random_indices(count, 40, 3);
    for (size_t i = 0; i < indices.size(); i += 3) indices[i] = 7;  // one row has most of them
    const Reference dy =
        Reference::of(random_reference({count, 70}, 5).tensor(dtype, Device::cpu()));
    Reference expected({40, 70});
    for (size_t k = 0; k < indices.size(); ++k)
      for (size_t c = 0; c < 70; ++c)
        if (indices[k] != 11) expected[static_cast<size_t>(indices[k]) * 70 + c] += dy[k * 70 + c];
    const auto backward = [&] {
      return Reference::of(
          index_select_backward(dy.tensor(dtype, test_device()), 0, indices_of(indices), 40, 11));
    };
    const Reference dx = backward();
    // A sum of 1700 terms up to 1 in f32 errs by no more than 1700 steps; then it is rounded.
    const double sums = 1700 * epsilon(dtype == f64 ? f64 : f32) * 100;
    check_close("index_select_backward " + to_string(dtype), dx, expected,
                sums + epsilon(dtype) * largest(expected));
    const int before = threads();
    set_threads(before == 1 ? 3 : 1);
    CHECK(backward().values == dx.values);
    set_threads(before);
  }
}

TEST_CASE("index_select_backward of single elements of many rows") {
  for (DType dtype : {f64, f32, f16, bf16})
    for (const int64_t rows : {63, 64, 67, 200})
      for (const int64_t count : {1, 129, 700, 6144, 6145}) {
        const int64_t extent = 131;
        std::vector<int64_t> indices = random_indices(count, extent, 3);
        for (size_t i = 0; i < indices.size(); i += 5) indices[i] = i % 2 == 0 ? -1 : extent;
        Reference dy = random_reference({rows, count}, 5, -8, 8);
        for (double& v : dy.values) v = std::round(v);
        Reference expected({rows, extent});
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t k = 0; k < count; ++k) {
            const int64_t i = indices[static_cast<size_t>(k)];
            if (i >= 0 && i < extent && i != 11) expected.at({r, i}) += dy.at({r, k});
          }
        const Tensor dx = index_select_backward(dy.tensor(dtype, test_device()), 1,
                                                indices_of(indices), extent, 11);
        CHECK_MESSAGE(
            Reference::of(dx).values == Reference::of(expected.tensor(dtype, Device::cpu())).values,
            to_string(dtype));
      }
}

TEST_CASE("index_select_backward of few and of many positions, into rows of which some get none") {
  // Few are ordered by blocks of threads that read them all, many by a radix sort.
  const std::tuple<int64_t, int64_t, int64_t> sizes[] = {
      {1, 3000, 300}, {64, 3000, 300}, {5000, 3000, 260}, {3000, 70000, 2}, {300000, 5000, 2}};
  for (const auto& [count, extent, inner] : sizes) {
    std::vector<int64_t> indices = random_indices(count, extent, 7);
    for (size_t i = 0; i < indices.size(); i += 4) indices[i] = i % 8 == 0 ? 5 : extent - 1;
    Reference dy = random_reference({count, inner}, 5, -8, 8), expected({extent, inner});
    for (double& v : dy.values) v = std::round(v);
    const auto n = static_cast<size_t>(inner);
    for (size_t k = 0; k < indices.size(); ++k)
      for (size_t c = 0; c < n; ++c)
        if (indices[k] != 11) expected[static_cast<size_t>(indices[k]) * n + c] += dy[k * n + c];
    for (const DType dtype : {f64, f32, bf16}) {
      const Tensor dx = index_select_backward(dy.tensor(dtype, test_device()), 0,
                                              indices_of(indices), expected.shape[0], 11);
      CHECK(Reference::of(dx).values ==
            Reference::of(expected.tensor(dtype, test_device())).values);
    }
  }
}

TEST_CASE("index_select_backward of many positions in few places, and index_add of them") {
  // Of up to two columns lanes share a run of positions out, of up to 128 packs rows of threads.
  const std::tuple<int64_t, int64_t, int64_t> sizes[] = {
      {1, 1, 1},    {33, 1, 1},    {70000, 1, 1}, {100000, 8, 1}, {20000, 3, 2},
      {1000, 5, 3}, {1025, 2, 31}, {1000, 2, 32}, {3000, 1, 100}, {500, 2, 600}};
  for (const auto& [count, extent, inner] : sizes) {
    const std::vector<int64_t> indices = random_indices(count, extent, 7);
    const auto n = static_cast<size_t>(inner);
    Reference dy = random_reference({count, inner}, 5, -8, 8), sums({extent, inner});
    for (double& v : dy.values) v = std::round(v);
    const Reference x = random_reference({extent, inner}, 6, -8, 8);
    for (size_t k = 0; k < indices.size(); ++k)
      for (size_t c = 0; c < n; ++c) sums[static_cast<size_t>(indices[k]) * n + c] += dy[k * n + c];
    for (const DType dtype : {f64, f32, f16, bf16}) {
      const Tensor values = dy.tensor(dtype, test_device());
      const Tensor at = indices_of(indices);
      const Tensor dx = index_select_backward(values, 0, at, sums.shape[0]);
      CHECK(Reference::of(dx).values == Reference::of(sums.tensor(dtype, test_device())).values);
      const Tensor base = x.tensor(dtype, test_device());
      Reference added = Reference::of(base);
      for (size_t i = 0; i < added.values.size(); ++i) added[i] += sums[i];
      const Reference y = Reference::of(index_add(base, 0, at, values));
      check_close("index_add " + to_string(dtype), y, added, epsilon(dtype) * largest(added));
      CHECK(Reference::of(index_add(base, 0, at, values)).values == y.values);
    }
  }
}

TEST_CASE("index_add of values that are not finite reaches their places alone") {
  for (const int64_t inner : {1, 2, 40, 600}) {
    const int64_t count = 700;
    const std::vector<int64_t> indices = random_indices(count, 4, 3);
    Reference source({count, inner});
    source.values.assign(source.values.size(), 1);
    for (int64_t k = 0; k < count; ++k)
      for (int64_t i = 0; i < inner; ++i)
        if (indices[static_cast<size_t>(k)] == 2)
          source.at({k, i}) = std::numeric_limits<double>::infinity() * (k % 2 == 0 ? 1 : -1);
    const Reference y =
        Reference::of(index_add(zeros({4, inner}, f32, test_device()), 0, indices_of(indices),
                                source.tensor(f32, test_device())));
    for (int64_t row = 0; row < 4; ++row) {
      const double number = static_cast<double>(std::ranges::count(indices, row));
      for (int64_t i = 0; i < inner; ++i)
        CHECK((row == 2 ? std::isnan(y.at({row, i})) : y.at({row, i}) == number));
    }
  }
}

TEST_CASE("index_select_backward passes over indices outside, and over nothing") {
  const Tensor dy = ones({4, 2}, f32, test_device());
  const Tensor dx = index_select_backward(dy, 0, indices_of({-1, 2, 3, 2}), 3);
  CHECK(Reference::of(dx).values == std::vector<double>{0, 0, 0, 0, 2, 2});
  const Tensor none =
      index_select_backward(zeros({0, 2}, f32, test_device()), 0, indices_of({}), 3);
  CHECK(Reference::of(none).values == std::vector<double>(6, 0));
  CHECK(index_select_backward(dy, 0, indices_of({0, 0, 0, 0}), 0).shape() == Shape{0, 2});
}

TEST_CASE("index_select of an index outside throws on the CPU and gives NaN on CUDA") {
  const auto select = [](DType dtype, int64_t index) {
    return index_select(ones({3, 2}, dtype, test_device()), 0, indices_of({1, index}));
  };
  if (test_device().is_cpu()) {
    CHECK_THROWS_WITH_AS(select(f32, 3), "index_select: index 3 at position 1 is outside [0, 3)",
                         Error);
    CHECK_THROWS_WITH_AS(select(f32, -1), "index_select: index -1 at position 1 is outside [0, 3)",
                         Error);
    return;
  }
  for (DType dtype : {f64, f32, f16, bf16}) {
    const Reference y = Reference::of(select(dtype, 3));
    CHECK(y[0] == 1);
    CHECK(std::isnan(y[2]));
    CHECK(std::isnan(y[3]));
  }
  CHECK(Reference::of(select(i32, -1)).values == std::vector<double>{1, 1, 0, 0});
  const Tensor rows = ones({4, 3}, bf16, test_device());
  const Reference y = Reference::of(index_select(rows, 0, indices_of({3, 4, -1, 0})));
  for (size_t i = 0; i < 12; ++i) CHECK(std::isnan(y[i]) == (i >= 3 && i < 9));
}

TEST_CASE("index_select refuses what it cannot do") {
  const Tensor x = Tensor::empty({3, 2}, f32);
  const Tensor indices = Tensor::from<int64_t>({0});
  CHECK_THROWS_WITH_AS(index_select(x, 2, indices),
                       "index_select: axis 2 is out of range for rank 2", Error);
  CHECK_THROWS_WITH_AS(index_select(x, 0, Tensor::empty({2, 2}, i64)),
                       "index_select: indices of shape [2, 2] are not a vector", Error);
  CHECK_THROWS_WITH_AS(index_select(x, 0, Tensor::empty({2}, f32)),
                       "index_select: dtype f32 is not supported; expected i64 or i32", Error);
  CHECK_THROWS_WITH_AS(index_select_backward(x, 0, indices, 3),
                       "index_select_backward: 1 indices for axis 0 of dy [3, 2]", Error);
  CHECK_THROWS_WITH_AS(index_select_backward(x, 0, Tensor::empty({3}, i64), -1),
                       "index_select_backward: extent -1 is negative", Error);
}
