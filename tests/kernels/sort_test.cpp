#include <bs/autograd/scan.h>
#include <bs/autograd/sort.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/scan.h>
#include <bs/kernels/sort.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

using namespace bs;
using namespace bs::test;

namespace {

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }
template <class T>
Tensor vector(std::initializer_list<T> v) {
  return Tensor::from<T>(v).to(test_device());
}

/// The positions of row r of [rows, n] in order, equal ones as they stand.
std::vector<size_t> order_of(const Reference& x, size_t r, bool descending) {
  const auto n = static_cast<size_t>(x.shape[1]);
  std::vector<size_t> at(n);
  std::iota(at.begin(), at.end(), r * n);
  std::stable_sort(at.begin(), at.end(),
                   [&](size_t a, size_t b) { return descending ? x[a] > x[b] : x[a] < x[b]; });
  return at;
}

}  // namespace

TEST_CASE("sort and topk") {
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 7}, Shape{5, 300}, Shape{0, 4}})
    for (const bool descending : {false, true}) {
      const int64_t k = (shape[1] + 1) / 2;
      const auto reference = [=](const References& in, int64_t most) {
        Reference y({shape[0], most});
        for (int64_t r = 0; r < shape[0]; ++r) {
          const auto at = order_of(in[0], static_cast<size_t>(r), descending);
          for (int64_t j = 0; j < most; ++j) y.at({r, j}) = in[0][at[static_cast<size_t>(j)]];
        }
        return y;
      };
      check_op({.name = "sort",
                .inputs = {shape},
                .op = [=](const Variables& v) { return sort(v[0], 1, descending).values; },
                .reference = [=](const References& in) { return reference(in, shape[1]); },
                .dtypes = {f64, f32}});
      check_op({.name = "topk",
                .inputs = {shape},
                .op = [=](const Variables& v) { return topk(v[0], k, -1, descending).values; },
                .reference = [=](const References& in) { return reference(in, k); },
                .dtypes = {f64, f32}});
    }
}

TEST_CASE("positions are those of a stable sort, in every dtype") {
  const Reference x = random_reference({40, 50}, 3, 0, 9);
  for (const DType dtype : {f64, f32, f16, bf16, i64, i32, u8, boolean}) {
    const Tensor rounded = x.tensor(dtype, test_device());
    const Reference seen = Reference::of(rounded);
    for (const bool descending : {false, true}) {
      const auto at = values(argsort(rounded, 1, descending));
      bool right = true;
      for (size_t r = 0; r < 40; ++r) {
        const auto expected = order_of(seen, r, descending);
        for (size_t j = 0; j < 50; ++j)
          right = right && at[r * 50 + j] == static_cast<double>(expected[j] - r * 50);
      }
      CHECK_MESSAGE(right, to_string(dtype));
    }
  }
  const Tensor turned = x.tensor(f32, test_device()).transpose(0, 1);
  CHECK(values(argsort(turned, 0)) == values(argsort(contiguous(turned), 0)));
}

TEST_CASE("short rows, of which a block sorts several") {
  for (const Shape& shape :
       {Shape{700, 1}, Shape{301, 7}, Shape{9, 100}, Shape{5, 128}, Shape{5, 129}})
    for (const bool descending : {false, true})
      for (const DType dtype : {f32, f16, bf16, i32, u8}) {
        CAPTURE(to_string(shape));
        Reference x(shape);
        for (size_t i = 0; i < x.values.size(); ++i) x[i] = static_cast<double>(i * i % 23);
        const int64_t n = shape[1], k = (n + 2) / 3;
        const Tensor t = x.tensor(dtype, test_device());
        const auto all = values(sort(t, 1, descending).indices);
        const auto first = values(topk(t, k, -1, descending).indices);
        bool same = true;
        for (int64_t r = 0; r < shape[0]; ++r) {
          const auto order = order_of(x, static_cast<size_t>(r), descending);
          for (int64_t j = 0; j < n; ++j) {
            const auto place =
                static_cast<double>(order[static_cast<size_t>(j)]) - static_cast<double>(r * n);
            same = same && all[static_cast<size_t>(r * n + j)] == place;
            if (j < k) same = same && first[static_cast<size_t>(r * k + j)] == place;
          }
        }
        CHECK(same);
      }
}

