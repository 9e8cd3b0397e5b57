#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/nonzero.h>

#include <algorithm>

namespace bs::cpu {

void one_hot(const Tensor& indices, const Tensor& y, Stream) {
  const int64_t classes = y.size(1);
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / classes);
  visit_index("one_hot", indices.dtype(), [&]<class I>(Type<I>) {
    const I* const index = indices.data<I>();
    visit_any(y.dtype(), [&]<class T>(Type<T>) {
      T* const to = y.data<T>();
      parallel_for(y.size(0), grain, [&](int64_t begin, int64_t end) {
        std::fill(to + begin * classes, to + end * classes, T());
        for (int64_t r = begin; r < end; ++r)
          if (index[r] >= 0 && index[r] < classes) to[r * classes + index[r]] = T(1.0F);
      });
    });
  });
}

}  // namespace bs::cpu
