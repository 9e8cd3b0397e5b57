#include <bs/kernels/conv2d.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/conv/conv2d_direct.h>
#include <bs/kernels/cuda/conv/conv2d_few.h>
#include <bs/kernels/cuda/conv/conv2d_launch.h>
#include <bs/kernels/cuda/conv/conv2d_packed.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/linear.h>
#include <bs/kernels/math_mode.h>
#include <bs/kernels/matmul.h>

#include <initializer_list>

namespace bs::cuda {

namespace {

Tensor as_matrix(const Tensor& t) { return t.view({t.numel() / t.size(-1), t.size(-1)}); }

Conv2dPlan plan_of(const Conv2dProblem& d, Conv2dKind kind, std::initializer_list<Tensor> tensors,
                   const Conv2dEpilogue& e = {}) {
  const Tensor& result = *tensors.begin();
  const Conv2dWish wish{
      .kind = kind,
      .dtype = result.dtype(),
      .plain = !e.residual.defined() && e.activation == Activation::none,
      .bare = !e.bias.defined() && !e.residual.defined() && e.activation == Activation::none,
      .tf32 = tf32_allowed(),
      .aligned = are_aligned(tensors)};
  return plan_conv2d(d, wish, gpu_of(result.device()));
}

/// A gradient whose channels are too few for vectors, made with more of them, which are zeros.
void whole_backward_x(const Conv2dProblem& d, const Conv2dPlan& plan, const Tensor& dy,
                      const Tensor& weight, const Tensor& dx, Stream stream) {
  const Conv2dProblem whole = with_whole_channels(d);
  const auto made = [&](const Shape& shape) {
    return Tensor::empty(shape, dx.dtype(), dx.device());
  };
  const Tensor filters = made({d.k, d.r, d.s, whole.c}), image = made({d.n, d.h, d.w, whole.c});
  fill(filters, 0, stream);
  copy(weight.permute({0, 2, 3, 1}), filters.slice(3, 0, d.c), stream);
  launch_conv2d(whole, conv2d_kernel_of(plan.form, {}), plan.slices,
                {.image = image, .filters = filters, .pixels = packed_image(dy)}, stream);
  copy(image.slice(3, 0, d.c), dx.permute({0, 2, 3, 1}), stream);
}

/// The gradient of filters over few channels, whose taps have become channels.
void taps_backward_w(const Conv2dProblem& d, const Conv2dPlan& plan, const Tensor& x,
                     const Tensor& dy, const Tensor& dweight, Stream stream) {
  const GatheredTaps by = gathered_taps(d).value();
  const Conv2dProblem& p = by.problem;
  const auto made = [&](const Shape& shape) {
    return Tensor::empty(shape, dweight.dtype(), dweight.device());
  };
  const Tensor image = made({p.n, p.h, p.w, p.c}), filters = made({p.k, p.r, p.s, p.c});
  gather_taps(by, packed_image(x), image, stream);
  launch_conv2d(p, conv2d_kernel_of(plan.form, {}), plan.slices,
                {.image = image, .filters = filters, .pixels = packed_image(dy)}, stream);
  scatter_taps(by, filters, dweight, stream);
}

}  // namespace

void conv2d(const Conv2dProblem& d, const Tensor& x, const Tensor& weight, const Conv2dEpilogue& e,
            const Tensor& y, Stream stream) {
  const Conv2dPlan plan = plan_of(d, Conv2dKind::fprop, {y, x, weight}, e);
  if (plan.path == Conv2dPath::direct) return conv2d_direct(d, x, weight, e, y, stream);
  const Tensor image = packed_image(x), filters = packed_image(weight);
  const PackedResult result(y);
  if (plan.path == Conv2dPath::matmul) {
    linear(as_matrix(image), as_matrix(filters), e.bias, as_matrix(result.packed()), stream);
  } else {
    launch_conv2d(d, conv2d_kernel_of(plan.form, e), plan.slices,
                  {.image = image,
                   .filters = filters,
                   .pixels = result.packed(),
                   .operands = operands_of(e, result.packed())},
                  stream);
  }
  result.finish(stream);
}

void conv2d_backward_x(const Conv2dProblem& d, const Tensor& dy, const Tensor& weight,
                       const Conv2dEpilogue& e, const Tensor& dx, Stream stream) {
  const Conv2dPlan plan = plan_of(d, Conv2dKind::dgrad, {dx, dy, weight}, e);
  if (plan.path == Conv2dPath::direct) return conv2d_direct_x(d, dy, weight, e, dx, stream);
  if (plan.path == Conv2dPath::whole) return whole_backward_x(d, plan, dy, weight, dx, stream);
  const Tensor pixels = packed_image(dy), filters = packed_image(weight);
  const PackedResult result(dx);
  if (plan.path == Conv2dPath::matmul) {
    linear(as_matrix(pixels), as_matrix(filters).transpose(0, 1), e.bias,
           as_matrix(result.packed()), stream);
  } else {
    launch_conv2d(d, conv2d_kernel_of(plan.form, e), plan.slices,
                  {.image = result.packed(),
                   .filters = filters,
                   .pixels = pixels,
                   .operands = operands_of(e, result.packed())},
                  stream);
  }
  result.finish(stream);
}

void conv2d_backward_w(const Conv2dProblem& d, const Tensor& x, const Tensor& dy,
                       const Tensor& dweight, Stream stream) {
  const Conv2dPlan plan = plan_of(d, Conv2dKind::wgrad, {dweight, x, dy});
  if (plan.path == Conv2dPath::direct) return conv2d_direct_w(d, x, dy, dweight, stream);
  if (plan.path == Conv2dPath::taps) return taps_backward_w(d, plan, x, dy, dweight, stream);
  const Tensor image = packed_image(x), pixels = packed_image(dy);
  const PackedResult result(dweight);
  if (plan.path == Conv2dPath::matmul) {
    matmul(as_matrix(pixels).transpose(0, 1), as_matrix(image), as_matrix(result.packed()), stream);
  } else {
    launch_conv2d(d, conv2d_kernel_of(plan.form, {}), plan.slices,
                  {.image = image, .filters = result.packed(), .pixels = pixels}, stream);
  }
  result.finish(stream);
}

}  // namespace bs::cuda
