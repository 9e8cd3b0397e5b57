#pragma once
/** @file What an element-wise operation takes: a tensor, or a number. */
#include <bs/lib/tensor.h>

#include <concepts>
#include <utility>

namespace bs {

/** @brief A number beside a tensor. It gives way to the tensor's dtype. Only its kind counts, and
 *  only where that is higher: 2.5 turns an integral tensor into f32, and 2 turns one of bool into
 *  i64, which true does not. */
class Scalar {
 public:
  template <std::integral I>
  Scalar(I value)  // NOLINT(google-explicit-constructor): numbers are written as they are
      : integral_(true),
        boolean_(std::same_as<I, bool>),
        integer_(static_cast<int64_t>(value)),
        real_(static_cast<double>(value)) {}
  template <std::floating_point F>
  Scalar(F value)  // NOLINT(google-explicit-constructor)
      : integral_(false), real_(static_cast<double>(value)) {}

  bool is_integral() const { return integral_; }
  /** @brief The value as a float, a double or an integer of any size. */
  template <class W>
  W to() const {
    return integral_ ? static_cast<W>(integer_) : static_cast<W>(real_);
  }
  /** @brief The dtype of an operation between a tensor of `dtype` and this. */
  DType promote(DType dtype) const {
    if (is_floating(dtype) || (integral_ && (dtype != boolean || boolean_))) return dtype;
    return integral_ ? i64 : f32;
  }

 private:
  bool integral_;
  bool boolean_ = false;
  int64_t integer_ = 0;
  double real_;
};

/** @brief A tensor, or the number that stands in its place; what backends take. */
struct Operand {
  Operand(Tensor t) : tensor(std::move(t)) {}        // NOLINT(google-explicit-constructor)
  Operand(Scalar n) : number(n), is_number(true) {}  // NOLINT(google-explicit-constructor)

  Tensor tensor;  ///< undefined: the number is meant
  Scalar number = 0;
  bool is_number = false;

  /** @brief Strides over a result of `rank` axes; a number has none but zeros. */
  Strides strides(int rank) const {
    return tensor.defined() ? tensor.strides() : Dims::filled(rank, 0);
  }
};

/** @brief Throws an Error naming `op` when `x` is an integer that an operation on `dtype` cannot
 *  compute with: one beyond i32, in which i32 and the bytes of u8 are computed. */
void check_number(const char* op, const Operand& x, DType dtype);
/** @brief Whether it would not: true of tensors, and beside i64 and floats. */
bool is_in_range(const Operand& x, DType dtype);

/** @brief What an operation on several operands computes on. */
struct Common {
  Shape shape;
  DType dtype;  ///< by PyTorch's promotion
  Device device;
};
/** @brief The broadcast shape, the promoted dtype and the device of two operands, one a tensor.
 *  @throws Error naming `op` when shapes do not broadcast or devices differ. */
Common common(const char* op, const Operand& a, const Operand& b);
/** @brief `x` as a tensor of `dtype` seen under `shape`; a number stays what it is. */
Operand expand(const Operand& x, DType dtype, const Shape& shape);

}  // namespace bs
