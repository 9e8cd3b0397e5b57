#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/where.h>

namespace bs::cpu {

void where(const Tensor& condition, const Operand& a, const Operand& b, const Tensor& y, Stream) {
  visit_any(y.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    map<W, bool, W, W>([](bool c, W p, W q) { return c ? p : q; }, y, condition, a, b);
  });
}

}  // namespace bs::cpu
