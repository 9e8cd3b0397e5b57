#include <bs/kernels/avg_pool2d.h>
#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/parallel.h>

#include <algorithm>
#include <bit>
#include <type_traits>
#include <vector>

namespace bs::cpu {

void spread_over_pixels(const Tensor& x, double share, const Tensor& y, Stream) {
  visit_floating("adaptive_avg_pool2d_backward", y.dtype(), [&]<class T>(Type<T>) {
    // A 16-bit float is a class, whose copies g++ does not vectorise.
    using Bits = std::conditional_t<std::is_arithmetic_v<T>, T, uint16_t>;
    const int64_t pixels = y.size(1), channels = y.size(2), of_image = pixels * channels;
    const auto factor = static_cast<Wide<T>>(share);
    const T* const from = x.data<T>();
    auto* const to = static_cast<Bits*>(y.data());
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / of_image);
    parallel_for(y.size(0), grain, [=](int64_t begin, int64_t end) {
      std::vector<Bits> pixel(static_cast<size_t>(channels));
      for (int64_t image = begin; image < end; ++image) {
        for (int64_t c = 0; c < channels; ++c)
          pixel[static_cast<size_t>(c)] = std::bit_cast<Bits>(
              convert<T>(convert<Wide<T>>(from[image * channels + c]) * factor));
        Bits* const first = to + image * of_image;
        if (channels == 1) {
          std::fill_n(first, pixels, pixel[0]);
        } else {
          for (int64_t p = 0; p < pixels; ++p)
            std::copy(pixel.begin(), pixel.end(), first + p * channels);
        }
      }
    });
  });
}

}  // namespace bs::cpu
