#include <bs/autograd/concat.h>
#include <bs/kernels/concat.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

/// The inputs behind each other along `axis`, element by element.
Reference joined(const References& in, int axis) {
  Shape shape = in[0].shape;
  shape[axis] = 0;
  for (const Reference& r : in) shape[axis] += r.shape[axis];
  Reference y(shape);
  const auto outer = static_cast<size_t>(shape.slice(0, axis).product());
  const auto inner = static_cast<size_t>(shape.slice(axis + 1, shape.rank()).product());
  size_t at = 0;
  for (size_t o = 0; o < outer; ++o)
    for (const Reference& r : in) {
      const size_t run = static_cast<size_t>(r.shape[axis]) * inner;
      for (size_t i = 0; i < run; ++i) y[at++] = r[o * run + i];
    }
  return y;
}

Tensor counting(const Shape& shape, DType dtype = f32) {
  Reference r(shape);
  for (size_t i = 0; i < r.values.size(); ++i) r[i] = static_cast<double>(i);
  return r.tensor(dtype, test_device());
}

}  // namespace

TEST_CASE("concat") {
  for (int axis : {0, 1, 2}) {
    std::vector<Shape> shapes(3, Shape{2, 3, 4});
    shapes[1][axis] = 0;
    shapes[2][axis] = 5;
    check_op({.name = "concat",
              .inputs = shapes,
              .op = [=](const Variables& v) { return concat(v, axis); },
              .reference = [=](const References& in) { return joined(in, axis); }});
    check_op({.name = "concat",
              .inputs = shapes,
              .op = [=](const Variables& v) { return concat(v, axis - 3); },
              .reference = [=](const References& in) { return joined(in, axis); }});
  }
}

TEST_CASE("stack") {
  for (int axis : {0, 1, 2})
    check_op({.name = "stack",
              .inputs = {{3, 5}, {3, 5}},
              .op =
                  [=](const Variables& v) {
                    return stack({v[0], v[1]}, axis);
                  },
              .reference =
                  [=](References in) {
                    for (Reference& r : in) r.shape.insert(axis, 1);
                    return joined(in, axis);
                  }});
}

TEST_CASE("stack of two along the last axis, which end in no vector or begin at none") {
  for (const DType dtype : {u8, f16, bf16, f32, i64})
    for (const int64_t n : {1, 3, 8, 1027})
      for (const int64_t before : {0, 1, 4}) {
        Reference a({before + n}), b({before + n});
        std::vector<double> expected;
        for (int64_t i = 0; i < before + n; ++i) {
          a.at({i}) = static_cast<double>(i % 97);
          b.at({i}) = static_cast<double>(100 + i % 89);
          if (i >= before) expected.insert(expected.end(), {a.at({i}), b.at({i})});
        }
        const auto part = [&](const Reference& r) {
          return r.tensor(dtype, test_device()).slice(0, before, before + n);
        };
        CHECK(Reference::of(stack({part(a), part(b)}, 1)).values == expected);
      }
}

TEST_CASE("concat of two whose rows are a few elements that move as one") {
  for (const auto& [type, width] : {std::pair{f16, 2}, {u8, 4}, {u8, 2}, {f32, 2}}) {
    const DType dtype = type;
    const int64_t rows = 1027, n = rows * width;
    Reference a({rows, width}), b({rows, width});
    for (size_t i = 0; i < a.values.size(); ++i) {
      a[i] = static_cast<double>(i % 97);
      b[i] = static_cast<double>(100 + i % 89);
    }
    const Reference y =
        Reference::of(concat({a.tensor(dtype, test_device()), b.tensor(dtype, test_device())}, 1));
    std::vector<double> expected;
    for (int64_t first = 0; first < n; first += width)
      for (const Reference* of : {&a, &b})
        for (int64_t i = first; i < first + width; ++i)
          expected.push_back(of->values[static_cast<size_t>(i)]);
    CHECK_MESSAGE(y.values == expected, to_string(dtype));
  }
}

