// Products and norms over any axes.
#include <bs/kernels/scan.h>
#include <bs/kernels/vector_norm.h>
#include <bs/tests/kernels/reduce_reference.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace bs;
using namespace bs::test;

TEST_CASE("products and norms over any axes, in every dtype") {
  for (const ReductionCase& c : reduction_cases)
    for (const DType dtype : {f64, f32, f16, bf16})
      for (const bool keepdim : {false, true}) {
        // Near 1, that products of many stay far from the ends.
        const Tensor t = random_reference(c.shape, 5, 0.95, 1.05).tensor(dtype, test_device());
        const Reference x = Reference::of(t);
        Reference product(reduced(c.shape, c.axes, keepdim));
        std::fill(product.values.begin(), product.values.end(), 1.0);
        for_each_term(c.shape, c.axes, [&](size_t i, size_t r) { product[r] *= x[i]; });
        Reference norm = sums_of(x, c.axes, keepdim, [&](size_t i, size_t) { return x[i] * x[i]; });
        for (double& v : norm.values) v = std::sqrt(v);
        // Each factor rounds once more in the dtype of sums, and the result once.
        const double wide = epsilon(dtype == f64 ? f64 : f32);
        const double rounding = wide * count_of(x, product) + epsilon(dtype);
        check_close("prod", Reference::of(prod(t, c.axes, keepdim)), product,
                    rounding * largest(product));
        check_close("vector_norm", Reference::of(vector_norm(t, 2, c.axes, keepdim)), norm,
                    rounding * largest(norm));
      }
}

TEST_CASE("products of integers wrap around, and of bools are one where all are") {
  const Tensor x = on_device(Tensor::from<int64_t>({int64_t{1} << 62, 4, 3, -5, 7, 1}, {3, 2}));
  CHECK(Reference::of(prod(x, Dims{1})).values == std::vector<double>{0, -15, 7});
  CHECK(Reference::of(prod(x, Dims{0})).values[1] == -20);
  const Tensor flags = on_device(Tensor::from<bool>({true, true, false, true}, {2, 2}));
  CHECK(Reference::of(prod(flags, Dims{1})).values == std::vector<double>{1, 0});
}

TEST_CASE("products and norms of nothing, and of what is not finite") {
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(Reference::of(prod(on_device(Tensor::empty({2, 0}, f32)), Dims{1})).values ==
        std::vector<double>{1, 1});
  CHECK(Reference::of(vector_norm(on_device(Tensor::empty({2, 0}, f32)), 2, Dims{1})).values ==
        std::vector<double>{0, 0});
  for (const DType dtype : {f64, f32, f16, bf16}) {
    Reference r({3, 70});
    std::fill(r.values.begin(), r.values.end(), 1.0);
    r[40] = infinity;
    r[70 + 3] = -infinity;
    r[70 + 4] = 0;
    r[140 + 69] = std::nan("");
    const Tensor x = r.tensor(dtype, test_device());
    const auto product = Reference::of(prod(x, Dims{1})),
               norm = Reference::of(vector_norm(x, 2, Dims{1}));
    CHECK(product[0] == infinity);
    CHECK(std::isnan(product[1]));
    CHECK(std::isnan(product[2]));
    CHECK(norm[0] == infinity);
    CHECK(norm[1] == infinity);
    CHECK(std::isnan(norm[2]));
  }
}
