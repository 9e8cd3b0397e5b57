#include <bs/autograd/gather.h>
#include <bs/autograd/nonzero.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>
#include <bs/kernels/nonzero.h>
#include <bs/kernels/random.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <array>
#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

using Numbers = std::vector<int64_t>;

/// Numbers in [0, n) that repeat and come in no order.
Numbers some_indices(int64_t count, int64_t n) {
  Numbers out;
  for (int64_t i = 0; i < count; ++i) out.push_back((i * 7 + i / 3) % n);
  return out;
}

Tensor tensor_of(const Numbers& values, const Shape& shape, DType dtype = i64) {
  Reference r(shape);
  for (size_t i = 0; i < values.size(); ++i) r[i] = static_cast<double>(values[i]);
  return r.tensor(dtype, test_device());
}

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }

/// Calls f(e, place): element e of an index [a, m, c], and where it points in [a2, n, c2].
template <class F>
void for_each_place(const Shape& index, const Shape& x, const Numbers& at, F f) {
  size_t e = 0;
  for (int64_t o = 0; o < index[0]; ++o)
    for (int64_t k = 0; k < index[1]; ++k)
      for (int64_t i = 0; i < index[2]; ++i, ++e)
        f(e, static_cast<size_t>((o * x[1] + at[e]) * x[2] + i));
}

}  // namespace

