#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/fill.h>

namespace bs::cpu {

void fill(const Tensor& x, double value, Stream) {
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    T* to = x.data<T>();
    const T v = static_cast<T>(value);
    parallel_for(x.numel(), elementwise_grain,
                 [=](int64_t begin, int64_t end) { std::fill(to + begin, to + end, v); });
  });
}

}  // namespace bs::cpu
