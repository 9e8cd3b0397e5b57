#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/where.h>

namespace bs::cpu {

namespace {

template <size_t size>
using Bits = std::conditional_t<
    size == 1, uint8_t,
    std::conditional_t<size == 2, uint16_t, std::conditional_t<size == 4, uint32_t, uint64_t>>>;

/// c ? p : q by bits: a choice would become a branch.
template <class W>
W choose(bool c, W p, W q) {
  using B = Bits<sizeof(W)>;
  const auto mask = static_cast<B>(-static_cast<B>(c));
  const B a = std::bit_cast<B>(p), b = std::bit_cast<B>(q);
  return std::bit_cast<W>(static_cast<B>(b ^ ((a ^ b) & mask)));
}

}  // namespace

void where(const Tensor& condition, const Operand& a, const Operand& b, const Tensor& y, Stream) {
  visit_any(y.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    map<W, bool, W, W>([](bool c, W p, W q) { return choose(c, p, q); }, y, condition, a, b);
  });
}

}  // namespace bs::cpu
