#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/nonzero.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace bs::cpu {

void nonzero(const Tensor& x, const Tensor& positions, const Tensor& count, Stream) {
  constexpr int64_t chunk = elementwise_grain;
  // As bytes: those of other programs need not be 0 or 1, and what is counted is written.
  const auto* flags = static_cast<const uint8_t*>(x.data());
  int64_t* const to = positions.data<int64_t>();
  const int64_t n = x.numel(), chunks = ceil_div(n, chunk);
  std::vector<int64_t> ends(static_cast<size_t>(chunks));  // of the chunks' positions
  const auto each_chunk = [&](auto body) {
    parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c)
        body(static_cast<size_t>(c), c * chunk, std::min(n, (c + 1) * chunk));
    });
  };
  each_chunk([&](size_t c, int64_t first, int64_t last) {
    ends[c] = last - first - std::count(flags + first, flags + last, uint8_t{0});
  });
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  each_chunk([&](size_t c, int64_t first, int64_t last) {
    int64_t at = c == 0 ? 0 : ends[c - 1];
    for (int64_t i = first; i < last && at < ends[c]; ++i) {
      to[at] = i;  // overwritten unless it counts; so there is no branch on flags
      at += flags[i] != 0 ? 1 : 0;
    }
  });
  *count.data<int64_t>() = ends.empty() ? 0 : ends.back();
}

}  // namespace bs::cpu
