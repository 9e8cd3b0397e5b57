#include <bs/autograd/reduce.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/unary.h>
#include <bs/autograd/view.h>
#include <bs/autograd/where.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/like.h>

namespace bs {

Variable sum_to(const Variable& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  struct Spread {
    Shape shape;
    Tensor operator()(const Tensor& dy) const { return dy.expand(shape); }
    Variable operator()(const Variable& dy) const { return expand(dy, shape); }
  };
  return record_linear("sum_to", x, sum_to(x.data(), shape), Spread{x.shape()});
}

Variable sum_backward(const Shape& x_shape, const Variable& dy, const Axes& axes, bool keepdim) {
  struct Sum {
    Axes axes;
    bool keepdim;
    Tensor operator()(const Tensor& x) const { return sum(x, axes, keepdim); }
    Variable operator()(const Variable& x) const { return sum(x, axes, keepdim); }
  };
  return record_linear("sum_backward", dy, sum_backward(x_shape, dy.data(), axes, keepdim),
                       Sum{axes, keepdim});
}

namespace {

int64_t count(const Shape& x_shape, const Variable& y) {
  return y.numel() == 0 ? 0 : x_shape.product() / y.numel();
}

Variable mean_backward(const Shape& x_shape, const Variable& dy, const Axes& axes, bool keepdim) {
  return sum_backward(x_shape, dy, axes, keepdim) / static_cast<double>(count(x_shape, dy));
}

Variable slope_of_var(const Variable& x, const Variable& dy, const Axes& axes, bool keepdim,
                      double correction) {
  const double n = static_cast<double>(count(x.shape(), dy)) - correction;
  const Variable apart = x - mean(x, axes, true);
  return sum_backward(x.shape(), dy, axes, keepdim) * (apart * (2 / n));
}

}  // namespace

Variable sum(const Variable& x, const Axes& axes, bool keepdim) {
  return record_linear("sum", x, sum(x.data(), axes, keepdim),
                       [shape = x.shape(), axes, keepdim](const auto& dy) {
                         return sum_backward(shape, dy, axes, keepdim);
                       });
}

Variable mean(const Variable& x, const Axes& axes, bool keepdim) {
  return record_linear("mean", x, mean(x.data(), axes, keepdim),
                       [shape = x.shape(), axes, keepdim](const auto& dy) {
                         return mean_backward(shape, dy, axes, keepdim);
                       });
}

Variable var(const Variable& x, const Axes& axes, bool keepdim, double correction) {
  return tape().record(
      "var", {x}, var(x.data(), axes, keepdim, correction),
      Twice{[x = SavedTensor(x.data()), axes, keepdim, correction](const Tensor& dy) {
              return Grads{var_backward(x, dy, axes, keepdim, correction)};
            },
            [axes, keepdim, correction](const Recorded& r) {
              return VariableGrads{slope_of_var(r.input(), r.dy(), axes, keepdim, correction)};
            }});
}

Variable stddev(const Variable& x, const Axes& axes, bool keepdim, double correction) {
  const Tensor y = stddev(x.data(), axes, keepdim, correction);
  return tape().record(
      "stddev", {x}, y,
      Twice{[x = SavedTensor(x.data()), y = SavedTensor(y), axes, keepdim,
             correction](const Tensor& dy) {
              return Grads{stddev_backward(x, y, dy, axes, keepdim, correction)};
            },
            [axes, keepdim, correction](const Recorded& r) {
              // Without a slope where it is 0.
              const Tensor flat = eq(r.y().data(), 0);
              const Variable dvar = where(flat, 0, r.dy() * 0.5 / where(flat, 1, r.y()));
              return VariableGrads{slope_of_var(r.input(), dvar, axes, keepdim, correction)};
            }});
}

namespace {
Variable record_extremum(const char* name, const Variable& x, const Tensor& y, const Axes& axes,
                         bool keepdim) {
  return tape().record(
      name, {x}, y,
      Twice{[x = SavedTensor(x.data()), y = SavedTensor(y), axes, keepdim](const Tensor& dy) {
              return Grads{extremum_backward(x, y, dy, axes, keepdim)};
            },
            [axes, keepdim](const Recorded& r) {
              const Tensor from = r.input().data(), to = r.y().data();
              const Variable shares = extremum_backward(from, to, ones_like(to), axes, keepdim);
              return VariableGrads{sum_backward(from.shape(), r.dy(), axes, keepdim) * shares};
            }});
}
}  // namespace

Variable amax(const Variable& x, const Axes& axes, bool keepdim) {
  return record_extremum("amax", x, amax(x.data(), axes, keepdim), axes, keepdim);
}

Variable amin(const Variable& x, const Axes& axes, bool keepdim) {
  return record_extremum("amin", x, amin(x.data(), axes, keepdim), axes, keepdim);
}

}  // namespace bs
