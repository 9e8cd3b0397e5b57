#include <bs/autograd/pool2d.h>

#include <bs/autograd/gather.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/view.h>
#include <bs/kernels/arange.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/rounding.h>

namespace bs {

namespace {

/// dy goes to the element that won its window.
struct MaxPool {
  Tensor winner;
  Shape shape;
  MaxPool2dOptions options;

  Grads operator()(const Tensor& dy) const {
    return {max_pool2d_backward(dy, winner, shape, options)};
  }
  VariableGrads again(const Recorded& r) const {
    const Shape planes{shape[0], shape[1], shape[2] * shape[3]};
    const Tensor at = positions();
    const Variable none(zeros(planes, r.dy().dtype(), r.dy().device()));
    return {reshape(scatter_add(none, 2, at, reshape(r.dy(), at.shape())), shape)};
  }

 private:
  /// Of the winners in their planes, [N, C, P Q].
  Tensor positions() const {
    const auto& [kernel, stride, padding, dilation, ceil_mode] = options;
    const int64_t p = winner.size(2), q = winner.size(3);
    const auto first = [&](int64_t count, int64_t size, int64_t step, int64_t before) {
      return arange(count, i64, winner.device()) * (step == 0 ? size : step) - before;
    };
    const Tensor number = contiguous(cast(winner, f32));  // below 256
    const Tensor row = floor(number / static_cast<double>(kernel.w));
    const Tensor column = number - row * static_cast<double>(kernel.w);
    const Tensor y =
        first(p, kernel.h, stride.h, padding.h).unsqueeze(1) + cast(row, i64) * dilation.h;
    const Tensor x = first(q, kernel.w, stride.w, padding.w) + cast(column, i64) * dilation.w;
    return (y * shape[3] + x).view({shape[0], shape[1], p * q});
  }
};

}  // namespace

Variable max_pool2d(const Variable& x, const MaxPool2dOptions& options) {
  if (!grad_enabled() || !x.requires_grad()) return max_pool2d_values(x.data(), options);
  MaxPool2dResult r = max_pool2d(x.data(), options);
  return tape().record("max_pool2d", {x}, std::move(r.y), MaxPool{r.winner, x.shape(), options},
                       GradientOrder::any);
}

Variable avg_pool2d(const Variable& x, const AvgPool2dOptions& options) {
  return record_linear_pair(
      "avg_pool2d", x, avg_pool2d(x.data(), options),
      [options](const Tensor& t) { return avg_pool2d(t, options); },
      [shape = x.shape(), options](const Tensor& dy) {
        return avg_pool2d_backward(dy, shape, options);
      },
      GradientOrder::any);
}

Variable adaptive_avg_pool2d(const Variable& x, Extent2 size) {
  return record_linear_pair(
      "adaptive_avg_pool2d", x, adaptive_avg_pool2d(x.data(), size),
      [size](const Tensor& t) { return adaptive_avg_pool2d(t, size); },
      [shape = x.shape()](const Tensor& dy) { return adaptive_avg_pool2d_backward(dy, shape); },
      GradientOrder::any);
}

}  // namespace bs
