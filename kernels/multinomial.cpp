#include <bs/kernels/multinomial.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/random.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/scan.h>
#include <bs/kernels/sort.h>

#include <cmath>

namespace bs {

namespace {

void check_weights(const char* op, const Tensor& weights) {
  const Tensor largest = amax(weights, Dims{-1});  // of each row
  const double low = amin(weights).item(), high = amax(largest).item();
  BS_CHECK(low >= 0 && std::isfinite(high), "{}: weights from {} to {}", op, low, high);
  BS_CHECK(amin(largest).item() > 0, "{}: row {} of weights {} has no class of a weight above 0",
           op, argmin(reshape(largest, {largest.numel()})).item(), weights.shape());
}

}  // namespace

// With replacement: where a uniform number falls among the running sums. Without: the classes whose
// exponential clocks of rate `weight` ring first (Efraimidis and Spirakis, 2006).
Tensor multinomial(const Tensor& weights, int64_t count, const MultinomialOptions& options,
                   Generator& generator) {
  const char* op = "multinomial";
  if (!is_floating(weights.dtype()))
    detail::unsupported_dtype(op, weights.dtype(), "f64, f32, f16 or bf16");
  BS_CHECK(weights.rank() >= 1 && weights.size(-1) > 0, "{}: weights {} have no classes", op,
           weights.shape());
  const int64_t classes = weights.size(-1);
  BS_CHECK(count >= 0 && (options.replacement || count <= classes),
           "{}: {} draws from {} classes without replacement", op, count, classes);
  if (weights.device().is_cpu() && weights.numel() > 0) check_weights(op, weights);
  if (!options.replacement) {
    const DType dtype = weights.dtype() == f64 ? f64 : f32;
    const Tensor clocks = Tensor::empty(weights.shape(), dtype, weights.device());
    const RandomState state = generator.next();
    if (clocks.numel() > 0)
      BS_DISPATCH(weights.device(), exponential_clocks, contiguous(weights), clocks, state);
    return topk(clocks, count, -1, false).indices;
  }
  const Tensor p = cast(weights, f64);
  const Tensor sums = cumsum(p, -1);
  Shape shape = p.shape();
  shape[-1] = count;
  const Tensor uniform = rand(shape, f64, p.device(), generator);
  const Tensor at = mul(uniform, sums.slice(-1, classes - 1, classes));
  return minimum(searchsorted(sums, at, true), classes - 1);
}

}  // namespace bs
