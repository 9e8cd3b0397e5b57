#include <bs/kernels/norm.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>

namespace bs {

namespace {

/// Throws unless `vector`, called `name`, is absent or fits the last axis of x.
void check_vector(const char* op, const char* name, const Tensor& x, const Tensor& vector) {
  if (!vector.defined()) return;
  BS_CHECK(vector.shape() == Shape{x.size(-1)}, "{}: {} {} does not fit the last axis of x {}", op,
           name, vector.shape(), x.shape());
  check_same_dtype(op, x, vector);
  check_same_device(op, x, vector);
}

Tensor dense(const Tensor& vector) { return vector.defined() ? contiguous(vector) : vector; }

DType statistics_dtype(const Tensor& x) { return x.dtype() == f64 ? f64 : f32; }

/// The shape of so many tensors of `shape`, one after the other.
Shape stacked(int64_t count, const Shape& shape) {
  Shape all = {count};
  for (const int64_t extent : shape) all.push_back(extent);
  return all;
}

/// `added`: what to add to x first, or undefined.
NormResult normalize(const char* op, const Tensor& x, const Tensor& added, const Tensor& weight,
                     const Tensor& bias, double eps, bool centred) {
  BS_CHECK(x.rank() > 0, "{}: a scalar has no axis", op);
  BS_CHECK(eps >= 0, "{}: eps {} is negative", op, eps);
  check_vector(op, "weight", x, weight);
  check_vector(op, "bias", x, bias);
  if (added.defined()) check_alike(op, x, added);
  const Tensor in = contiguous(x);
  const Shape rows = x.shape().slice(0, x.rank() - 1);
  NormResult result;
  result.y = Tensor::empty_like(in);
  const Tensor statistics = Tensor::empty(stacked(centred ? 2 : 1, rows), statistics_dtype(x),
                                          x.device());  // one allocation for both
  result.rstd = statistics.select(0, 0);
  if (centred) result.mean = statistics.select(0, 1);
  if (added.defined()) result.sum = Tensor::empty_like(in);
  if (x.numel() > 0)
    BS_DISPATCH(x.device(), norm, in, dense(added), dense(weight), dense(bias), result, eps);
  return result;
}

/// Throws unless `statistic` is what the forward has kept of each row of x.
void check_statistics(const char* op, const char* name, const Tensor& x, const Tensor& statistic) {
  BS_CHECK(statistic.defined(), "{}: {} is undefined", op, name);
  BS_CHECK(statistic.shape() == x.shape().slice(0, x.rank() - 1) &&
               statistic.dtype() == statistics_dtype(x) && statistic.device() == x.device() &&
               statistic.is_contiguous(),
           "{}: {} {} {} on {} is not of the forward of x {} {} on {}", op, name, statistic.dtype(),
           statistic.shape(), statistic.device(), x.dtype(), x.shape(), x.device());
}

NormGradients normalize_backward(const char* op, const Tensor& x, const Tensor& weight,
                                 const Tensor& mean, const Tensor& rstd, const Tensor& dy,
                                 bool wants_bias, const Tensor& dsum) {
  BS_CHECK(x.rank() > 0, "{}: a scalar has no axis", op);
  check_same_shape(op, x, dy);
  check_same_dtype(op, x, dy);
  check_same_device(op, x, dy);
  check_vector(op, "weight", x, weight);
  check_statistics(op, "rstd", x, rstd);
  if (mean.defined()) check_statistics(op, "mean", x, mean);
  if (dsum.defined()) check_alike(op, x, dsum);
  const Shape columns = {x.size(-1)};
  NormGradients gradients;
  gradients.dx = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (weight.defined()) gradients.dweight = Tensor::empty(columns, x.dtype(), x.device());
  if (wants_bias) gradients.dbias = Tensor::empty(columns, x.dtype(), x.device());
  if (x.numel() > 0) {
    const NormResult of{.y = {}, .mean = mean, .rstd = rstd, .sum = contiguous(x)};
    BS_DISPATCH(x.device(), norm_backward, of, dense(weight), contiguous(dy), dense(dsum),
                gradients);
  } else {  // no rows: sums over nothing
    if (weight.defined()) fill(gradients.dweight, 0);
    if (wants_bias) fill(gradients.dbias, 0);
  }
  return gradients;
}

}  // namespace

NormResult layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return normalize("layer_norm", x, {}, weight, bias, eps, true);
}

NormGradients layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean,
                                  const Tensor& rstd, const Tensor& dy, bool wants_bias,
                                  const Tensor& dsum) {
  BS_CHECK(mean.defined(), "layer_norm_backward: mean is undefined");
  return normalize_backward("layer_norm_backward", x, weight, mean, rstd, dy, wants_bias, dsum);
}

NormResult rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return normalize("rms_norm", x, {}, weight, {}, eps, false);
}

NormGradients rms_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd,
                                const Tensor& dy, const Tensor& dsum) {
  return normalize_backward("rms_norm_backward", x, weight, {}, rstd, dy, false, dsum);
}

NormResult add_layer_norm(const Tensor& a, const Tensor& b, const Tensor& weight,
                          const Tensor& bias, double eps) {
  return normalize("add_layer_norm", a, b, weight, bias, eps, true);
}

NormResult add_rms_norm(const Tensor& a, const Tensor& b, const Tensor& weight, double eps) {
  return normalize("add_rms_norm", a, b, weight, {}, eps, false);
}

}  // namespace bs
