#include <bs/autograd/anomaly.h>
#include <bs/kernels/nonzero.h>
#include <bs/kernels/rounding.h>

#include <string>
#include <utility>

namespace bs {

namespace {

thread_local bool detecting = false;

/// The positions of NaN, [count, rank]; undefined where there is none.
Tensor nan_positions(const Tensor& x) {
  if (!x.defined() || x.numel() == 0 || !is_floating(x.dtype())) return {};
  const Tensor at = nonzero(isnan(x));
  return at.size(0) > 0 ? at : Tensor();
}

bool holds_nan(const Tensor& x) { return nan_positions(x).defined(); }

/// Such as: 3 of 12 elements of f32 [3, 4] are NaN, the first at [1, 2]
std::string describe(const Tensor& x, const Tensor& at) {
  Dims first;
  for (int axis = 0; axis < x.rank(); ++axis)
    first.push_back(static_cast<int64_t>(at.select(0, 0).select(0, axis).item()));
  return format("{} of {} elements of {} {} are NaN, the first at {}", at.size(0), x.numel(),
                x.dtype(), x.shape(), first);
}

}  // namespace

DetectAnomaly::DetectAnomaly() : previous_(std::exchange(detecting, true)) {}
DetectAnomaly::~DetectAnomaly() { detecting = previous_; }
bool detecting_anomaly() { return detecting; }

void detail::check_results(const char* name, std::span<const Variable> inputs,
                           std::span<const Tensor> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor at = nan_positions(outputs[i]);
    if (!at.defined()) continue;
    std::string origin = "none of its inputs holds one";
    for (size_t k = 0; k < inputs.size(); ++k)
      if (inputs[k].has_data() && holds_nan(inputs[k].data())) {
        origin = format("its input {} held some", k);
        break;
      }
    BS_THROW(Error, "anomaly: result {} of {}: {}; {}", i, name, describe(outputs[i], at), origin);
  }
}

void detail::check_gradients(const char* name, std::span<const Tensor> dys,
                             std::span<const Tensor> gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Tensor at = nan_positions(gradients[i]);
    if (!at.defined()) continue;
    bool before = false;
    for (const Tensor& dy : dys) before = before || holds_nan(dy);
    BS_THROW(
        Error, "anomaly: gradient of input {} in the backward of {}: {}; {}", i, name,
        describe(gradients[i], at),
        before ? "the gradient that came in held some" : "the gradient that came in held none");
  }
}

}  // namespace bs
