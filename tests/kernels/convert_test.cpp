#include <bs/kernels/cpu/convert.h>
#include <doctest/doctest.h>

#include <vector>

using namespace bs;
using namespace bs::cpu;

namespace {

/// Numbers of all magnitudes: those of 16 bits, those next to them and halfway, infinite ones, NaN.
std::vector<float> numbers_of_all_kinds() {
  std::vector<float> all;
  for (uint32_t high = 0; high <= 0xffffU; ++high)
    for (const uint32_t low : {0x0U, 0x1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU})
      all.push_back(std::bit_cast<float>(high << 16 | low));
  return all;
}

template <class T>
uint16_t bits_of(T value) {
  return std::bit_cast<uint16_t>(value);
}

template <class T>
void check_rows() {
  const std::vector<float> from = numbers_of_all_kinds();
  std::vector<T> to(from.size());
  int64_t wrong = 0;
  for (const int64_t n : {1, 15, 16, 17, 63, 64, 65, 131}) {
    const auto size = static_cast<int64_t>(from.size());
    for (int64_t at = 0; at < size; at += n)
      narrow(std::min(n, size - at), from.data() + at, to.data() + at);
    for (size_t i = 0; i < from.size(); ++i) wrong += bits_of(to[i]) == bits_of(T(from[i])) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("rows are rounded to 16 bits as single numbers are, subnormal ones and NaN too") {
  check_rows<bfloat16>();
  check_rows<half>();
}
