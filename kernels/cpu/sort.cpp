#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/sort.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

namespace bs::cpu {

namespace {

/// An unsigned number in the order of the values: NaN last, -0 as 0.
template <class T>
uint64_t key_of(T value) {
  constexpr uint64_t sign = uint64_t{1} << 63;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(static_cast<int64_t>(value)) ^ sign;
  } else {
    const auto wide = static_cast<double>(value);
    if (std::isnan(wide)) return std::numeric_limits<uint64_t>::max();
    const auto bits = std::bit_cast<uint64_t>(wide == 0 ? 0.0 : wide);
    return bits & sign ? ~bits : bits | sign;
  }
}

struct Item {
  uint64_t key;
  int64_t at;
  bool operator<(const Item& b) const { return key != b.key ? key < b.key : at < b.at; }
};

}  // namespace

void argsort(const Tensor& x, const Tensor& indices, bool descending, Stream) {
  const int64_t n = x.size(1), k = indices.size(1);
  constexpr int64_t few = 64;
  int64_t* to = indices.data<int64_t>();
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    const T* from = x.data<T>();
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / (16 * n));
    parallel_for(x.size(0), grain, [&](int64_t begin, int64_t end) {
      std::vector<Item> items(static_cast<size_t>(n));
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t i = 0; i < n; ++i) {
          const uint64_t key = key_of(from[r * n + i]);
          items[static_cast<size_t>(i)] = {descending ? ~key : key, i};
        }
        if (k < few) {
          std::partial_sort(items.begin(), items.begin() + k, items.end());
        } else {  // a heap of many takes longer
          if (k < n) std::nth_element(items.begin(), items.begin() + k, items.end());
          std::sort(items.begin(), items.begin() + k);
        }
        for (int64_t j = 0; j < k; ++j) to[r * k + j] = items[static_cast<size_t>(j)].at;
      }
    });
  });
}

}  // namespace bs::cpu
