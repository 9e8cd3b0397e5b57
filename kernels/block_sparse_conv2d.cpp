#include <bs/kernels/block_sparse_conv2d.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/block_sparse_linear.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/concat.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/index_select.h>
#include <bs/kernels/pad.h>

#include <algorithm>
#include <vector>

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

Walk walk_of(const char* op, const Shape& x, const LayoutPtr& layout, Extent2 kernel,
             const Conv2dOptions& options) {
  BS_CHECK(layout != nullptr && layout->heads() == 1, "{}: a weight is one matrix with a layout",
           op);
  BS_CHECK(options.groups == 1, "{}: {} groups; a layout says which channels see each other", op,
           options.groups);
  BS_CHECK(x.rank() == 4 && kernel.h > 0 && kernel.w > 0 && x[1] % layout->block() == 0 &&
               layout->width() == (Shape{x[1], kernel.h, kernel.w}.product()),
           "{}: x {} and a filter of {}x{} for a weight [{}, {}] with blocks of {}", op, x,
           kernel.h, kernel.w, layout->height(), layout->width(), layout->block());
  Walk w;
  w.d = conv2d_problem(op, x, {layout->height(), x[1], kernel.h, kernel.w}, options);
  w.direct = kernel == Extent2{1, 1} && w.d.stride == Extent2{1, 1} && w.d.padding == Padding2{};
  const int64_t each = Shape{w.d.p, w.d.q, w.columns()}.product();
  w.images = w.direct ? std::max<int64_t>(w.d.n, 1) : std::max<int64_t>(most_gathered / each, 1);
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

void check_dy(const char* op, const Walk& w, const Tensor& dy) {
  const Shape y{w.d.n, w.d.k, w.d.p, w.d.q};
  BS_CHECK(dy.shape() == y, "{}: dy {} for a result {}", op, dy.shape(), y);
}

}  // namespace

LayoutPtr conv2d_layout(const Tensor& mask, int block) {
  BS_CHECK(mask.rank() == 4, "conv2d_layout: mask {} is no [K / block, C / block, R, S]",
           mask.shape());
  const Tensor ordered = contiguous(mask.permute({0, 2, 3, 1}));
  return Layout::from_mask(ordered.view({mask.size(0), mask.size(1) * mask.size(2) * mask.size(3)}),
                           block);
}

Tensor block_sparse_conv2d(const Tensor& x, const SparseTensor& weight, Extent2 kernel,
                           const Conv2dOptions& options, const Tensor& bias) {
  constexpr const char* op = "block_sparse_conv2d";
  const Walk w = walk_of(op, x.shape(), weight.layout, kernel, options);
  Tensor y = empty_image({w.d.n, w.d.k, w.d.p, w.d.q}, x.dtype(), x.device(), is_channels_last(x));
  w.for_each_piece([&](int64_t first, int64_t last) {
    const Tensor rows =
        block_sparse_linear(gathered(w, x, first, last), weight, bias, Activation::none, false).y;
    copy(rows.view({last - first, w.d.p, w.d.q, w.d.k}).permute({0, 3, 1, 2}),
         y.slice(0, first, last));
  });
  return y;
}

Tensor block_sparse_conv2d_backward_x(const Tensor& dy, const SparseTensor& weight, Extent2 kernel,
                                      const Shape& x_shape, const Conv2dOptions& options) {
  constexpr const char* op = "block_sparse_conv2d_backward_x";
  const Walk w = walk_of(op, x_shape, weight.layout, kernel, options);
  check_dy(op, w, dy);
  Tensor dx = empty_image(x_shape, dy.dtype(), dy.device(), is_channels_last(dy));
  w.for_each_piece([&](int64_t first, int64_t last) {
    const int64_t n = last - first;
    const Tensor drows = dds_backward_a(pixel_rows(dy.slice(0, first, last)), weight,
                                        {n * w.d.p * w.d.q, w.columns()}, {.b = true});
    const Tensor some = w.direct ? drows.view({n, w.d.h, w.d.w, w.d.c}).permute({0, 3, 1, 2})
                                 : scattered(w, drows, n);
    copy(some, dx.slice(0, first, last));
  });
  return dx;
}

Tensor block_sparse_conv2d_backward_w(const Tensor& x, const Tensor& dy, const LayoutPtr& layout,
                                      Extent2 kernel, const Conv2dOptions& options) {
  constexpr const char* op = "block_sparse_conv2d_backward_w";
  const Walk w = walk_of(op, x.shape(), layout, kernel, options);
  check_dy(op, w, dy);
  const Shape values{layout->nnz(), layout->block(), layout->block()};
  if (w.d.n == 0) return zeros(values, x.dtype(), x.device());
  const DType sum = x.dtype() == f64 ? f64 : f32;
  Tensor total;
  w.for_each_piece([&](int64_t first, int64_t last) {
    const Tensor part =
        dds_backward_s(gathered(w, x, first, last), pixel_rows(dy.slice(0, first, last)), layout,
                       values, {.b = true});
    total = total.defined() ? add(cast(total, sum), cast(part, sum)) : part;
  });
  return cast(total, x.dtype());
}

Tensor relayout(const Tensor& values, const LayoutPtr& from, const LayoutPtr& to) {
  BS_CHECK(from && to && from->block() == to->block() && from->heads() == to->heads() &&
               from->rows() == to->rows() && from->cols() == to->cols(),
           "relayout: two layouts of one size are expected");
  const int64_t block = from->block();
  const Shape expected{from->nnz(), block, block};
  BS_CHECK(values.shape() == expected, "relayout: values {} for a layout with {}", values.shape(),
           expected);
  const LayoutView a = from->view(Device::cpu()), b = to->view(Device::cpu());
  const auto place = [](const LayoutView& v, int32_t i) {
    return BlockIndex{v.head_of[i], v.row_of[i], v.col_of[i]};
  };
  std::vector<int64_t> sources;  // both are in the same order
  int32_t i = 0;
  for (int32_t j = 0; j < b.nnz; ++j) {
    while (i < a.nnz && place(a, i) < place(b, j)) ++i;
    sources.push_back(i < a.nnz && place(a, i) == place(b, j) ? i : a.nnz);
  }
  const Tensor nothing = zeros({1, block, block}, values.dtype(), values.device());
  const Tensor numbers =
      Tensor::from(std::span<const int64_t>(sources), {to->nnz()}).to(values.device());
  return index_select(concat({values, nothing}, 0), 0, numbers);
}

}  // namespace bs
