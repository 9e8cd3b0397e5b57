#include <bs/kernels/accumulate.h>
#include <bs/kernels/cpu/parallel.h>

namespace bs::cpu {

void accumulate(const Tensor& part, const Tensor& total, Stream) {
  visit_floating("accumulate", total.dtype(), [&]<class T>(Type<T>) {
    const T* from = part.data<T>();
    T* to = total.data<T>();
    parallel_for(total.numel(), elementwise_grain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if constexpr (sizeof(T) == 2) {
          to[i] = T(static_cast<float>(to[i]) + static_cast<float>(from[i]));
        } else {
          to[i] += from[i];
        }
      }
    });
  });
}

}  // namespace bs::cpu
