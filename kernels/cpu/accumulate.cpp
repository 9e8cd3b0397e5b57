#include <bs/kernels/accumulate.h>
#include <bs/kernels/cpu/elementwise.h>

namespace bs::cpu {

void accumulate(const Tensor& part, const Tensor& total, Stream) {
  visit_wide("accumulate", total.dtype(), [&]<class W>(Type<W>) {
    map<W, W, W>([](W a, W b) { return a + b; }, total, total, part);
  });
}

}  // namespace bs::cpu