TEST_CASE("split gives views, and one gradient of all pieces") {
  const Variable x(counting({2, 6}), true);
  const auto pieces = split(x, {1, 2, 3}, 1);
  REQUIRE(pieces.size() == 3);
  for (const Variable& piece : pieces) CHECK(piece.data().shares_storage(x.data()));
  CHECK(Reference::of(pieces[2].data()).values == std::vector<double>{3, 4, 5, 9, 10, 11});
  const Variable y = concat({pieces[2], pieces[0]}, 1);  // the middle piece gets no gradient
  y.backward(counting({2, 4}));
  CHECK(Reference::of(x.grad()).values == std::vector<double>{3, 0, 0, 0, 1, 2, 7, 0, 0, 4, 5, 6});
}

TEST_CASE("chunk") {
  check_op({.name = "chunk",
            .inputs = {{2, 6, 3}},
            .op =
                [](const Variables& v) {
                  const auto parts = chunk(v[0], 3, 1);
                  return concat({parts[2], parts[0], parts[1]}, 0);
                },
            .reference =
                [](const References& in) {
                  Reference y({6, 2, 3});
                  for (int64_t p = 0; p < 3; ++p)
                    for (int64_t b = 0; b < 2; ++b)
                      for (int64_t i = 0; i < 2; ++i)
                        for (int64_t j = 0; j < 3; ++j)
                          y.at({(p + 1) % 3 * 2 + b, i, j}) = in[0].at({b, p * 2 + i, j});
                  return y;
                }});
}

TEST_CASE("the gradient of a slice lies among zeros, and that of a whole axis is dy itself") {
  const Tensor dy = Tensor::from<float>({1, 2, 3, 4}, {2, 2}).to(test_device());
  CHECK(Reference::of(slice_backward(dy, {2, 4}, 1, 1, 3)).values ==
        std::vector<double>{0, 1, 2, 0, 0, 3, 4, 0});
  CHECK(Reference::of(slice_backward(dy, {2, 3}, 1, 0, 3, 2)).values ==
        std::vector<double>{1, 0, 2, 3, 0, 4});
  CHECK(slice_backward(dy, {2, 2}, 1, 0, 2).shares_storage(dy));
  CHECK_THROWS_WITH_AS(slice_backward(dy, {2, 5}, 1, 0, 3),
                       "slice_backward: shapes [2, 2] and [2, 3] differ", Error);
}

TEST_CASE("the gradient of a slice, for lines of every length and every step") {
  const int64_t ends = 1000;  // beyond every axis
  for (const DType dtype : {u8, bf16, f32, f64})
    for (const int axis : {0, 1, 2})
      for (const int64_t width : {1, 2, 7, 8, 16, 19, 33, 40})
        for (const int64_t begin : {0, 1, -3})
          for (const int64_t step : {1, 2, 3, 50}) {
            const Shape shape{3, width, axis == 2 ? width : 2};
            Reference x(shape);
            for (size_t i = 0; i < x.values.size(); ++i) x[i] = static_cast<double>(i % 199 + 1);
            const Tensor numbers = x.tensor(dtype, Device::cpu());
            const Tensor dy = contiguous(numbers.slice(axis, begin, ends, step));
            const Tensor dx = slice_backward(dy.to(test_device()), shape, axis, begin, ends, step);
            const Tensor expected = zeros(shape, dtype);
            copy(dy, expected.slice(axis, begin, ends, step));
            CAPTURE(to_string(shape));
            REQUIRE(Reference::of(dx).values == Reference::of(expected).values);
          }
}

TEST_CASE("the gradient of every second element, of lines that begin at no vector and end so") {
  for (const DType dtype : {u8, f16, bf16, f32, f64})
    for (const int64_t width : {2, 6, 64, 1026})
      for (const int64_t begin : {0, 1})
        for (const int64_t before : {0, 1, 4}) {
          const Shape shape{2, 5, width};
          Reference x({before + 5 * width});
          for (size_t i = 0; i < x.values.size(); ++i) x[i] = static_cast<double>(i % 199 + 1);
          const Tensor numbers = x.tensor(dtype, test_device());
          const Tensor dy = numbers.slice(0, before, numbers.size(0)).view({2, 5, width / 2});
          const Reference dx = Reference::of(slice_backward(dy, shape, 2, begin, width, 2));
          std::vector<double> expected(static_cast<size_t>(shape.product()));
          for (int64_t i = 0; i < dy.numel(); ++i)
            expected[static_cast<size_t>(2 * i + begin)] = x[static_cast<size_t>(before + i)];
          CAPTURE(to_string(shape));
          REQUIRE(dx.values == expected);
        }
}

