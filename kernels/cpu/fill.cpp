#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/fill.h>

#include <algorithm>
#include <bit>
#include <type_traits>

namespace bs::cpu {

void fill(const Tensor& x, double value, Stream) {
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    // A 16-bit float is a class, whose copies g++ does not vectorise.
    using Bits = std::conditional_t<std::is_arithmetic_v<T>, T, uint16_t>;
    auto* to = static_cast<Bits*>(x.data());
    const auto v = std::bit_cast<Bits>(convert<T>(value));
    parallel_for(x.numel(), elementwise_grain,
                 [=](int64_t begin, int64_t end) { std::fill(to + begin, to + end, v); });
  });
}

}  // namespace bs::cpu
