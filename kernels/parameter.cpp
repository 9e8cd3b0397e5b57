#include <bs/kernels/parameter.h>

#include <algorithm>
#include <cstdint>

namespace bs {

void check_parameter(const char* op, const Tensor& value, const Tensor& gradient) {
  BS_CHECK(is_floating(value.dtype()), "{}: parameter of dtype {}", op, value.dtype());
  BS_CHECK(value.is_contiguous(), "{}: parameter {} with strides {} has gaps", op, value.shape(),
           value.strides());
  BS_CHECK(gradient.shape() == value.shape() && gradient.dtype() == value.dtype(),
           "{}: gradient {} of {} for a parameter {} of {}", op, gradient.shape(), gradient.dtype(),
           value.shape(), value.dtype());
  check_same_device(op, value, gradient);
}

bool lies_across(const Tensor& value, const Tensor& gradient) {
  const auto v = reinterpret_cast<uintptr_t>(value.data());
  const auto g = reinterpret_cast<uintptr_t>(gradient.data());
  return v != g && std::max(v, g) - std::min(v, g) < value.bytes();
}

void check_state(const char* op, const char* name, const Tensor& value, const Tensor& state,
                 const Shape& shape) {
  BS_CHECK(state.defined(), "{}: a parameter {} has no {}", op, value.shape(), name);
  BS_CHECK(state.shape() == shape && state.dtype() == state_dtype(value.dtype()) &&
               state.is_contiguous(),
           "{}: {} {} of {} with strides {} for a parameter {} of {}", op, name, state.shape(),
           state.dtype(), state.strides(), value.shape(), value.dtype());
  check_same_device(op, value, state);
}

void check_numbers(const char* op, const Tensor& numbers, int64_t count, Device device) {
  BS_CHECK(!numbers.defined() || (numbers.shape() == Shape{count} && numbers.dtype() == f64 &&
                                  numbers.is_contiguous() && numbers.device() == device),
           "{}: numbers {} of {}, expected [{}] of f64 on {}", op, numbers.shape(), numbers.dtype(),
           count, device);
}

void check_master(const char* op, const Tensor& value, const Tensor& master) {
  if (!master.defined()) return;
  BS_CHECK(is_low_precision(value.dtype()), "{}: a master copy for a parameter of {}", op,
           value.dtype());
  check_state(op, "master", value, master, value.shape());
}

}  // namespace bs
