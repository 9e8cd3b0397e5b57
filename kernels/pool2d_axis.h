#pragma once
/** @file Where the windows of a pooling lie along an axis. */
#include <bs/kernels/image.h>
#include <bs/lib/check.h>
#include <bs/lib/integers.h>

#include <algorithm>

namespace bs {

/** @brief Windows of one axis: o covers kernel elements, dilation apart, from o stride - padding.
 */
struct PoolAxis {
  int64_t in = 0, kernel = 1, stride = 1, padding = 0, dilation = 1;

  int64_t reach() const { return dilation * (kernel - 1) + 1; }
  /** @brief How many windows there are, as PyTorch counts them. With `ceil_mode` also one that
   *  begins in the image or in the padding before it, and ends beyond that behind.
   *  @throws Error naming `op` where the numbers make no sense. */
  int64_t outputs(const char* op, bool ceil_mode) const {
    BS_CHECK(kernel > 0 && stride > 0 && dilation > 0,
             "{}: kernel {}, stride {} and dilation {} are not all positive", op, kernel, stride,
             dilation);
    BS_CHECK(std::max({kernel, stride, dilation}) <= most_pixels,
             "{}: kernel {}, stride {} or dilation {} is more than {}", op, kernel, stride,
             dilation, most_pixels);
    BS_CHECK(padding >= 0 && padding <= kernel / 2, "{}: padding {} is not in [0, {} / 2]", op,
             padding, kernel);
    const int64_t room = in + 2 * padding - reach();
    BS_CHECK(in > 0 && room >= 0, "{}: a window of {} does not fit {} elements and padding {}", op,
             reach(), in, padding);
    // Of a window that begins in the padding, the first element that does not lie there.
    for (int64_t first = -padding; first < 0; first += stride)
      BS_CHECK((first % dilation + dilation) % dilation < in,
               "{}: a window from {} on, in steps of {}, misses all {} elements", op, first,
               dilation, in);
    if (!ceil_mode) return room / stride + 1;
    const int64_t count = ceil_div(room, stride) + 1;
    return (count - 1) * stride >= in + padding ? count - 1 : count;
  }
};

}  // namespace bs
