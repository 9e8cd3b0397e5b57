#include <bs/kernels/device_rates.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/matmul.h>
#include <bs/lib/threads.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>

namespace bs::cpu {

namespace {

/// Of the fastest of some calls, after one that makes threads and memory ready.
template <class F>
double seconds_of(const F& f) {
  using Clock = std::chrono::steady_clock;
  f();
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 4; ++i) {
    const Clock::time_point begin = Clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

double product_rate(DType dtype) {
  constexpr int64_t n = 512;
  const Tensor a = full({n, n}, 0.5, dtype);
  return 2.0 * n * n * n / seconds_of([&] { matmul(a, a); });
}

DeviceRates measure() {
  const Tensor from = full({int64_t{8} << 20}, 1, f32), to = Tensor::empty(from.shape(), f32);
  const double moved = 2.0 * static_cast<double>(from.bytes());
  const double single = product_rate(f32);
  return {.bytes = moved / seconds_of([&] { copy(from, to); }),
          .half = single,  // products of 16 bits are computed in f32
          .single = single,
          .wide = product_rate(f64)};
}

}  // namespace

void device_rates(DeviceRates& rates, Stream) {
  static std::mutex mutex;
  static std::map<int, DeviceRates> of_threads;
  const std::lock_guard lock(mutex);
  const auto found = of_threads.find(threads());
  rates = found != of_threads.end() ? found->second
                                    : of_threads.emplace(threads(), measure()).first->second;
}

}  // namespace bs::cpu