TEST_CASE("gather") {
  const Shape x = {3, 5, 4};
  for (const Shape& shape : {Shape{3, 7, 4}, Shape{2, 1, 3}, Shape{3, 0, 4}}) {
    const Numbers at = some_indices(shape.product(), 5);
    for (const DType dtype : {i64, i32}) {
      const Tensor index = tensor_of(at, shape, dtype);
      check_op({.name = "gather",
                .inputs = {x},
                .op = [=](const Variables& v) { return gather(v[0], 1, index); },
                .reference =
                    [=](const References& in) {
                      Reference y(shape);
                      for_each_place(shape, x, at, [&](size_t e, size_t p) { y[e] = in[0][p]; });
                      return y;
                    }});
    }
  }
  const Tensor m = tensor_of({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(values(gather(m, -1, tensor_of({2, 0}, {2, 1}))) == std::vector<double>{3, 4});
  CHECK(values(gather(m, 0, tensor_of({1, 0, 1}, {1, 3}))) == std::vector<double>{4, 2, 6});
  const Tensor flags = Tensor::from<bool>({true, false}).to(test_device());
  CHECK(values(gather(flags, 0, tensor_of({1, 0, 0}, {3}))) == std::vector<double>{0, 1, 1});
}

TEST_CASE("gather of long lines") {
  // Of many rows, each is held on the chip: in whole vectors, or one by one.
  for (const auto& [rows, n, inner] :
       {std::array<int64_t, 3>{3, 70, 1}, {3, 70, 5}, {40, 70, 1}, {33, 64, 1}}) {
    const Shape x = {rows, n, inner}, shape = {rows, 700, inner};
    const Numbers at = some_indices(shape.product(), n);
    for (const DType dtype : {f32, bf16, u8, f64}) {
      Reference from(x), expected(shape);
      for (size_t i = 0; i < from.values.size(); ++i) from[i] = static_cast<double>(i * 5 % 128);
      for_each_place(shape, x, at, [&](size_t e, size_t p) { expected[e] = from[p]; });
      const Tensor source = from.tensor(dtype, test_device());
      const Tensor index = tensor_of(at, shape);
      CHECK(values(gather(source, 1, index)) == expected.values);
      const Tensor apart = contiguous(index.transpose(1, 2)).transpose(1, 2);
      CHECK(values(gather(source, 1, apart)) == expected.values);
    }
  }
}

TEST_CASE("scatter_add is the same each time, whatever places coincide") {
  const Shape shape = {64, 1000};
  Generator generator(3);
  const Tensor x = randn({64, 50}, f32, test_device(), generator);
  const Tensor source = randn(shape, f32, test_device(), generator);
  const Tensor index = randint(0, 50, shape, i64, test_device(), generator);
  const Tensor first = scatter_add(x, 1, index, source);
  for (int run = 0; run < 5; ++run)
    CHECK(values(scatter_add(x, 1, index, source)) == values(first));
  // One after the other, in the order of their positions, on either device.
  CHECK(values(scatter_add(x.to(Device::cpu()), 1, index.to(Device::cpu()),
                           source.to(Device::cpu()))) == values(first));
}

TEST_CASE("scatter: the last write counts") {
  const Shape x = {2, 5, 3};
  for (const Shape& shape : {Shape{2, 9, 3}, Shape{1, 2, 2}, Shape{2, 0, 3}}) {
    const Numbers at = some_indices(shape.product(), 5);
    const Tensor index = tensor_of(at, shape);
    check_op({.name = "scatter",
              .inputs = {x, shape},
              .op = [=](const Variables& v) { return scatter(v[0], 1, index, v[1]); },
              .reference =
                  [=](const References& in) {
                    Reference y = in[0];
                    for_each_place(shape, x, at, [&](size_t e, size_t p) { y[p] = in[1][e]; });
                    return y;
                  },
              .differentiable = false});
  }
  // Without repetition the gradients are exact.
  const Numbers at = {4, 0, 3, 1, 2, 0};
  const Tensor index = tensor_of(at, {1, 2, 3});
  check_op({.name = "scatter",
            .inputs = {x, {1, 2, 3}},
            .op = [=](const Variables& v) { return scatter(v[0], 1, index, v[1]); },
            .reference =
                [=](const References& in) {
                  Reference y = in[0];
                  for_each_place({1, 2, 3}, x, at, [&](size_t e, size_t p) { y[p] = in[1][e]; });
                  return y;
                }});
  const Tensor y = scatter(tensor_of({1, 2, 3}, {3}), 0, tensor_of({1}, {1}), 9);
  CHECK(values(y) == std::vector<double>{1, 9, 3});
}

TEST_CASE("scatter into many rows, of whole vectors and of others: the last write counts") {
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{256, 512}, {300, 129}, {64, 2000}}) {
    const Shape x = {40, n, 1}, shape = {40, m, 1};
    const Numbers at = some_indices(shape.product(), n / 2);  // the other half is left as it is
    for (const DType dtype : {f64, f32, bf16, u8})
      for (const DType number : {i64, i32}) {
        Reference to(x), from(shape);
        for (size_t i = 0; i < to.values.size(); ++i) to[i] = static_cast<double>(i % 7);
        for (size_t i = 0; i < from.values.size(); ++i) from[i] = static_cast<double>(i * 5 % 128);
        Reference expected = to;
        for_each_place(shape, x, at, [&](size_t e, size_t p) { expected[p] = from[e]; });
        const Tensor index = tensor_of(at, shape, number),
                     source = from.tensor(dtype, test_device());
        const Tensor before = to.tensor(dtype, test_device());
        CHECK(values(scatter(before, 1, index, source)) == expected.values);
        CHECK(values(before) == to.values);
        // Views, of which a dense copy is written to.
        const Tensor turned = contiguous(before.transpose(0, 1)).transpose(0, 1);
        CHECK(values(scatter(turned, 1, index, source)) == expected.values);
      }
  }
}

TEST_CASE("scatter_add") {
  struct Case {
    Shape x, index;
    int64_t places;  ///< of an axis that are named
  };
  // The last three have rows that a warp holds, whose places are named up to 333 times.
  for (const auto& [x, shape, places] :
       {Case{{2, 5, 3}, {2, 40, 3}, 5}, Case{{2, 5, 3}, {1, 2, 2}, 5},
        Case{{2, 5, 3}, {2, 0, 3}, 5}, Case{{40, 300, 1}, {40, 333, 1}, 300},
        Case{{40, 300, 1}, {40, 333, 1}, 3}, Case{{40, 300, 1}, {40, 333, 1}, 1}}) {
    const Numbers at = some_indices(shape.product(), places);
    const Tensor index = tensor_of(at, shape, places == 5 ? i32 : i64);
    check_op({.name = "scatter_add",
              .inputs = {x, shape},
              .op = [=](const Variables& v) { return scatter_add(v[0], 1, index, v[1]); },
              .reference =
                  [=, x = x, shape = shape](const References& in) {
                    Reference y = in[0];
                    for_each_place(shape, x, at, [&](size_t e, size_t p) { y[p] += in[1][e]; });
                    return y;
                  }});
  }
  const Tensor counts =
      scatter_add(tensor_of({0, 5}, {2}), 0, tensor_of({1, 0, 1}, {3}), tensor_of({1, 1, 1}, {3}));
  CHECK(values(counts) == std::vector<double>{1, 7});
}

