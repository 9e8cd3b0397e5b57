#pragma once
/** @file What the optimisers ask of a parameter and its state. */
#include <bs/kernels/copy.h>
#include <bs/kernels/grad_norm.h>
#include <bs/lib/changes.h>

#include <array>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace bs {

/** @brief A step whose arguments have been checked; the call, one at most, does it. So several
 *  groups of parameters are known to fit before the first changes. On the CPU it needs no more
 *  memory then. The parameters given, though not the options, must live until then. */
using PreparedStep = std::function<void()>;

/** @brief The dtype in which the state of a parameter of `dtype` is kept and its step is done. */
inline DType state_dtype(DType dtype) { return dtype == f64 ? f64 : f32; }

/** @brief Throws an Error naming `op` unless `value` can be a parameter and `gradient` its own. */
void check_parameter(const char* op, const Tensor& value, const Tensor& gradient);
/** @brief Throws an Error naming `op` and the tensor's `name` unless `state` has `shape` and fits
 *  `value`. */
void check_state(const char* op, const char* name, const Tensor& value, const Tensor& state,
                 const Shape& shape);
/** @brief Throws an Error naming `op` unless `numbers` is undefined or holds `count` of f64 on
 *  `device`. A step takes them from there rather than from the host. */
void check_numbers(const char* op, const Tensor& numbers, int64_t count, Device device);
/** @brief Throws an Error naming `op` unless `master` is undefined or fits a 16-bit `value`. */
void check_master(const char* op, const Tensor& value, const Tensor& master);

/** @brief Whether a dense gradient lies over other elements of its dense value than its own. */
bool lies_across(const Tensor& value, const Tensor& gradient);

/** @brief The weights that a step is done on: the master, the value, or an f32 copy of it. */
template <class Parameter>
Tensor full_precision(const Parameter& p) {
  return p.master.defined() ? p.master : cast(p.value, state_dtype(p.value.dtype()));
}
/** @brief Brings them back after the step. */
template <class Parameter>
void round_back(const Tensor& weights, const Parameter& p) {
  if (is_low_precision(p.value.dtype())) copy(weights, p.value);
}

/** @brief Which tensors of state a parameter has: pointers to members, in the order that the rule
 *  of its optimiser takes them. */
template <class Parameter, size_t count>
using StateMembers = std::array<Tensor Parameter::*, count>;

/** @brief The parameters that a step changes: those given, which must live as long. Where not all
 * can be stepped as they are, some are copies. A copy takes longer than all checks. */
template <class Parameter>
class StepParameters {
 public:
  explicit StepParameters(std::span<const Parameter> given) : given_(given) {}
  explicit StepParameters(std::vector<Parameter> copies) : copies_(std::move(copies)) {}
  std::span<const Parameter> all() const {
    return copies_.empty() ? given_ : std::span<const Parameter>(copies_);
  }
  bool empty() const { return all().empty(); }
  /** @brief That of all parameters, where there are any. */
  Device device() const { return all().front().value.device(); }

 private:
  std::span<const Parameter> given_;
  std::vector<Parameter> copies_;
};

/** @brief The parameters that have a gradient and elements, their gradients contiguous. A gradient
 *  that the step would overwrite before it is read is a copy. State that has no name is left out.
 *  @throws Error naming `op` when shapes, dtypes, devices or layouts do not fit. */
template <class Parameter, size_t count>
StepParameters<Parameter> checked_parameters(const char* op, std::span<const Parameter> parameters,
                                             const std::array<const char*, count>& names,
                                             const GradientClip& clip) {
  const auto takes_part = [](const Parameter& p) {
    return p.gradient.defined() && p.value.numel() > 0;
  };
  const Parameter* first = nullptr;
  bool as_given = true;
  for (const Parameter& p : parameters) {
    if (!takes_part(p)) {
      as_given = false;
      continue;
    }
    check_parameter(op, p.value, p.gradient);
    as_given = as_given && p.gradient.is_contiguous() && !lies_across(p.value, p.gradient);
    for (size_t i = 0; i < count; ++i) {
      const Tensor& state = p.*Parameter::states[i];
      if (names[i]) {
        check_state(op, names[i], p.value, state, p.value.shape());
      } else {
        as_given = as_given && !state.defined();
      }
    }
    check_master(op, p.value, p.master);
    if (!first) first = &p;
    check_same_device(op, first->value, p.value);
  }
  if (first) check_clip(op, clip, first->value.device());
  if (as_given) return StepParameters(parameters);
  std::vector<Parameter> copies;
  copies.reserve(parameters.size());
  for (const Parameter& p : parameters) {
    if (!takes_part(p)) continue;
    Parameter& own = copies.emplace_back(p);
    own.gradient = lies_across(p.value, p.gradient) ? clone(p.gradient) : contiguous(p.gradient);
    for (size_t i = 0; i < count; ++i)
      if (!names[i]) own.*Parameter::states[i] = {};
  }
  return StepParameters(std::move(copies));
}

/** @brief Notes that `op` is about to change the values of `parameters`. */
template <class Parameter>
void note_step(const char* op, std::span<const Parameter> parameters) {
  for (const Parameter& p : parameters) note_change(p.value, op);
}

}  // namespace bs
