#include <bs/lib/format_fixed.h>

#include <algorithm>
#include <charconv>

namespace bs {

std::string format_fixed(double value, int decimals) {
  constexpr int most = 80;
  char buffer[312 + most];  // a sign, 309 digits, a point
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed,
                                 std::clamp(decimals, 0, most));
  return {buffer, end.ptr};
}

}  // namespace bs
