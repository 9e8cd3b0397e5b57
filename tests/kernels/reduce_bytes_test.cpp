#include <bs/kernels/compare.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/reduce.h>
#include <bs/lib/peak_memory.h>
#include <bs/tests/kernels/reduce_reference.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

#include <vector>

using namespace bs;
using namespace bs::test;

TEST_CASE("reductions of bytes: every way through, by integers counted one by one") {
  for (const auto& [shape, axes] : reduction_cases) {
    std::vector<uint8_t> values(static_cast<size_t>(shape.product()));
    Reference r(shape), ones(shape);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<uint8_t>(i * 37 % 256);
      r[i] = values[i];
      ones[i] = values[i] > 100 ? 1 : 0;
    }
    const Tensor x = on_device(Tensor::from<uint8_t>(values, shape));
    const Tensor flags = on_device(gt(Tensor::from<uint8_t>(values, shape), 100));
    const std::string extents = to_string(shape);
    CAPTURE(extents);
    CHECK(Reference::of(sum(x, axes)).values == sum_of(r, axes, false).values);
    CHECK(Reference::of(amax(x, axes)).values == extremum_of(r, axes, false, 1).values);
    CHECK(Reference::of(amin(x, axes)).values == extremum_of(r, axes, false, -1).values);
    CHECK(Reference::of(sum(flags, axes)).values == sum_of(ones, axes, false).values);
    CHECK(Reference::of(amax(flags, axes)).values == extremum_of(ones, axes, false, 1).values);
  }
  const Tensor x = on_device(Tensor::from<uint8_t>({3, 255, 255, 9, 0, 200}, {2, 3}));
  CHECK(Reference::of(argmax(x)).values == std::vector<double>{1, 2});
  CHECK(Reference::of(argmax(x, 0)).values == std::vector<double>{1, 0, 0});
}

TEST_CASE("reductions of bytes make no wide copy of them") {
  const int64_t n = int64_t{1} << 20;
  for (const DType dtype : {u8, boolean}) {
    const Tensor x = full({n / 64, 64}, 1, dtype, test_device());
    const auto check = [&](const char* name, const auto& reduction) {
      CAPTURE(name);
      const PeakMemory peak(test_device());
      reduction();
      CHECK(peak.bytes() < n);
    };
    check("sum", [&] { CHECK(sum(x).item() == static_cast<double>(n)); });
    check("rows", [&] { sum(x, 1); });
    check("columns", [&] { sum(x, 0); });
    check("amax", [&] { CHECK(amax(x).item() == 1); });
    check("amin", [&] { CHECK(amin(x).item() == 1); });
    check("argmax", [&] { argmax(x, 0); });
  }
}

TEST_CASE("reductions of more than 2^34 bytes in a row, on a GPU; of a few on the CPU") {
  const int64_t n = (int64_t{1} << (test_device().is_cuda() ? 34 : 14)) + 4099;
  const Tensor x = zeros({n}, u8, test_device());
  const auto put = [&](int64_t at, double value) { fill(x.slice(0, at, at + 1), value); };
  for (const int64_t at : {int64_t{0}, int64_t{1}, n / 2, n - 4098, n - 1}) put(at, 1);
  for (const int64_t first : {0, 1}) {  // a row that begins where packs do, and one that doesn't
    const Tensor row = x.slice(0, first, n);
    CHECK(sum(row).item() == static_cast<double>(5 - first));
    CHECK(argmax(row).item() == 0);
  }
  put(n - 4098, 7);
  CHECK(argmax(x).item() == static_cast<double>(n - 4098));
  CHECK(amax(x).item() == 7);
}
