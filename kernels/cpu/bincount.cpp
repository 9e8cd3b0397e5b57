#include <bs/kernels/bincount.h>
#include <bs/kernels/cpu/parallel.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <vector>

namespace bs::cpu {

void count_few(const Tensor& x, const Tensor& found, Stream) {
  int64_t* const counts = found.data<int64_t>();
  int64_t& least = counts[counted_numbers];
  int64_t& greatest = counts[counted_numbers + 1];
  std::fill_n(counts, counted_numbers, int64_t{0});
  least = std::numeric_limits<int64_t>::max();
  greatest = std::numeric_limits<int64_t>::min();
  std::mutex mutex;
  constexpr int64_t grain = 8 * counted_numbers;  // so that their sums cost little
  visit_index("bincount", x.dtype(), [&]<class I>(Type<I>) {
    const I* const from = x.data<I>();
    parallel_for(x.numel(), grain, [&](int64_t begin, int64_t end) {
      std::vector<int64_t> own(static_cast<size_t>(counted_numbers));
      int64_t low = from[begin], high = from[begin];
      for (int64_t i = begin; i < end; ++i) {
        const int64_t number = from[i];
        low = std::min(low, number);
        high = std::max(high, number);
        if (static_cast<uint64_t>(number) < own.size()) ++own[static_cast<size_t>(number)];
      }
      const std::lock_guard lock(mutex);
      std::transform(own.begin(), own.end(), counts, counts, std::plus<>());
      least = std::min(least, low);
      greatest = std::max(greatest, high);
    });
  });
}

void count_all(const Tensor& x, const Tensor& counts, Stream) {
  int64_t* const to = counts.data<int64_t>();
  std::fill_n(to, counts.numel(), int64_t{0});
  visit_index("bincount", x.dtype(), [&]<class I>(Type<I>) {
    const I* const from = x.data<I>();
    for (int64_t i = 0; i < x.numel(); ++i) ++to[from[i]];
  });
}

}  // namespace bs::cpu
