#include <bs/kernels/arange.h>
#include <bs/kernels/cpu/parallel.h>

#include <algorithm>
#include <cmath>

namespace bs::cpu {

void arange(const Tensor& x, const Ramp& ramp, Stream) {
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    T* to = x.data<T>();
    const auto run = [=, step = ramp.step](int64_t begin, int64_t end, int64_t from, double start) {
      for (int64_t i = begin; i < end; ++i)
        to[i] = static_cast<T>(std::fma(static_cast<double>(i - from), step, start));
    };
    parallel_for(x.numel(), elementwise_grain, [=](int64_t begin, int64_t end) {
      run(begin, std::min(end, ramp.half), 0, ramp.start);
      run(std::max(begin, ramp.half), end, ramp.half, ramp.second);
    });
  });
}

}  // namespace bs::cpu