TEST_CASE("index_add and index_copy") {
  const Numbers at = {3, 0, 3, 1};
  const Tensor indices = tensor_of(at, {4});
  check_op({.name = "index_add",
            .inputs = {{5, 3}, {4, 3}},
            .op = [=](const Variables& v) { return index_add(v[0], 0, indices, v[1]); },
            .reference =
                [=](const References& in) {
                  Reference y = in[0];
                  for (int64_t k = 0; k < 4; ++k)
                    for (int64_t i = 0; i < 3; ++i)
                      y.at({at[static_cast<size_t>(k)], i}) += in[1].at({k, i});
                  return y;
                }});
  const Numbers once = {3, 0, 1};
  check_op(
      {.name = "index_copy",
       .inputs = {{2, 5}, {2, 3}},
       .op = [=](const Variables& v) { return index_copy(v[0], 1, tensor_of(once, {3}), v[1]); },
       .reference =
           [=](const References& in) {
             Reference y = in[0];
             for (int64_t o = 0; o < 2; ++o)
               for (int64_t k = 0; k < 3; ++k)
                 y.at({o, once[static_cast<size_t>(k)]}) = in[1].at({o, k});
             return y;
           }});
}

TEST_CASE("index_add and index_copy of rows of all lengths, some of them named often") {
  for (const DType dtype : {f64, f32, f16, bf16, i64})
    for (const int64_t columns : {1, 2, 64, 70, 600, 1100, 2064})
      for (const int axis : {0, 1}) {
        const int64_t rows = 9, count = 23;
        const Shape whole = axis == 0 ? Shape{rows, columns} : Shape{columns, rows};
        const Shape part = axis == 0 ? Shape{count, columns} : Shape{columns, count};
        const auto drawn = [&](const Shape& shape, uint64_t seed) {
          Reference r = random_reference(shape, seed, -8, 8);
          for (double& v : r.values) v = std::round(v);  // so that no sum is rounded
          return r;
        };
        const Reference x = drawn(whole, 1), source = drawn(part, 2);
        Reference added = x, copied = x;
        Numbers at;
        for (int64_t k = 0; k < count; ++k) at.push_back(k * k % rows);
        for (int64_t k = 0; k < count; ++k)
          for (int64_t i = 0; i < columns; ++i) {
            const int64_t row = at[static_cast<size_t>(k)];
            const double v = axis == 0 ? source.at({k, i}) : source.at({i, k});
            (axis == 0 ? added.at({row, i}) : added.at({i, row})) += v;
            (axis == 0 ? copied.at({row, i}) : copied.at({i, row})) = v;
          }
        const Tensor t = x.tensor(dtype, test_device()), s = source.tensor(dtype, test_device());
        const Tensor indices = tensor_of(at, {count});
        CHECK(Reference::of(index_add(t, axis, indices, s)).values == added.values);
        CHECK(Reference::of(index_copy(t, axis, indices, s)).values == copied.values);
        CHECK(Reference::of(t).values == x.values);
        const Tensor turned = contiguous(t.transpose(0, 1)).transpose(0, 1);
        CHECK(Reference::of(index_add(turned, axis, indices, s)).values == added.values);
        CHECK(Reference::of(index_copy(turned, axis, indices, s)).values == copied.values);
      }
}