TEST_CASE("rows about as long as a block of threads sorts") {
  int number = 0;
  for (const int64_t n : {1023, 1024, 1025, 2048, 2049, 4095, 4096, 4097})
    for (const DType dtype : {f32, f16, bf16, i32, f64}) {
      if (!is_sampled(number++)) continue;
      const Reference x = random_reference({3, n}, static_cast<uint64_t>(n), -600, 600);
      const Tensor drawn = x.tensor(dtype, test_device());  // many are alike
      const Reference seen = Reference::of(drawn);
      for (const bool descending : {false, true}) {
        const auto at = values(argsort(drawn, 1, descending));
        const auto best = values(topk(drawn, 5, 1, descending).indices);
        bool right = true;
        for (size_t r = 0; r < 3; ++r) {
          const auto expected = order_of(seen, r, descending);
          const auto rows = static_cast<size_t>(n);
          for (size_t j = 0; j < rows; ++j) {
            const auto place = static_cast<double>(expected[j] - r * rows);
            right = right && at[r * rows + j] == place;
            if (j < 5) right = right && best[r * 5 + j] == place;
          }
        }
        CAPTURE(n);
        CAPTURE(descending);
        CHECK_MESSAGE(right, to_string(dtype));
      }
    }
}

namespace {

/// Rows [rows, n] of one kind: drawn at random, of five values, all alike, or a third NaN.
Tensor rows_of_kind(const char* kind, const Shape& shape, DType dtype) {
  Reference x = random_reference(shape, static_cast<uint64_t>(shape[1]), 0, 250);
  const std::string is = kind;
  for (size_t i = 0; i < x.values.size(); ++i) {
    if (is == "few") x[i] = static_cast<double>(i * i % 5);
    if (is == "alike") x[i] = 7;
    if (is == "not numbers" && i % 3 == 1) x[i] = std::numeric_limits<double>::quiet_NaN();
  }
  return x.tensor(dtype, test_device());
}

/// The positions of row r in order, NaN above everything and equal ones as they stand.
std::vector<int64_t> places_of(const Reference& x, int64_t r, bool descending) {
  const int64_t n = x.shape[1];
  std::vector<int64_t> at(static_cast<size_t>(n));
  std::iota(at.begin(), at.end(), 0);
  const auto value = [&](int64_t i) {
    const double v = x[static_cast<size_t>(r * n + i)];
    return std::pair(std::isnan(v), std::isnan(v) ? 0 : v);
  };
  std::stable_sort(at.begin(), at.end(), [&](int64_t a, int64_t b) {
    return descending ? value(a) > value(b) : value(a) < value(b);
  });
  return at;
}

}  // namespace

TEST_CASE("the first few of rows of any length, whatever is alike in them") {
  int number = 0;
  for (const Shape& shape :
       {Shape{3, 1}, Shape{9, 129}, Shape{3, 1000}, Shape{2, 1024}, Shape{2, 4090}, Shape{3, 4096},
        Shape{2, 4097}, Shape{3, 20000}, Shape{1, 40003}, Shape{1, 100000}})
    for (const char* const kind : {"random", "few", "alike", "not numbers"})
      for (const DType dtype : {f32, bf16, u8}) {
        if (dtype == u8 && std::string(kind) == "not numbers") continue;
        if (!is_sampled(number++)) continue;
        const Tensor x = rows_of_kind(kind, shape, dtype);
        const Reference seen = Reference::of(x);
        const int64_t n = shape[1];
        for (const bool descending : {false, true}) {
          std::vector<std::vector<int64_t>> order;
          for (int64_t r = 0; r < shape[0]; ++r) order.push_back(places_of(seen, r, descending));
          for (const int64_t k : {int64_t{1}, int64_t{16}, n / 16, n / 8, int64_t{2048}, n}) {
            if (k < 1 || k > n) continue;
            const auto at = values(topk(x, k, 1, descending).indices);
            bool right = true;
            for (int64_t e = 0; e < shape[0] * k; ++e)
              right =
                  right && at[static_cast<size_t>(e)] ==
                               static_cast<double>(
                                   order[static_cast<size_t>(e / k)][static_cast<size_t>(e % k)]);
            CAPTURE(to_string(shape));
            CAPTURE(kind);
            CAPTURE(k);
            CHECK_MESSAGE(right, to_string(dtype));
          }
        }
      }
}

