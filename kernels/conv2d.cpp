#include <bs/kernels/conv2d.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/reduce.h>
#include <bs/lib/integers.h>

#include <algorithm>

namespace bs {

namespace {

/// Of extents, paddings, strides and dilations: with it no sum of two products leaves 64 bits.
constexpr int64_t most_extent = (int64_t{1} << 31) - 1;

/// Rows (or columns) of the result, from those of the image with its padding.
int64_t extent_of(const char* op, int64_t padded, int64_t filter, int64_t stride,
                  int64_t dilation) {
  const int64_t covered = dilation * (filter - 1) + 1;
  BS_CHECK(padded >= covered,
           "{}: a filter of {} with dilation {} covers {}, the padded image has {}", op, filter,
           dilation, covered, padded);
  return (padded - covered) / stride + 1;
}

/// Zeros before and after n elements, such that ceil(n / stride) results come out.
std::pair<int64_t, int64_t> same_padding(int64_t n, int64_t filter, int64_t stride,
                                         int64_t dilation) {
  const int64_t results = ceil_div(n, stride);
  const int64_t all =
      std::max<int64_t>((results - 1) * stride + dilation * (filter - 1) + 1 - n, 0);
  return {all / 2, all - all / 2};
}

void check_options(const char* op, const Conv2dOptions& o) {
  const Padding2& p = o.padding;
  const auto least = std::min({o.stride.h, o.stride.w, o.dilation.h, o.dilation.w, o.groups});
  BS_CHECK(least >= 1, "{}: stride {}x{}, dilation {}x{} and {} groups; they are 1 and more", op,
           o.stride.h, o.stride.w, o.dilation.h, o.dilation.w, o.groups);
  BS_CHECK(std::min({p.top, p.bottom, p.left, p.right}) >= 0,
           "{}: padding {} {} {} {} (top, bottom, left, right) is negative", op, p.top, p.bottom,
           p.left, p.right);
  const auto largest = std::max({o.stride.h, o.stride.w, o.dilation.h, o.dilation.w, o.groups,
                                 p.top, p.bottom, p.left, p.right});
  BS_CHECK(largest <= most_extent,
           "{}: a stride, dilation, padding or groups of {}; {} is the most", op, largest,
           most_extent);
  BS_CHECK(!o.same || p == Padding2{}, "{}: padding {} {} {} {} besides `same`", op, p.top,
           p.bottom, p.left, p.right);
}

void check_extents(const char* op, const Shape& x, const Shape& weight) {
  BS_CHECK(x[0] >= 0 && *std::min_element(x.begin() + 1, x.end()) > 0 &&
               *std::min_element(weight.begin(), weight.end()) > 0,
           "{}: x {} and weight {}: only the batch may be empty", op, x, weight);
  BS_CHECK(*std::max_element(x.begin(), x.end()) <= most_extent &&
               *std::max_element(weight.begin(), weight.end()) <= most_extent,
           "{}: x {} and weight {}: extents are at most {}", op, x, weight, most_extent);
}

Shape y_shape(const Conv2dProblem& d) { return {d.n, d.k, d.p, d.q}; }

void check_pair(const char* op, const Tensor& a, const Tensor& b) {
  check_same_device(op, a, b);
  check_same_dtype(op, a, b);
  if (!is_floating(a.dtype())) detail::unsupported_dtype(op, a.dtype(), "f64, f32, f16 or bf16");
}

/// The epilogue as backends take it, for a result of `shape`.
Conv2dEpilogue resolved(const char* op, const Conv2dEpilogue& e, const Tensor& x,
                        const Shape& shape) {
  Conv2dEpilogue out = e;
  if (e.bias.defined()) {
    check_pair(op, x, e.bias);
    BS_CHECK(e.bias.shape() == Shape{shape[1]}, "{}: bias {} for a result {}", op, e.bias.shape(),
             shape);
    out.bias = contiguous(e.bias);
  }
  if (e.residual.defined()) {
    check_pair(op, x, e.residual);
    BS_CHECK(e.residual.shape() == shape, "{}: residual {} for a result {}", op, e.residual.shape(),
             shape);
  }
  return out;
}

Work work_of(const Conv2dProblem& d) { return {.flops = 2 * d.products()}; }

}  // namespace

Conv2dProblem conv2d_problem(const char* op, const Shape& x, const Shape& weight,
                             const Conv2dOptions& o) {
  check_options(op, o);
  BS_CHECK(x.rank() == 4 && weight.rank() == 4,
           "{}: x {} and weight {}: [N, C, H, W] and [K, C / groups, R, S] are expected", op, x,
           weight);
  check_extents(op, x, weight);
  BS_CHECK(x[1] == weight[1] * o.groups && weight[0] % o.groups == 0,
           "{}: x {} and weight {} with {} groups: x has C channels, the weight C / groups, and "
           "groups divide its K",
           op, x, weight, o.groups);
  Conv2dProblem d;
  d.n = x[0], d.c = x[1], d.h = x[2], d.w = x[3];
  d.k = weight[0], d.r = weight[2], d.s = weight[3];
  d.stride = o.stride, d.dilation = o.dilation, d.padding = o.padding, d.groups = o.groups;
  Padding2& pad = d.padding;
  if (o.same) {
    std::tie(pad.top, pad.bottom) = same_padding(d.h, d.r, o.stride.h, o.dilation.h);
    std::tie(pad.left, pad.right) = same_padding(d.w, d.s, o.stride.w, o.dilation.w);
  }
  d.p = extent_of(op, d.h + pad.top + pad.bottom, d.r, o.stride.h, o.dilation.h);
  d.q = extent_of(op, d.w + pad.left + pad.right, d.s, o.stride.w, o.dilation.w);
  return d;
}

Tensor conv2d(const Tensor& x, const Tensor& weight, const Conv2dOptions& options,
              const Conv2dEpilogue& epilogue) {
  check_pair("conv2d", x, weight);
  Conv2dProblem d = conv2d_problem("conv2d", x.shape(), weight.shape(), options);
  const Conv2dEpilogue e = resolved("conv2d", epilogue, x, y_shape(d));
  Tensor y = empty_image(y_shape(d), x.dtype(), x.device(), is_channels_last(x));
  if (d.n == 0) return y;
  d.x = Strides4(x), d.weight = Strides4(weight), d.y = Strides4(y);
  BS_DISPATCH_WORK(x.device(), work_of(d), conv2d, d, x, weight, e, y);
  return y;
}

Tensor conv2d_backward_x(const Tensor& dy, const Tensor& weight, const Shape& shape,
                         const Conv2dOptions& options) {
  check_pair("conv2d_backward_x", dy, weight);
  Conv2dProblem d = conv2d_problem("conv2d_backward_x", shape, weight.shape(), options);
  BS_CHECK(dy.shape() == y_shape(d),
           "conv2d_backward_x: dy {} for x {} and weight {}, whose y is {}", dy.shape(), shape,
           weight.shape(), y_shape(d));
  Tensor dx = empty_image(shape, dy.dtype(), dy.device(), is_channels_last(dy));
  if (d.n == 0) return dx;
  d.x = Strides4(dx), d.weight = Strides4(weight), d.y = Strides4(dy);
  BS_DISPATCH_WORK(dy.device(), work_of(d), conv2d_backward_x, d, dy, weight, Conv2dEpilogue{}, dx);
  return dx;
}

Tensor conv2d_backward_w(const Tensor& x, const Tensor& dy, const Shape& shape,
                         const Conv2dOptions& options) {
  check_pair("conv2d_backward_w", x, dy);
  Conv2dProblem d = conv2d_problem("conv2d_backward_w", x.shape(), shape, options);
  BS_CHECK(dy.shape() == y_shape(d),
           "conv2d_backward_w: dy {} for x {} and weight {}, whose y is {}", dy.shape(), x.shape(),
           shape, y_shape(d));
  if (d.n == 0) return zeros(shape, x.dtype(), x.device());
  Tensor dweight = Tensor::empty(shape, x.dtype(), x.device());
  d.x = Strides4(x), d.weight = Strides4(dweight), d.y = Strides4(dy);
  BS_DISPATCH_WORK(x.device(), work_of(d), conv2d_backward_w, d, x, dy, dweight);
  return dweight;
}

Tensor conv2d_backward_bias(const Tensor& dy) {
  BS_CHECK(dy.rank() == 4, "conv2d_backward_bias: dy {} is no [N, K, P, Q]", dy.shape());
  if (!is_channels_last(dy)) return sum(dy, Dims{0, 2, 3});
  return sum(dy.permute({0, 2, 3, 1}), Dims{0, 1, 2});
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Conv2dOptions& options,
                        Extent2 output_padding, const Conv2dEpilogue& epilogue) {
  constexpr const char* op = "conv_transpose2d";
  check_pair(op, x, weight);
  check_options(op, options);
  const auto& [stride, pad, same, dilation, groups] = options;
  BS_CHECK(!same, "{}: `same` is for conv2d", op);
  BS_CHECK(x.rank() == 4 && weight.rank() == 4 && x.size(1) == weight.size(0),
           "{}: x {} and weight {}: [N, K, H, W] and [K, C / groups, R, S] are expected", op,
           x.shape(), weight.shape());
  check_extents(op, x.shape(), weight.shape());
  const auto fits = [](int64_t more, int64_t a, int64_t b) {
    return more >= 0 && more < std::max(a, b);
  };
  BS_CHECK(
      fits(output_padding.h, stride.h, dilation.h) && fits(output_padding.w, stride.w, dilation.w),
      "{}: output padding {}x{} with stride {}x{} and dilation {}x{}", op, output_padding.h,
      output_padding.w, stride.h, stride.w, dilation.h, dilation.w);
  const Shape shape{x.size(0), weight.size(1) * groups,
                    (x.size(2) - 1) * stride.h - pad.top - pad.bottom +
                        dilation.h * (weight.size(2) - 1) + output_padding.h + 1,
                    (x.size(3) - 1) * stride.w - pad.left - pad.right +
                        dilation.w * (weight.size(3) - 1) + output_padding.w + 1};
  BS_CHECK(shape[2] > 0 && shape[3] > 0, "{}: x {} and weight {} give an image of {}x{}", op,
           x.shape(), weight.shape(), shape[2], shape[3]);
  Conv2dProblem d = conv2d_problem(op, shape, weight.shape(), options);
  // Padding of the output widens what the forward reads beyond its last step; y stays x's size.
  d.p = x.size(2), d.q = x.size(3);
  const Conv2dEpilogue e = resolved(op, epilogue, x, shape);
  Tensor y = empty_image(shape, x.dtype(), x.device(), is_channels_last(x));
  if (d.n == 0) return y;
  d.x = Strides4(y), d.weight = Strides4(weight), d.y = Strides4(x);
  BS_DISPATCH_WORK(x.device(), work_of(d), conv2d_backward_x, d, x, weight, e, y);
  return y;
}

Tensor conv_transpose2d_backward_w(const Tensor& x, const Tensor& dy, const Shape& shape,
                                   const Conv2dOptions& options) {
  constexpr const char* op = "conv_transpose2d_backward_w";
  check_pair(op, x, dy);
  Conv2dProblem d = conv2d_problem(op, dy.shape(), shape, options);
  const Shape expected{dy.size(0), shape[0], d.p, d.q};
  BS_CHECK(x.rank() == 4 && x.size(0) == d.n && x.size(1) == d.k && x.size(2) <= d.p &&
               x.size(3) <= d.q && x.size(2) * x.size(3) > 0,
           "{}: x {} for dy {} and weight {}, which belong to {}", op, x.shape(), dy.shape(), shape,
           expected);
  d.p = x.size(2), d.q = x.size(3);  // output padding may leave room for more
  if (d.n == 0) return zeros(shape, x.dtype(), x.device());
  Tensor dweight = Tensor::empty(shape, x.dtype(), x.device());
  d.x = Strides4(dy), d.weight = Strides4(dweight), d.y = Strides4(x);
  BS_DISPATCH_WORK(x.device(), work_of(d), conv2d_backward_w, d, dy, x, dweight);
  return dweight;
}

}  // namespace bs
