// Operands that repeat short rows: a CPU takes several rows of theirs at a time.
#include <bs/kernels/binary.h>
#include <bs/kernels/where.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

/// Whole numbers that every dtype holds, as do their sums.
Reference numbers(const Shape& shape, size_t factor) {
  Reference r(shape);
  for (size_t i = 0; i < r.values.size(); ++i) r[i] = static_cast<double>(i * factor % 101);
  return r;
}

/// The element of r, which repeats along its axes of extent 1, at element i of `shape`.
double repeated(const Reference& r, const Shape& shape, int64_t i) {
  int64_t at = 0, step = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (r.shape[axis] > 1) at += i % shape[axis] * step;
    i /= shape[axis];
    step *= r.shape[axis];
  }
  return r[static_cast<size_t>(at)];
}

struct Case {
  Shape shape, row;
};

}  // namespace

TEST_CASE("short rows are added to each row, wherever the cores meet") {
  const std::vector<Case> cases = {{{1, 5, 2}, {1, 1, 2}},          {{1, 20011, 3}, {1, 1, 3}},
                                   {{7, 301, 31}, {7, 1, 31}},      {{3, 1000, 64}, {1, 1, 64}},
                                   {{2, 70, 255}, {1, 1, 255}},     {{2, 70, 256}, {2, 1, 256}},
                                   {{2, 70, 257}, {1, 1, 257}},     {{5, 3, 40, 17}, {5, 1, 1, 17}},
                                   {{5, 3, 400, 17}, {1, 3, 1, 17}}};
  for (const DType dtype : {f64, f32, f16, bf16, i64, u8})
    for (const Case& c : cases) {
      CAPTURE(dtype);
      CAPTURE(c.shape);
      CAPTURE(c.row);
      const Reference x = numbers(c.shape, 7), row = numbers(c.row, 13);
      const Tensor a = x.tensor(dtype, test_device()), b = row.tensor(dtype, test_device());
      const Reference sums = Reference::of(add(a, b)), turned = Reference::of(add(b, a));
      Reference odd(c.shape);
      for (size_t i = 0; i < odd.values.size(); ++i) odd[i] = static_cast<double>(i % 3 == 1);
      const Reference chosen =
          Reference::of(where(odd.tensor(boolean, test_device()), b.expand(c.shape), a));
      int64_t wrong = 0;
      for (int64_t i = 0; i < c.shape.product(); ++i) {
        const auto at = static_cast<size_t>(i);
        const double other = repeated(row, c.shape, i), expected = x[at] + other;
        wrong += sums[at] != expected || turned[at] != expected ? 1 : 0;
        wrong += chosen[at] != (odd[at] != 0 ? other : x[at]) ? 1 : 0;
      }
      CHECK(wrong == 0);
    }
}
