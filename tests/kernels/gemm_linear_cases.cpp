#include <bs/tests/kernels/gemm_cases.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

namespace bs::test {

namespace {

/// The range of integers that PyCUTLASS' tests draw, so narrow that sums are exact.
int range_of(Element e) { return size_of(e) == 1 ? 2 : e == Element::f16 ? 4 : 8; }

}  // namespace

GemmDescription small_gemm(const std::string& layouts, Element d) {
  return describe(math(Element::f16, Element::f32), {64, 64, 32}, 3, {2, 2, 1}, layouts, d);
}

double rounded(Element e, double x) {
  switch (e) {
    case Element::f16:
      return static_cast<double>(half(static_cast<float>(x)));
    case Element::bf16:
      return static_cast<double>(bfloat16(static_cast<float>(x)));
    case Element::i8:
      return std::clamp(std::nearbyint(x), -128.0, 127.0);
    case Element::i32:
      return std::nearbyint(x);
    default:
      return x;
  }
}

Linear::Linear(const GemmDescription& description, const Shape& batch, int64_t m, int64_t n,
               int64_t k, uint64_t seed) {
  const auto shape = [&](int64_t r, int64_t s) {
    Shape out = batch;
    out.push_back(r);
    out.push_back(s);
    return out;
  };
  const Element e = description.d.element;
  const int range = range_of(description.a.element);
  a = Matrix::integers(description.a.element, shape(m, k), description.a.layout, seed, -range,
                       range);
  b = Matrix::integers(description.b.element, shape(k, n), description.b.layout, seed + 1, -range,
                       range);
  c = Matrix::integers(e, shape(m, n), description.d.layout, seed + 2, -range_of(e), range_of(e));
  d = Matrix::poison(e, shape(m, n), description.d.layout);
}

GemmArguments Linear::arguments(double alpha, double beta, int slices) const {
  return {.a = a.tensor,
          .b = b.tensor,
          .d = d.tensor,
          .tensors = {{"c", c.tensor}},
          .scalars = {{"alpha", alpha}, {"beta", beta}},
          .slices = slices};
}

void Linear::check(double alpha, double beta) const {
  const std::vector<double> sums = product(a, b);
  const std::vector<double> actual = d.read();
  size_t wrong = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    const double expected = rounded(d.element, alpha * sums[i] + beta * c.values[i]);
    if (actual[i] != expected && ++wrong == 1)
      FAIL_CHECK("element ", i, " of ", to_string(d.shape), " is ", actual[i], ", not ", expected);
  }
  CHECK(wrong == 0);
}

}  // namespace bs::test