TEST_CASE("the gradient of every second element of an odd number") {
  for (const DType dtype : {u8, f16, bf16, f32, f64})
    for (const int64_t n : {1, 7, 1027})
      for (const int64_t begin : {0, 1}) {
        Reference dy({(n - begin + 1) / 2});
        std::vector<double> expected(static_cast<size_t>(n));
        for (size_t i = 0; i < dy.values.size(); ++i) {
          dy[i] = static_cast<double>(i % 199 + 1);
          expected[2 * i + static_cast<size_t>(begin)] = dy[i];
        }
        const Tensor given = dy.tensor(dtype, test_device());
        CAPTURE(n);
        CHECK(Reference::of(slice_backward(given, {n}, 0, begin, n, 2)).values == expected);
      }
}

TEST_CASE("concat joins views and integers") {
  const Tensor x = counting({3, 2}, i64);
  const Tensor y = concat({x.transpose(0, 1), x.transpose(0, 1)}, 0);
  CHECK(Reference::of(y).values == std::vector<double>{0, 2, 4, 1, 3, 5, 0, 2, 4, 1, 3, 5});
}

TEST_CASE("concat of many parts, in units of every size") {
  for (const DType dtype : {boolean, u8, bf16, f32, i64})
    for (const std::vector<int64_t>& widths : {std::vector<int64_t>{16, 32},
                                               {5, 3},
                                               {8, 0, 4},
                                               {2, 6, 4, 8, 2, 2, 6, 4, 16, 1024, 2},
                                               {1, 1},
                                               {3, 1, 4, 2},
                                               {1, 1, 1, 1, 1, 1, 1, 1, 1},
                                               std::vector<int64_t>(70, 3),
                                               {333, 700}})
      for (const int64_t first : {0, 1}) {  // the latter begins where no vector does
        References in;
        std::vector<Tensor> parts;
        for (size_t p = 0; p < widths.size(); ++p) {
          const Shape shape = {4, 7, widths[p]};
          const int64_t count = shape.product();
          Reference r({count + first});
          for (size_t i = 0; i < r.values.size(); ++i)
            r[i] = static_cast<double>(dtype == boolean ? (i + p) % 3 == 0 : (i * 7 + p) % 251);
          parts.push_back(
              r.tensor(dtype, test_device()).slice(0, first, first + count).view(shape));
          in.push_back(Reference::of(parts.back()));
        }
        CHECK(Reference::of(concat(parts, 2)).values == joined(in, 2).values);
      }
}

TEST_CASE("concat and split refuse what does not fit") {
  const Tensor a = counting({2, 3});
  CHECK_THROWS_WITH_AS(concat(std::span<const Tensor>{}, 0), "concat: no tensors", Error);
  CHECK_THROWS_WITH_AS(concat({a, counting({2, 4})}, 0),
                       "concat: shapes [2, 3] and [2, 4] differ beside axis 0", Error);
  CHECK_THROWS_WITH_AS(concat({a, counting({3})}, 0),
                       "concat: shapes [2, 3] and [3] differ beside axis 0", Error);
  CHECK_THROWS_WITH_AS(concat({a, counting({2, 3}, f64)}, 0), "concat: dtypes f32 and f64 differ",
                       Error);
  CHECK_THROWS_WITH_AS(concat({a}, 2), "concat: axis 2 is out of range for rank 2", Error);
  CHECK_THROWS_WITH_AS(stack({a, counting({3, 2})}, 0), "stack: shapes [2, 3] and [3, 2] differ",
                       Error);
  CHECK_THROWS_WITH_AS(split(a, {1, 1}, 1), "split: pieces of 2 in all on axis 1 of [2, 3]", Error);
  CHECK_THROWS_WITH_AS(split(a, {4, -1}, 1), "split: a piece of size -1", Error);
  CHECK_THROWS_WITH_AS(chunk(a, 2, 1),
                       "chunk: 2 equal pieces of axis 1 of [2, 3]; at most 16777216 are made",
                       Error);
}
