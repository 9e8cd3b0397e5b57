#include <bs/kernels/nonzero.h>

namespace bs::cpu {

void nonzero(const Tensor& x, const Tensor& positions, const Tensor& count, Stream) {
  const bool* flags = x.data<bool>();
  int64_t* to = positions.data<int64_t>();
  int64_t found = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    to[found] = i;  // overwritten unless it counts; so the loop has no branch
    found += flags[i] ? 1 : 0;
  }
  *count.data<int64_t>() = found;
}

}  // namespace bs::cpu
