#include <bs/kernels/block_float.h>
#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/parallel.h>

#include <cmath>

namespace bs::cpu {

namespace {

template <class W, class T>
void round_block(const T* x, T* y, int64_t n, int bits) {
  W largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    const W size = std::abs(convert<W>(x[i]));
    finite = finite && std::isfinite(size);
    largest = std::max(largest, size);
  }
  if (!finite || largest == W(0)) {
    std::copy_n(x, n, y);
    return;
  }
  const int exponent = std::ilogb(largest) + 2 - bits;
  const W top = std::ldexp(W(1), bits - 1);
  for (int64_t i = 0; i < n; ++i) {
    const W steps = std::nearbyint(std::scalbn(convert<W>(x[i]), -exponent));
    y[i] = convert<T>(std::scalbn(std::clamp(steps, -top, top - 1), exponent));
  }
}

}  // namespace

void block_float(const Tensor& x, const Tensor& y, BlockFloat format, Stream) {
  visit_floating("block_float", x.dtype(), [&]<class T>(Type<T>) {
    const int64_t n = x.size(-1), rows = x.numel() / n;
    const T* from = x.data<T>();
    T* into = y.data<T>();
    parallel_for(rows, elementwise_grain / n + 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t i = 0; i < n; i += format.block)
          round_block<Wide<T>>(from + r * n + i, into + r * n + i,
                               std::min<int64_t>(format.block, n - i), format.bits);
    });
  });
}

}  // namespace bs::cpu
