#include <bs/kernels/conv2d.h>
#include <bs/kernels/cuda/conv/conv2d_direct.h>
#include <bs/kernels/cuda/conv/conv2d_launch.h>
#include <bs/kernels/cuda/conv/conv2d_packed.h>
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
  const Conv2dWish wish{.kind = kind,
                        .dtype = result.dtype(),
                        .plain = !e.residual.defined() && e.activation == Activation::none,
                        .tf32 = tf32_allowed(),
                        .aligned = are_aligned(tensors)};
  return plan_conv2d(d, wish, gpu_of(result.device()));
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
