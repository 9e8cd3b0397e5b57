// Scattering a number, or into zeros, where nothing is copied first.
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>
#include <bs/kernels/sort.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {
std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }
}  // namespace

TEST_CASE("scatter a number into many rows, into few and beside an index that covers a part") {
  for (const DType dtype : {f64, f32, bf16, i64, u8})
    for (const Shape& shape : {Shape{200, 300, 1}, Shape{70, 256, 1}, Shape{2, 50, 7}})
      for (const int64_t part : {int64_t{0}, int64_t{1}}) {
        Shape of_index = shape;
        of_index[0] -= part;
        of_index[1] = 160;
        Reference x(shape), index(of_index);
        for (size_t i = 0; i < x.values.size(); ++i) x[i] = static_cast<double>(i % 100);
        for (size_t i = 0; i < index.values.size(); ++i)
          index[i] = static_cast<double>(i * 31 % 45);
        Reference expected = x;
        for (int64_t o = 0; o < of_index[0]; ++o)
          for (int64_t k = 0; k < of_index[1]; ++k)
            for (int64_t i = 0; i < of_index[2]; ++i)
              expected.at({o, static_cast<int64_t>(index.at({o, k, i})), i}) = 7;
        const Tensor at = index.tensor(i64, test_device());
        CHECK(values(scatter(x.tensor(dtype, test_device()), 1, at, 7)) == expected.values);
      }
}

TEST_CASE("the gradient of a sort goes to the places that were chosen, and is 0 elsewhere") {
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const auto& [rows, n, kept] :
         {std::array<int64_t, 3>{64, 512, 512}, {64, 300, 200}, {3, 90, 90}, {40, 136, 130}}) {
      Reference index({rows, kept}), dy({rows, kept}), expected({rows, n});
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t k = 0; k < kept; ++k) {
          const int64_t place = (k * 7 + r) % n;  // 7 divides none of the lengths
          index.at({r, k}) = static_cast<double>(place);
          dy.at({r, k}) = static_cast<double>((r * 3 + k) % 11) - 5;
          expected.at({r, place}) = dy.at({r, k});
        }
      const Tensor dx = sort_backward(dy.tensor(dtype, test_device()),
                                      index.tensor(i64, test_device()), {rows, n}, 1);
      CHECK(values(dx) == expected.values);
    }
}
