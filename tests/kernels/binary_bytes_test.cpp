#include <bs/autograd/rearrange.h>
#include <bs/kernels/arange.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/rounding.h>
#include <bs/kernels/where.h>
#include <bs/lib/memory.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

using namespace bs;
using namespace bs::test;

TEST_CASE("binary: bytes and bools give what numbers would") {
  const Device device = test_device();
  const Tensor bytes = Tensor::from<uint8_t>({0, 3, 200, 255}).to(device);
  const Tensor other = Tensor::from<uint8_t>({9, 3, 100, 255}).to(device);
  using Doubles = std::vector<double>;
  const auto of = [](const Tensor& y) { return Reference::of(y).values; };
  CHECK(of(minimum(bytes, other)) == Doubles{0, 3, 100, 255});
  CHECK(of(maximum(bytes, other)) == Doubles{9, 3, 200, 255});
  CHECK(of(minimum(bytes, 100)) == Doubles{0, 3, 100, 100});
  // A number beyond the range of bytes is compared as it is, and wraps as it comes back.
  CHECK(of(minimum(bytes, 1000)) == of(bytes));
  CHECK(of(maximum(bytes, -1)) == of(bytes));
  const Tensor p = Tensor::from<bool>({false, false, true, true}).to(device);
  const Tensor q = Tensor::from<bool>({false, true, false, true}).to(device);
  CHECK(of(p + q) == Doubles{0, 1, 1, 1});
  CHECK(of(p - q) == Doubles{0, 1, 1, 0});
  CHECK(of(p * q) == Doubles{0, 0, 0, 1});
  CHECK(of(minimum(p, q)) == Doubles{0, 0, 0, 1});
  CHECK(of(maximum(p, q)) == Doubles{0, 1, 1, 1});
  CHECK((p * q).dtype() == boolean);
}

TEST_CASE("binary: every byte beside numbers, also those that are no bytes, and beside bytes") {
  const Tensor bytes = cast(arange(256, i64), u8).to(test_device());
  const auto check = [](const Tensor& y, const auto& f) {
    CHECK(y.dtype() == u8);
    const Reference result = Reference::of(y);
    size_t wrong = 0;
    for (int64_t i = 0; i < 256; ++i)
      wrong += result[static_cast<size_t>(i)] != static_cast<uint8_t>(f(i));
    CHECK(wrong == 0);
  };
  const auto power = [](int64_t base, int64_t exponent) {
    if (exponent < 0) return base == 1 ? 1 : 0;
    int64_t result = 1;
    for (; exponent > 0; --exponent) result = result * base % 256;
    return static_cast<int>(result);
  };
  for (const int number : {-300, -3, -1, 0, 1, 2, 3, 5, 77, 255, 256, 300}) {
    CAPTURE(number);
    check(pow(bytes, number), [&](int64_t i) { return power(i, number); });
    check(pow(number, bytes), [&](int64_t i) { return power(number, i); });
    check(minimum(bytes, number), [&](int64_t i) { return std::min<int64_t>(i, number); });
    check(maximum(bytes, number), [&](int64_t i) { return std::max<int64_t>(i, number); });
  }
  check(pow(bytes, flip(bytes, {0})), [&](int64_t i) { return power(i, 255 - i); });
}

TEST_CASE("binary: arithmetic refuses integers that would wrap before it begins") {
  const auto x = [](DType dtype) { return Reference({2}).tensor(dtype, test_device()); };
  constexpr int64_t large = int64_t{1} << 40, least = std::numeric_limits<int32_t>::min();
  for (const DType dtype : {i32, u8}) {
    CAPTURE(dtype);
    for (const int64_t n : {large, -large, least - 1}) {
      CHECK_THROWS_AS(add(x(dtype), n), Error);
      CHECK_THROWS_AS(sub(n, x(dtype)), Error);
      CHECK_THROWS_AS(mul(x(dtype), n), Error);
      CHECK_THROWS_AS(pow(n, x(dtype)), Error);
      CHECK_THROWS_AS(remainder(x(dtype), n), Error);
      CHECK_THROWS_AS(maximum(x(dtype), n), Error);
      CHECK_THROWS_AS(add(Tensor::empty({0}, dtype), n), Error);
    }
    CHECK(minimum(x(dtype), least).dtype() == dtype);
    CHECK(div(x(dtype), large).dtype() == f32);  // divided in f32, which holds it
  }
  CHECK_THROWS_WITH_AS(
      minimum(x(i32), large),
      "minimum: number 1099511627776 beside i32 is not in [-2147483648, 2147483647]", Error);
  for (const DType dtype : {i64, boolean})
    CHECK(Reference::of(add(x(dtype), large))[1] == static_cast<double>(large));
  CHECK(add(x(bf16), large).dtype() == bf16);
}