TEST_CASE("index_add rounds once, and both leave what is not named") {
  const Tensor x = full({2, 64}, 256, bf16, test_device());
  Reference little({2, 64});
  for (size_t i = 0; i < little.values.size(); ++i) little[i] = i < 64 ? 1 : 0x1p-9;
  const auto y =
      values(index_add(x, 0, tensor_of({1, 1}, {2}), little.tensor(bf16, test_device())));
  CHECK((y[0] == 256 && y[64] == 258));  // with their sum rounded, 1, it were 256
  const Tensor none = Tensor::empty({0, 64}, bf16, test_device());
  CHECK(values(index_add(x, 0, tensor_of({}, {0}), none)) == values(x));
  CHECK(values(index_copy(x, 0, tensor_of({}, {0}), none)) == values(x));
}

TEST_CASE("take, index and index_put") {
  const Tensor i = tensor_of({2, 0, 2}, {3}), j = tensor_of({1, 1, 0}, {3});
  check_op({.name = "take",
            .inputs = {{3, 4}},
            .op =
                [=](const Variables& v) {
                  return take(v[0], tensor_of({11, 0, 11, 5}, {2, 2}));
                },
            .reference =
                [](const References& in) {
                  Reference y({2, 2});
                  y.values = {in[0][11], in[0][0], in[0][11], in[0][5]};
                  return y;
                }});
  const auto rows = [](int64_t k) {
    return std::array<int64_t, 3>{5, 1, 4}[static_cast<size_t>(k)];
  };
  check_op({.name = "index",
            .inputs = {{3, 2, 4}},
            .op =
                [=](const Variables& v) {
                  return index(v[0], {i, j});
                },
            .reference =
                [=](const References& in) {
                  Reference y({3, 4});
                  for (int64_t k = 0; k < 3; ++k)
                    for (int64_t c = 0; c < 4; ++c)
                      y.at({k, c}) = in[0][static_cast<size_t>(rows(k) * 4 + c)];
                  return y;
                }});
  for (const bool accumulate : {false, true})
    check_op({.name = "index_put",
              .inputs = {{3, 2, 4}, {4}},
              .op =
                  [=](const Variables& v) {
                    return index_put(v[0], {i, j}, v[1], accumulate);
                  },
              .reference =
                  [=](const References& in) {
                    Reference y = in[0];
                    for (int64_t k = 0; k < 3; ++k)
                      for (int64_t c = 0; c < 4; ++c) {
                        double& to = y[static_cast<size_t>(rows(k) * 4 + c)];
                        to = in[1][static_cast<size_t>(c)] + (accumulate ? to : 0);
                      }
                    return y;
                  }});
}

TEST_CASE("indices outside throw on the CPU, and are NaN or nothing on CUDA") {
  const Tensor x = random_reference({2, 3}, 1).tensor(f32, test_device());
  const Tensor index = tensor_of({0, 3}, {2, 1});
  const Tensor one = random_reference({2, 1}, 2).tensor(f32, test_device());
  if (test_device().is_cpu()) {
    CHECK_THROWS_WITH_AS(gather(x, 1, index), "gather: index 3 is outside of an axis of 3", Error);
    CHECK_THROWS_WITH_AS(scatter(x, 1, index, one), "scatter: index 3 is outside of an axis of 3",
                         Error);
    Numbers many(6000, 2);
    many[5000] = -7;
    const Tensor dense = tensor_of(many, {1, 6000});
    for (const Tensor& line : {dense, dense.view({3000, 2}).slice(1, 0, 1).transpose(0, 1)})
      CHECK_THROWS_WITH_AS(gather(x.slice(0, 0, 1), 1, line),
                           "gather: index -7 is outside of an axis of 3", Error);
    CHECK_THROWS_WITH_AS(bs::index(x, {tensor_of({-1}, {1})}),
                         "index: indices from -1 to -1 of axis 0 are not within [0, 2)", Error);
    CHECK_THROWS_WITH_AS(index_add(x, 0, tensor_of({2}, {1}), x.slice(0, 0, 1)),
                         "index_add: indices from 2 to 2 are not within [0, 2)", Error);
    CHECK_THROWS_WITH_AS(index_copy(x, 0, tensor_of({2}, {1}), x.slice(0, 0, 1)),
                         "index_copy: index 2 is outside of an axis of 2", Error);
    return;
  }
  const auto y = values(gather(x, 1, index));
  CHECK((y[0] == values(x)[0] && std::isnan(y[1])));
  CHECK(values(scatter(x, 1, index, one))[0] == values(one)[0]);
  CHECK(values(scatter_add(x, 1, index, one))[3] == values(x)[3]);
  CHECK(std::isnan(values(bs::index(x, {tensor_of({-1}, {1})}))[0]));
  const Tensor wide = ones({2, 64}, f32, test_device());
  for (const int64_t outside : {-1, 2}) {
    CHECK(values(index_copy(wide, 0, tensor_of({outside}, {1}), wide.slice(0, 0, 1))) ==
          values(wide));
    CHECK(values(index_put(wide, {tensor_of({outside}, {1})}, wide.slice(0, 0, 1))) ==
          values(wide));
    CHECK(values(index_add(wide, 0, tensor_of({outside}, {1}), wide.slice(0, 0, 1))) ==
          values(wide));
  }
}

