#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/nonzero.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace bs::cpu {

namespace {

// As bytes: those of other programs need not be 0 or 1, and what is counted is written.
const uint8_t* flags(const Tensor& x) { return static_cast<const uint8_t*>(x.data()); }

/// Calls body(c, first, last) for the elements [first, last) of every chunk c.
template <class Body>
void for_chunks(int64_t n, const Body& body) {
  constexpr int64_t chunk = elementwise_grain;
  parallel_for(ceil_div(n, chunk), 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      body(static_cast<size_t>(c), c * chunk, std::min(n, (c + 1) * chunk));
  });
}

/// How many are true up to the end of each chunk.
std::vector<int64_t> counts_up_to(const Tensor& x) {
  std::vector<int64_t> ends(static_cast<size_t>(ceil_div(x.numel(), elementwise_grain)));
  for_chunks(x.numel(), [&](size_t c, int64_t first, int64_t last) {
    ends[c] = last - first - std::count(flags(x) + first, flags(x) + last, uint8_t{0});
  });
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  return ends;
}

}  // namespace

void count_nonzero(const Tensor& x, const Tensor& count, Stream) {
  const std::vector<int64_t> ends = counts_up_to(x);
  *count.data<int64_t>() = ends.empty() ? 0 : ends.back();
}

void nonzero(const Tensor& x, const Tensor& positions, Stream) {
  const std::vector<int64_t> ends = counts_up_to(x);
  int64_t* const to = positions.data<int64_t>();
  for_chunks(x.numel(), [&](size_t c, int64_t first, int64_t last) {
    int64_t at = c == 0 ? 0 : ends[c - 1];
    for (int64_t i = first; i < last && at < ends[c]; ++i) {
      to[at] = i;  // overwritten unless it counts; so there is no branch on flags
      at += flags(x)[i] != 0 ? 1 : 0;
    }
  });
}

}  // namespace bs::cpu
