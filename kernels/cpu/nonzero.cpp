#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/nonzero.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <numeric>

namespace bs::cpu {

namespace {

// As bytes: those of other programs need not be 0 or 1, and what is counted is written.
const uint8_t* flags(const Tensor& x) { return static_cast<const uint8_t*>(x.data()); }

/// Calls body(p, first, last) for the elements [first, last) of every part p.
template <class Body>
void for_parts(int64_t n, const Body& body) {
  parallel_for(ceil_div(n, nonzero_part), 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      body(p, p * nonzero_part, std::min(n, (p + 1) * nonzero_part));
  });
}

}  // namespace

void count_nonzero(const Tensor& x, const Tensor& before, Stream) {
  int64_t* const counts = before.data<int64_t>();
  counts[0] = 0;
  for_parts(x.numel(), [&](int64_t p, int64_t first, int64_t last) {
    counts[p + 1] = last - first - std::count(flags(x) + first, flags(x) + last, uint8_t{0});
  });
  std::partial_sum(counts, counts + before.numel(), counts);
}

void nonzero(const Tensor& x, const Tensor& before, const Tensor& positions, Stream) {
  const int64_t* const begins = before.data<int64_t>();
  int64_t* const to = positions.data<int64_t>();
  for_parts(x.numel(), [&](int64_t p, int64_t first, int64_t last) {
    int64_t at = begins[p];
    for (int64_t i = first; i < last && at < begins[p + 1]; ++i) {
      to[at] = i;  // overwritten unless it counts; so there is no branch on flags
      at += flags(x)[i] != 0 ? 1 : 0;
    }
  });
}

}  // namespace bs::cpu
