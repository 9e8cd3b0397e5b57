#include <bs/kernels/block_sparse_conv2d_gathered.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/block_sparse_linear.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/pad.h>

#include <algorithm>

namespace bs {

namespace {

/// Elements that are gathered at a time.
constexpr int64_t most_gathered = int64_t{1} << 26;

/// What the passes share.
struct Walk {
  Conv2dProblem d;
  bool direct;     ///< the gathered rows are the image itself
  int64_t images;  ///< that are gathered at a time

  int64_t columns() const { return d.r * d.s * d.c; }
  /// The pixels that one place of the filter sees, in padded images [n, C, H, W].
  Tensor seen(const Tensor& padded, int64_t tap) const {
    const int64_t top = tap / d.s * d.dilation.h, left = tap % d.s * d.dilation.w;
    return padded.slice(2, top, top + (d.p - 1) * d.stride.h + 1, d.stride.h)
        .slice(3, left, left + (d.q - 1) * d.stride.w + 1, d.stride.w);
  }
  /// Calls f(first, last) for the images in pieces.
  template <class F>
  void for_each_piece(const F& f) const {
    for (int64_t n = 0; n < d.n; n += images) f(n, std::min(d.n, n + images));
  }
};

Walk walk_of(const Conv2dProblem& d) {
  Walk w{.d = d, .direct = false, .images = 0};
  w.direct = d.r == 1 && d.s == 1 && d.stride == Extent2{1, 1} && d.padding == Padding2{};
  const int64_t each = Shape{d.p, d.q, w.columns()}.product();
  w.images = w.direct ? std::max<int64_t>(d.n, 1) : std::max<int64_t>(most_gathered / each, 1);
  return w;
}

/// [n, C, H, W] as rows of pixels [n H W, C].
Tensor pixel_rows(const Tensor& x) {
  return contiguous(x.permute({0, 2, 3, 1})).view({x.size(0) * x.size(2) * x.size(3), x.size(1)});
}

/// Rows [n P Q, R S C] of images [first, last).
Tensor gathered(const Walk& w, const Tensor& x, int64_t first, int64_t last) {
  const Tensor some = x.slice(0, first, last);
  if (w.direct) return pixel_rows(some);
  const Tensor last_axis = channels_last(some);
  const Tensor padded =
      w.d.padding == Padding2{} ? last_axis : pad(last_axis, {.padding = w.d.padding});
  const int64_t n = last - first, taps = w.d.r * w.d.s;
  const Tensor rows = Tensor::empty({n, w.d.p, w.d.q, taps, w.d.c}, x.dtype(), x.device());
  for (int64_t tap = 0; tap < taps; ++tap)
    copy(w.seen(padded, tap).permute({0, 2, 3, 1}), rows.select(3, tap));
  return rows.view({n * w.d.p * w.d.q, w.columns()});
}

/// Adds the rows' gradients to the pixels that they were gathered from.
Tensor scattered(const Walk& w, const Tensor& drows, int64_t n) {
  const Padding2& pad = w.d.padding;
  const int64_t height = w.d.h + pad.top + pad.bottom, width = w.d.w + pad.left + pad.right;
  const DType sum = drows.dtype() == f64 ? f64 : f32;
  const Tensor rows = drows.view({n, w.d.p, w.d.q, w.d.r * w.d.s, w.d.c});
  const Tensor padded = zeros({n, height, width, w.d.c}, sum, drows.device()).permute({0, 3, 1, 2});
  for (int64_t tap = 0; tap < w.d.r * w.d.s; ++tap) {
    const Tensor to = w.seen(padded, tap).permute({0, 2, 3, 1});
    copy(add(to, cast(rows.select(3, tap), sum)), to);
  }
  return padded.slice(2, pad.top, pad.top + w.d.h).slice(3, pad.left, pad.left + w.d.w);
}

}  // namespace

void GatheredConv2d::forward(const Tensor& x, const SparseTensor& weight, const Tensor& bias,
                             const Tensor& y) const {
  const Conv2dProblem& d = problem;
  const Walk w = walk_of(d);
  w.for_each_piece([&](int64_t first, int64_t last) {
    const Tensor rows =
        block_sparse_linear(gathered(w, x, first, last), weight, bias, Activation::none, false).y;
    copy(rows.view({last - first, d.p, d.q, d.k}).permute({0, 3, 1, 2}), y.slice(0, first, last));
  });
}

void GatheredConv2d::backward_x(const Tensor& dy, const SparseTensor& weight,
                                const Tensor& dx) const {
  const Conv2dProblem& d = problem;
  const Walk w = walk_of(d);
  w.for_each_piece([&](int64_t first, int64_t last) {
    const int64_t n = last - first;
    const Tensor drows = dds_backward_a(pixel_rows(dy.slice(0, first, last)), weight,
                                        {n * d.p * d.q, w.columns()}, {.b = true});
    const Tensor some =
        w.direct ? drows.view({n, d.h, d.w, d.c}).permute({0, 3, 1, 2}) : scattered(w, drows, n);
    copy(some, dx.slice(0, first, last));
  });
}

void GatheredConv2d::backward_w(const Tensor& x, const Tensor& dy,
                                const SparseTensor& dweight) const {
  const Walk w = walk_of(problem);
  const Tensor& values = dweight.values;
  const DType sum = x.dtype() == f64 ? f64 : f32;
  Tensor total;
  w.for_each_piece([&](int64_t first, int64_t last) {
    const Tensor part =
        dds_backward_s(gathered(w, x, first, last), pixel_rows(dy.slice(0, first, last)),
                       dweight.layout, values.shape(), {.b = true});
    total = total.defined() ? add(cast(total, sum), cast(part, sum)) : part;
  });
  copy(cast(total, x.dtype()), values);
}

}  // namespace bs