TEST_CASE("nonzero, masked_select, masked_fill, one_hot") {
  const Tensor x =
      Tensor::from<float>({0, 2, std::numeric_limits<float>::quiet_NaN(), 0, -1, 0}, {2, 3})
          .to(test_device());
  CHECK(values(flat_nonzero(x)) == std::vector<double>{1, 2, 4});
  CHECK(values(nonzero(x)) == std::vector<double>{0, 1, 0, 2, 1, 1});
  CHECK(nonzero(x).shape() == Shape{3, 2});
  CHECK(nonzero(Tensor::empty({0, 2}, f32, test_device())).shape() == Shape{0, 2});
  const Tensor mask = Tensor::from<bool>({true, false, true}).to(test_device());
  check_op({.name = "masked_select",
            .inputs = {{2, 3}},
            .op = [=](const Variables& v) { return masked_select(v[0], mask); },
            .reference =
                [](const References& in) {
                  Reference y({4});
                  y.values = {in[0][0], in[0][2], in[0][3], in[0][5]};
                  return y;
                }});
  check_op({.name = "masked_fill",
            .inputs = {{2, 3}},
            .op = [=](const Variables& v) { return masked_fill(v[0], mask, 0.5); },
            .reference =
                [](const References& in) {
                  Reference y = in[0];
                  for (const size_t i : {0, 2, 3, 5}) y[i] = 0.5;
                  return y;
                }});
  CHECK(values(one_hot(tensor_of({1, 0, 7}, {3}), 2)) == std::vector<double>{0, 1, 1, 0, 0, 0});
}

TEST_CASE("gather and its kin refuse what does not fit") {
  const Tensor x = Tensor::empty({2, 3}, f32);
  CHECK_THROWS_WITH_AS(gather(x, 1, Tensor::empty({3, 1}, i64)),
                       "gather: index [3, 1] for shape [2, 3] along axis 1", Error);
  CHECK_THROWS_WITH_AS(gather(x, 1, Tensor::empty({2, 1}, f32)),
                       "gather: dtype f32 is not supported; expected i64 or i32", Error);
  CHECK_THROWS_WITH_AS(scatter(x, 1, Tensor::empty({2, 1}, i64), Tensor::empty({2, 2}, f32)),
                       "scatter: source [2, 2] for index [2, 1]", Error);
  CHECK_THROWS_WITH_AS(index_add(x, 0, Tensor::empty({2}, i64), Tensor::empty({1, 3}, f32)),
                       "index_add: source [1, 3], expected [2, 3]", Error);
  CHECK_THROWS_WITH_AS(masked_select(x, Tensor::empty({2}, boolean)),
                       "masked_select: shapes [2, 3] and [2] do not broadcast (3 against 2)",
                       Error);
}
