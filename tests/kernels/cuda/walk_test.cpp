#include <doctest/doctest.h>
#include <bs/kernels/cuda/walk.cuh>

#include <vector>

using namespace bs;
using namespace bs::cuda;

TEST_CASE("a divisor divides as the device does, by a multiplication") {
  const auto divide = [](const Divisor& d, uint32_t x) {
    const auto high = static_cast<uint32_t>((uint64_t{x} * d.factor) >> 32);
    return (high + x) >> d.shift;
  };
  constexpr uint32_t last = 0x7fffffff;
  for (const int64_t n :
       {1, 2, 3, 5, 7, 10, 64, 641, 4095, 65536, 1000003, 0x40000001, 0x7fffffff}) {
    const Divisor d(n);
    const auto number = static_cast<uint32_t>(n);
    for (const uint32_t x : {0U, 1U, number - 1, number, number / 2, last / number * number,
                             last / number * number - 1, last - 1, last, 123456789U})
      CHECK(divide(d, x) == x / number);
  }
}

TEST_CASE("a loop beyond 32 bits falls into parts that are not") {
  const Shape shape = {3, 70001, 60000};
  const std::array<Strides, 2> strides = {contiguous_strides(shape), Strides{1, 3, 210003}};
  const auto loop = ordered_loop<2>(shape, strides);
  CHECK(!fits_32_bits(loop));
  int64_t elements = 0, parts = 0, last[2] = {};
  for_each_part(loop, {}, [&](const StridedLoop<2>& part, const Offsets<2>& from) {
    CHECK(fits_32_bits(part));
    elements += part.numel();
    ++parts;
    for (int n = 0; n < 2; ++n)
      last[n] = std::max(last[n], from[static_cast<size_t>(n)] + part.offset(n, part.numel() - 1));
  });
  CHECK(parts > 1);
  CHECK(elements == shape.product());
  CHECK(last[0] == shape.product() - 1);
  CHECK(last[1] == shape.product() - 1);
}

TEST_CASE("a loop is walked in the order of the result's memory") {
  const Shape shape = {4, 5, 6};
  // The result lies as [6, 4, 5], the operand as it is.
  const auto loop = ordered_loop<2>(shape, {Strides{5, 1, 20}, Strides{30, 6, 1}});
  REQUIRE(loop.rank == 2);
  CHECK(loop.shape[0] == 6);
  CHECK(loop.shape[1] == 20);
  CHECK(loop.inner_stride(0) == 1);
  CHECK(loop.inner_stride(1) == 6);
}
