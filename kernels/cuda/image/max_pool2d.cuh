#pragma once
// What pooling by maxima and its gradient have in common.
#include <bs/kernels/max_pool2d.h>
#include <bs/kernels/cuda/walk.cuh>

namespace bs::cuda {

/// Windows over images of h x w pixels, which have p x q of them.
struct Pooling {
  int h, w, p, q;
  int kernel_h, kernel_w, pad_h, pad_w;
  Divisor dilation_h, dilation_w, stride_h, stride_w;

  Pooling(const PoolWindows& o, const Tensor& x, const Tensor& y)
      : h(static_cast<int>(x.size(1))),
        w(static_cast<int>(x.size(2))),
        p(static_cast<int>(y.size(1))),
        q(static_cast<int>(y.size(2))),
        kernel_h(static_cast<int>(o.kernel.h)),
        kernel_w(static_cast<int>(o.kernel.w)),
        pad_h(static_cast<int>(o.padding.h)),
        pad_w(static_cast<int>(o.padding.w)),
        dilation_h(o.dilation.h),
        dilation_w(o.dilation.w),
        stride_h(o.stride.h),
        stride_w(o.stride.w) {}
};

/// From an image to the next.
inline int64_t of_image(const Tensor& t) { return t.numel() / t.size(0); }

inline size_t image_bytes(const Tensor& t) {
  return static_cast<size_t>(of_image(t)) * size_of(t.dtype());
}

}  // namespace bs::cuda