TEST_CASE("order of what is not finite, and of zeros and extreme integers") {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = vector<float>({std::numeric_limits<float>::quiet_NaN(), 0.F, inf, -0.F, -inf});
  CHECK(values(argsort(x)) == std::vector<double>{4, 1, 3, 2, 0});
  CHECK(values(argsort(x, 0, true)) == std::vector<double>{0, 2, 1, 3, 4});
  CHECK(min(x, 0).indices.item() == 0);
  CHECK(max(x, 0).indices.item() == 0);
  const int64_t lowest = std::numeric_limits<int64_t>::min();
  const Tensor ends = vector<int64_t>({5, lowest, -1, std::numeric_limits<int64_t>::max()});
  CHECK(values(argsort(ends)) == std::vector<double>{1, 2, 0, 3});
  CHECK(argmin(ends).item() == 1);
}

TEST_CASE("kthvalue, max and min with positions") {
  const auto check = [](const char* name, auto op, size_t rank) {
    check_op({.name = name,
              .inputs = {{4, 6}},
              .op = [=](const Variables& v) { return op(v[0]).values; },
              .reference =
                  [=](const References& in) {
                    Reference y({4});
                    for (size_t r = 0; r < 4; ++r) y[r] = in[0][order_of(in[0], r, false)[rank]];
                    return y;
                  },
              .dtypes = {f64, f32}});
  };
  check(
      "kthvalue", [](const Variable& x) { return kthvalue(x, 3, 1); }, 2);
  check(
      "max", [](const Variable& x) { return max(x, 1); }, 5);
  check(
      "min", [](const Variable& x) { return min(x, 1); }, 0);
  const Tensor x = vector<int64_t>({3, 1, 2, 1});
  CHECK(argmin(x).item() == 1);
  CHECK(max(x, 0, true).values.shape() == Shape{1});
  CHECK_THROWS_WITH_AS(topk(x, 5), "topk: 5 elements of an axis of 4", Error);
  CHECK_THROWS_WITH_AS(kthvalue(x, 0), "kthvalue: k is 0; it counts from 1", Error);
}

TEST_CASE("cumsum of many lines and of few, from both ends, where vectors begin and where not") {
  // Of rows, and of columns: cut and whole ones, a few matrices of some, and a thread for each
  // pack.
  int number = 0;
  for (const Shape& shape :
       {Shape{600, 37, 1}, Shape{520, 2056, 1}, Shape{515, 2051, 1}, Shape{3, 4104, 1},
        Shape{1, 1100, 520}, Shape{2, 1537, 24}, Shape{3, 515, 7}, Shape{40, 33, 264},
        Shape{2, 11, 131072}, Shape{2, 9001, 136}})
    for (const DType dtype : {f64, f32, i64, bf16, f16})
      for (const bool reverse : {false, true}) {
        if (!is_sampled(number++)) continue;
        Reference x = random_reference(shape, 5, -9, 9);
        for (double& v : x.values) v = std::round(v);  // whole numbers: sums are exact
        Reference y = x;
        const int64_t n = shape[1], inner = shape[2];
        for (int64_t line = 0; line < shape[0] * inner; ++line) {
          const auto at = [&](int64_t k) {
            const int64_t row = line / inner * n + (reverse ? n - 1 - k : k);
            return static_cast<size_t>(row * inner + line % inner);
          };
          double running = 0;
          for (int64_t k = 0; k < n; ++k) {
            // Sums of 16 bits end at zero every third time, so that they are exact too.
            if (is_low_precision(dtype) && k % 3 == 2) x[at(k)] = -x[at(k - 1)] - x[at(k - 2)];
            y[at(k)] = running += x[at(k)];
          }
        }
        CAPTURE(to_string(shape));
        CAPTURE(reverse);
        CHECK(values(cumsum(x.tensor(dtype, test_device()), 1, reverse)) == y.values);
      }
}

