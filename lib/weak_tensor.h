#pragma once
/** @file A tensor that is remembered without keeping its memory. */
#include <bs/lib/tensor.h>

namespace bs {

/** @brief What a tensor was like, and the tensor itself for as long as another one shares its
 *  memory: std::weak_ptr for tensors. */
class WeakTensor {
 public:
  /** @brief Of nothing: lock() gives an undefined tensor. */
  WeakTensor() = default;
  /** @brief @throws Error for an undefined tensor. */
  explicit WeakTensor(const Tensor& tensor)
      : storage_(tensor.storage_),
        offset_(tensor.offset_),
        shape_(tensor.shape_),
        strides_(tensor.strides_),
        dtype_(tensor.dtype_),
        device_(tensor.device("weak_tensor")) {}

  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  /** @brief The tensor; undefined once its memory is gone. */
  Tensor lock() const {
    Tensor tensor;
    tensor.storage_ = storage_.lock();
    if (!tensor.storage_) return {};
    tensor.offset_ = offset_;
    tensor.shape_ = shape_;
    tensor.strides_ = strides_;
    tensor.dtype_ = dtype_;
    return tensor;
  }

 private:
  std::weak_ptr<Storage> storage_;
  int64_t offset_ = 0;
  Shape shape_;
  Strides strides_;
  DType dtype_ = DType::f32;
  Device device_ = Device::cpu();
};

}  // namespace bs
