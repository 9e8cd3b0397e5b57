#pragma once
/** @file A tensor kept for backward, that notices when it is changed in the meantime. */
#include <bs/autograd/variable.h>
#include <bs/lib/changes.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace bs {

/** @brief A tensor as it was when an operation was recorded. Captured by a backward in place of the
 *  Tensor, it is used like one. Where its memory has been changed in place since, that use throws
 *  an Error that names the operation recorded and the one that changed it. */
class SavedTensor {
 public:
  /** @brief Undefined: stands for a tensor that is not needed. */
  SavedTensor() = default;
  explicit SavedTensor(Tensor tensor) : tensor_(std::move(tensor)), moment_(change_count()) {}

  bool defined() const { return tensor_.defined(); }
  const Shape& shape() const { return tensor_.shape(); }
  DType dtype() const { return tensor_.dtype(); }
  /** @brief The tensor. @throws Error when it was changed in place since. */
  const Tensor& get() const {
    if (change_count() != moment_) check_unchanged();
    return tensor_;
  }
  // NOLINTNEXTLINE(google-explicit-constructor): a backward takes it for the tensor it is
  operator const Tensor&() const { return get(); }

 private:
  void check_unchanged() const;
  Tensor tensor_;
  mutable uint64_t moment_ = 0;
};

/** @brief What a product keeps of a factor: nothing where its partner wants no gradient. */
inline SavedTensor saved_factor(const Variable& factor, const Variable& partner) {
  return SavedTensor(partner.requires_grad() ? factor.data() : Tensor());
}

/** @brief A SavedTensor for each defined tensor of an operation whose backward keeps them in a
 *  struct. */
class SavedInputs {
 public:
  explicit SavedInputs(std::span<const Variable> inputs);
  /** @brief @throws Error when one of them was changed in place since. */
  void check() const;

 private:
  std::vector<SavedTensor> tensors_;
};

namespace detail {

/** @brief While it lives, this thread runs the backward of the operation named. */
class RunningBackward {
 public:
  explicit RunningBackward(const char* name);
  ~RunningBackward();
  /** @brief The operation; null where there is none. */
  static const char* name();
  RunningBackward(const RunningBackward&) = delete;
  RunningBackward& operator=(const RunningBackward&) = delete;

 private:
  const char* previous_;
};

}  // namespace detail

}  // namespace bs