TEST_CASE("cumsum and cumprod along rows") {
  for (const Shape& shape : {Shape{3, 7}, Shape{2, 1}, Shape{1, 5000}, Shape{0, 3}, Shape{2, 0}}) {
    const bool large = shape[1] > 100;
    const auto scanned = [=](const Reference& x, double start, auto step) {
      Reference y = x;
      for (int64_t r = 0; r < shape[0]; ++r) {
        double running = start;
        for (int64_t j = 0; j < shape[1]; ++j) y.at({r, j}) = running = step(running, x.at({r, j}));
      }
      return y;
    };
    check_op({.name = "cumsum",
              .inputs = {shape},
              .op = [](const Variables& v) { return cumsum(v[0], 1); },
              .reference =
                  [=](const References& in) {
                    return scanned(in[0], 0, [](double a, double b) { return a + b; });
                  },
              .steps = large ? 64.0 : 16.0,  // a running sum's error grows with its length
              .dtypes = {f64, f32, f16, bf16}});
    if (large) continue;
    check_op({.name = "cumprod",
              .inputs = {shape},
              .op = [](const Variables& v) { return cumprod(v[0], 1); },
              .reference =
                  [=](const References& in) {
                    return scanned(in[0], 1, [](double a, double b) { return a * b; });
                  },
              .low = 0.5,
              .high = 1.5});
  }
}

TEST_CASE("cumsum of columns, products, and other dtypes") {
  const Reference factors = random_reference({1, 4100}, 7, 0.99, 1.01);
  double product = 1;
  for (double v : factors.values) product *= v;
  CHECK(prod(factors.tensor(f64, test_device()), 1).item() == doctest::Approx(product));
  check_op({.name = "cumsum along a first axis",
            .inputs = {{4, 3}},
            .op = [](const Variables& v) { return cumsum(v[0], 0); },
            .reference =
                [](const References& in) {
                  Reference y = in[0];
                  for (int64_t i = 1; i < 4; ++i)
                    for (int64_t j = 0; j < 3; ++j) y.at({i, j}) += y.at({i - 1, j});
                  return y;
                }});
  check_op({.name = "prod",
            .inputs = {{3, 4}},
            .op = [](const Variables& v) { return prod(v[0], 1); },
            .reference =
                [](const References& in) {
                  Reference y({3});
                  for (size_t r = 0; r < 3; ++r) {
                    y[r] = 1;
                    for (size_t j = 0; j < 4; ++j) y[r] *= in[0][r * 4 + j];
                  }
                  return y;
                },
            .low = 0.5,
            .high = 1.5});
  CHECK(values(cumsum(vector<bool>({true, true, false}), 0)) == std::vector<double>{1, 2, 2});
  CHECK(values(cumprod(vector<int32_t>({2, 3, -1}), 0)) == std::vector<double>{2, 6, -6});
  CHECK(prod(Tensor::empty({2, 0}, f32, test_device()), 1).shape() == Shape{2});
}

TEST_CASE("the gradient of cumprod where there are zeros") {
  for (const auto& row :
       {std::vector<double>{2, 0, 3, 4}, {0, 2, 0, 5}, {0, 0, 0, 1}, {1, 2, 3, 0}}) {
    Reference x({4});
    x.values = row;
    const Variable v(x.tensor(f64, test_device()), true);
    const Reference dy = random_reference({4}, 2);
    cumprod(v, 0).backward(dy.tensor(f64, test_device()));
    const Reference actual = Reference::of(v.grad());
    for (size_t i = 0; i < 4; ++i) {
      double expected = 0, others = 1;  // the product of x[0 .. j] without x[i]
      for (size_t j = 0; j < 4; ++j) {
        if (j != i) others *= row[j];
        if (j >= i) expected += dy[j] * others;
      }
      CHECK(actual[i] == doctest::Approx(expected));
    }
  }
}

TEST_CASE("a single long row, of short keys") {
  for (const DType dtype : {f64, f32, f16, bf16, i64, i32, u8, boolean}) {
    Reference x({1, 9001});
    for (size_t i = 0; i < x.values.size(); ++i)
      x[i] = static_cast<double>(i * i % 251) - (is_floating(dtype) ? 100 : 0);
    const Tensor t = x.tensor(dtype, test_device());
    const Reference seen = Reference::of(t);
    for (const bool descending : {false, true}) {
      const auto at = values(argsort(t, 1, descending));
      const auto expected = order_of(seen, 0, descending);
      CHECK_MESSAGE(at == std::vector<double>(expected.begin(), expected.end()), to_string(dtype));
    }
  }
}
