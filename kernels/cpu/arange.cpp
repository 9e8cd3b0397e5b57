#include <bs/kernels/arange.h>
#include <bs/kernels/cpu/parallel.h>

#include <cmath>

namespace bs::cpu {

void arange(const Tensor& x, double start, double step, Stream) {
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    T* to = x.data<T>();
    parallel_for(x.numel(), elementwise_grain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        to[i] = static_cast<T>(std::fma(static_cast<double>(i), step, start));
    });
  });
}

}  // namespace bs::cpu
