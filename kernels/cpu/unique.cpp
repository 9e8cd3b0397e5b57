#include <bs/kernels/copy.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/nonzero.h>
#include <bs/kernels/sort.h>
#include <bs/lib/integers.h>

#include <algorithm>

namespace bs::cpu {

void order_groups(const Tensor& x, const Tensor& order, const Tensor& sorted, const Tensor& first,
                  Stream stream) {
  const int64_t n = x.numel();
  const Tensor positions = order.dtype() == i64 ? order : Tensor::empty({n}, i64);
  argsort(x.view({1, n}), positions.view({1, n}), false, stream);
  if (order.dtype() != i64) copy(positions, order, stream);
  const int64_t* const at = positions.data<int64_t>();
  bool* const differs = first.data<bool>();
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    const T* const value = x.data<T>();
    T* const to = sorted.data<T>();
    for (int64_t k = 0; k < n; ++k) to[k] = value[at[k]];
    differs[0] = true;
    for (int64_t k = 1; k < n; ++k)
      differs[k] = !(static_cast<Wide<T>>(to[k]) == static_cast<Wide<T>>(to[k - 1]));
  });
}

void number_groups(const Tensor& sorted, const Tensor& order, const Tensor& first,
                   const Tensor& before, const Tensor& values, const Tensor& begins,
                   const Tensor& inverse, Stream) {
  const int64_t n = sorted.numel();
  const bool* const differs = first.data<bool>();
  const int64_t* const in_front = before.data<int64_t>();
  int64_t* const begin_of = begins.data<int64_t>();
  int64_t* const group_of = inverse.data<int64_t>();
  visit_any(sorted.dtype(), [&]<class T>(Type<T>) {
    const T* const from = sorted.data<T>();
    T* const to = values.data<T>();
    visit_index("unique", order.dtype(), [&]<class I>(Type<I>) {
      const I* const at = order.data<I>();
      parallel_for(ceil_div(n, nonzero_part), 1, [&](int64_t begin, int64_t end) {
        int64_t group = in_front[begin] - 1;
        for (int64_t k = begin * nonzero_part; k < std::min(n, end * nonzero_part); ++k) {
          if (differs[k]) {
            begin_of[++group] = k;
            to[group] = from[k];
          }
          group_of[at[k]] = group;
        }
      });
    });
  });
}

}  // namespace bs::cpu