TEST_CASE("binary: products of all pairs of bytes, and of any number of bytes, wherever they lie") {
  const Tensor all = cast(arange(256, i64), u8).to(test_device());
  const Tensor rows = clone(all.view({256, 1}).expand({256, 256}));
  const Tensor columns = clone(all.view({1, 256}).expand({256, 256}));
  const auto check = [](const Tensor& a, const Tensor& b) {
    const Reference y = Reference::of(mul(a, b)), x = Reference::of(a), z = Reference::of(b);
    size_t wrong = 0;
    for (size_t i = 0; i < y.values.size(); ++i)
      wrong += y[i] != static_cast<uint8_t>(static_cast<int>(x[i]) * static_cast<int>(z[i]));
    CHECK(wrong == 0);
  };
  check(rows, columns);
  check(rows.transpose(0, 1), columns);
  check(all.view({1, 256}).expand({256, 256}), columns);
  check(rows.slice(1, 0, 256, 2), columns.slice(1, 0, 128));
  const Tensor a = rows.view({65536}), b = columns.view({65536});
  for (const int64_t n : {0, 1, 3, 4, 5, 16, 20, 63, 2051, 65532})
    for (const int64_t first : {0, 1, 4}) {
      CAPTURE(n);
      CAPTURE(first);
      const int64_t end = std::min<int64_t>(first + n, 65536);
      check(a.slice(0, 65536 - end, 65536 - first), b.slice(0, first, end));
    }
}

TEST_CASE("binary: bytes make no wide copy of themselves") {
  const int64_t n = int64_t{1} << 20;
  const auto check = [&](const auto& operation) {
    reset_peak_memory(test_device());
    const int64_t before = memory_statistics(test_device()).in_use;
    operation();
    CHECK(memory_statistics(test_device()).peak - before < 2 * n);
  };
  for (const DType dtype : {u8, boolean}) {
    CAPTURE(dtype);
    const Tensor x = full({n}, 1, dtype, test_device());
    check([&] { pow(x, x); });
    check([&] { minimum(x, x); });
  }
  const Tensor x = full({n}, 3, u8, test_device());
  check([&] { pow(x, 2); });
  check([&] { pow(x, 300); });
  check([&] { pow(300, x); });
  check([&] { minimum(x, 1000); });
  check([&] { maximum(x, -1); });
}

TEST_CASE("arithmetic of bools: many of them, of any strides") {
  const auto bools = [](const Shape& shape, uint64_t seed) {
    Reference r = random_reference(shape, seed);
    for (double& v : r.values) v = v > 0;
    return r;
  };
  // Dense, transposed, one row for all, every second column.
  const Tensor p = bools({70, 1300}, 1).tensor(boolean, test_device());
  for (const Tensor& q :
       {bools({70, 1300}, 2).tensor(boolean, test_device()),
        bools({1300, 70}, 3).tensor(boolean, test_device()).transpose(0, 1),
        bools({1, 1300}, 4).tensor(boolean, test_device()).expand({70, 1300}),
        bools({70, 2600}, 5).tensor(boolean, test_device()).slice(1, 0, 2600, 2)}) {
    const Reference a = Reference::of(p), b = Reference::of(q);
    const auto check = [&](const Tensor& y, const auto& f) {
      CHECK(y.dtype() == boolean);
      const Reference result = Reference::of(y);
      size_t wrong = 0;
      for (size_t i = 0; i < a.values.size(); ++i) wrong += result[i] != f(a[i] != 0, b[i] != 0);
      CHECK(wrong == 0);
    };
    check(p + q, [](bool x, bool y) { return x || y; });
    check(p - q, [](bool x, bool y) { return x != y; });
    check(p * q, [](bool x, bool y) { return x && y; });
    check(minimum(p, q), [](bool x, bool y) { return x && y; });
    check(pow(p, q), [](bool x, bool y) { return x || !y; });
    check(maximum(q, p), [](bool x, bool y) { return x || y; });
  }
}

TEST_CASE("bools beside a bool stay bools, and have the values that tensors give") {
  Reference mask({4}), same({4});
  mask.values = {0, 1, 1, 0};
  const Tensor x = mask.tensor(boolean, test_device());
  for (const bool number : {false, true}) {
    same.values.assign(4, number ? 1 : 0);
    const Tensor other = same.tensor(boolean, test_device());
    const std::pair<Tensor, Tensor> pairs[] = {{x + number, x + other},
                                               {x - number, x - other},
                                               {x * number, x * other},
                                               {pow(x, number), pow(x, other)},
                                               {minimum(x, number), minimum(x, other)},
                                               {maximum(x, number), maximum(x, other)},
                                               {where(x, x, number), where(x, x, other)},
                                               {where(x, number, x), where(x, other, x)}};
    for (const auto& pair : pairs) {
      CHECK(pair.first.dtype() == boolean);
      CHECK(Reference::of(pair.first).values == Reference::of(pair.second).values);
    }
    CHECK((x / number).dtype() == f32);
    CHECK(Reference::of(eq(x, number)).values == Reference::of(eq(x, other)).values);
    CHECK(Reference::of(x < number).values == Reference::of(x < other).values);
  }
  CHECK(Reference::of(where(x, x, true)).values == std::vector<double>(4, 1));
  CHECK(Reference::of(x * true).values == mask.values);
}
