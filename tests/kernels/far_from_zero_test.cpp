// Variances and norms of numbers that are far from zero and close to each other, or equal.
#include <bs/kernels/batch_norm.h>
#include <bs/kernels/group_norm.h>
#include <bs/kernels/image.h>
#include <bs/kernels/norm.h>
#include <bs/kernels/reduce.h>
#include <bs/tests/kernels/reduce_reference.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

/// Rows, columns, a few of them too, whose vectors and runs end in the middle or not, and several
/// runs of axes.
const std::vector<ReductionCase> cases = {{{3}, {0}},
                                          {{2, 33}, {1}},
                                          {{5, 512}, {1}},
                                          {{2, 8192}, {1}},
                                          {{2, 20011}, {1}},
                                          {{5000, 1, 7}, {0}},
                                          {{70, 3}, {0}},
                                          {{65, 1100}, {0}},
                                          {{3, 300, 61}, {1}},
                                          {{64, 3, 513}, {0, 2}},
                                          {{3, 2, 8200}, {0, 2}},
                                          {{4, 3, 5, 2, 40}, {0, 2, 4}},
                                          {{9000, 24}, {0}},
                                          {{1, 1}, {0}}};

double wide_step(DType dtype) { return epsilon(dtype == f64 ? f64 : f32); }

}  // namespace

TEST_CASE("equal numbers have no variance") {
  for (const ReductionCase& c : cases)
    for (const DType dtype : {f64, f32, f16, bf16})
      for (const double value : {12345.6, 1000.1, -0.1}) {
        Reference r(c.shape);
        std::fill(r.values.begin(), r.values.end(), value);
        const Tensor x = r.tensor(dtype, test_device());
        CAPTURE(to_string(c.shape));
        CAPTURE(dtype);
        // A GPU's means are off by a rounding or two.
        const double off = test_device().is_cpu() ? 0 : 4 * wide_step(dtype) * std::abs(value);
        for (const double v : Reference::of(stddev(x, c.axes, false, 0)).values) CHECK(v <= off);
        for (const double v : Reference::of(var(x, c.axes, false, 0)).values) CHECK(v <= off * off);
      }
}

TEST_CASE("the variance of numbers a million deviations from zero") {
  for (const ReductionCase& c : cases)
    for (const DType dtype : {f64, f32}) {
      const double centre = 1000, size = dtype == f64 ? 1e-9 : 1e-3;
      Reference r = random_reference(c.shape, 5, centre - size, centre + size);
      const Tensor x = r.tensor(dtype, test_device());
      r = Reference::of(x);
      const Reference expected = var_of(r, c.axes, false, 0);
      const Reference found = Reference::of(var(x, c.axes, false, 0));
      CAPTURE(to_string(c.shape));
      CAPTURE(dtype);
      // Means of a GPU are rounded, those of several runs of axes, and in f64 the reference's.
      const bool rounds = dtype == f64 || c.shape.rank() > 3 || !test_device().is_cpu();
      const double off = rounds ? 4 * wide_step(dtype) * centre : 0;
      for (size_t i = 0; i < expected.values.size(); ++i) {
        const double most = off * (off + std::sqrt(expected[i]));
        CHECK(std::abs(found[i] - expected[i]) <= 64 * wide_step(dtype) * expected[i] + most);
      }
    }
}

TEST_CASE("a number far from all others, or none, in a variance") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const int64_t n : {40, 8192, 9000})
    for (const int64_t at : {int64_t{0}, n / 2, n - 1})
      for (const Shape& shape : {Shape{n}, Shape{n, 5}}) {
        Reference r = random_reference(shape, 3, 1, 2);
        double& one = r[static_cast<size_t>(at * shape.product() / n)];
        one = 1e4;
        const Tensor x = r.tensor(f32, test_device());
        const Reference expected = var_of(Reference::of(x), {0}, false, 1);
        check_close("var", Reference::of(var(x, Dims{0})), expected,
                    64 * epsilon(f32) * largest(expected));
        for (const double value : {infinity, -infinity, std::nan("")}) {
          one = value;
          const Reference y = Reference::of(var(r.tensor(f32, test_device()), Dims{0}));
          CHECK(std::isnan(y[0]));
          for (size_t i = 1; i < y.values.size(); ++i) CHECK(y[i] < 1);
        }
      }
}

TEST_CASE("norms of equal numbers are zero") {
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const double value : {1000.1, 12345.6, -0.1}) {
      CAPTURE(dtype);
      CAPTURE(value);
      // Where a GPU's mean is off by a step, 1 / sqrt(eps) magnifies it.
      const double step = wide_step(dtype) * std::abs(value) * 317;
      const double most = test_device().is_cpu() ? 0 : 4 * step;
      const auto check = [&](const Tensor& y) { CHECK(largest(Reference::of(y)) <= most); };
      const auto equal = [&](const Shape& shape) {
        Reference r(shape);
        std::fill(r.values.begin(), r.values.end(), value);
        return r.tensor(dtype, test_device());
      };
      for (const int64_t n : {1, 7, 64, 512, 768, 4096, 8192, 20000}) {
        const Tensor x = equal({3, n});
        check(layer_norm(x, {}, {}).y);
        const Reference rms = Reference::of(rms_norm(x, {}, 0).y);
        // n squares are added up one after the other where a build has no vectors, each addition
        // off by half a step; the root halves that.
        const double off = (8 + static_cast<double>(n) / 4) * wide_step(dtype);
        for (const double v : rms.values)
          CHECK(std::abs(std::abs(v) - 1) <= off + epsilon(dtype) / 2);
      }
      for (const Shape& shape : {Shape{2, 4, 7, 7}, Shape{2, 4, 64, 64}, Shape{3, 36, 20, 20}})
        for (const bool last : {false, true}) {
          const Tensor x = last ? channels_last(equal(shape)) : equal(shape);
          check(batch_norm(x, {}, {}, {}).y);
          check(group_norm(x, {}, {}, {.groups = 2}).y);
        }
    }
}

TEST_CASE("layer_norm of numbers a million deviations from zero") {
  for (const int64_t n : {64, 512, 8192, 20000})
    for (const DType dtype : {f64, f32}) {
      const double centre = 1000, size = dtype == f64 ? 1e-9 : 1e-3;
      const Tensor x =
          random_reference({2, n}, 5, centre - size, centre + size).tensor(dtype, test_device());
      const Reference r = Reference::of(x);
      const Reference mean = mean_of(r, {1}, true), var = var_of(r, {1}, true, 0);
      const Reference y = Reference::of(layer_norm(x, {}, {}, 0).y);
      double worst = 0;
      for (size_t i = 0; i < y.values.size(); ++i) {
        const size_t row = i / static_cast<size_t>(n);
        const double deviation = std::sqrt(var[row]);
        // The mean is rounded, to f64 also in the reference.
        const double steps = dtype == f64 || !test_device().is_cpu() ? 2 : 0.51;
        const double most = steps * epsilon(dtype) * centre / deviation + 64 * epsilon(dtype);
        worst = std::max(worst, std::abs(y[i] - (r[i] - mean[row]) / deviation) / most);
      }
      CHECK(worst <= 1);
    }
}
