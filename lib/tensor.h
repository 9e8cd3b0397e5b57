#pragma once
/** @file The tensor: a handle to a strided view of shared storage. */
#include <bs/lib/device.h>
#include <bs/lib/dims.h>
#include <bs/lib/dtype.h>
#include <bs/lib/storage.h>

#include <iosfwd>
#include <memory>
#include <span>

namespace bs {

/** @brief A strided, typed view of memory on one device. Copying a Tensor copies the handle: both
 *  name the same elements. Views are free and share storage. Constness is that of the handle. */
class Tensor {
 public:
  /** @brief An undefined tensor: `defined()` is false, its shape is [], any use of it throws. */
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) = default;  ///< leaves `other` undefined, though with the shape that it had
  /** @brief Names the elements of `other` from now on. Only a variable can: `t[i] = v` and
   *  `t.slice(0, 1, 3) = v`, which would change nothing, do not compile; see bs::assign. */
  Tensor& operator=(const Tensor& other) & = default;
  Tensor& operator=(Tensor&& other) & = default;
  ~Tensor() = default;
  /** @brief Uninitialised row-major memory. @throws Error for a negative extent, OutOfMemory. */
  static Tensor empty(const Shape& shape, DType dtype, Device device = Device::cpu());
  static Tensor empty_like(const Tensor& other) {
    return empty(other.shape(), other.dtype(), other.device());
  }
  /** @brief Copies `values` into new host memory. @throws Error when the count differs. */
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape);
  template <class T>
  static Tensor from(std::initializer_list<T> values, const Shape& shape) {
    return from(std::span<const T>(values.begin(), values.size()), shape);
  }
  /** @brief A vector of the values given. */
  template <class T>
  static Tensor from(std::initializer_list<T> values) {
    return from(values, {static_cast<int64_t>(values.size())});
  }
  /** @brief A row-major view of memory owned by the caller, who keeps it alive until `release`. */
  static Tensor from_blob(void* data, const Shape& shape, DType dtype,
                          Device device = Device::cpu(), std::function<void()> release = {});

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  /** @brief Distance between neighbours along each axis, in elements. */
  const Strides& strides() const { return strides_; }
  int rank() const { return shape_.rank(); }
  int64_t size(int axis) const { return shape_[axis]; }
  int64_t numel() const { return shape_.product(); }
  size_t bytes() const { return static_cast<size_t>(numel()) * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  /** @brief @throws Error for an undefined tensor, in the name of the function that asks, which
   *  comes by itself. */
  Device device(const char* caller = __builtin_FUNCTION()) const;
  /** @brief Whether the elements lie densely in row-major order. */
  bool is_contiguous() const;
  /** @brief Whether both view the same storage, which says nothing of overlap. */
  bool shares_storage(const Tensor& other) const { return storage_ == other.storage_; }
  /** @brief Number of tensors that share the storage. */
  int64_t use_count() const { return storage_.use_count(); }

  /** @brief The same elements under another shape; one extent may be -1.
   *  @throws Error when the count differs or the strides cannot express it (see contiguous()). */
  Tensor view(const Shape& shape) const;
  /** @brief Whether view(shape) needs no copy. @throws Error when the count differs. */
  bool can_view(const Shape& shape) const;
  Tensor permute(const Dims& axes) const;
  Tensor transpose(int a, int b) const;
  /** @brief Elements [begin, end) of `axis`, every `step`-th; negative positions count from the
   * end. The range is clipped to the axis, as in Python. */
  Tensor slice(int axis, int64_t begin, int64_t end, int64_t step = 1) const;
  /** @brief Element `index` of `axis`, which disappears. */
  Tensor select(int axis, int64_t index) const;
  /** @brief Element `index` of the first axis: t[1][2] is t.select(0, 1).select(0, 2). */
  Tensor operator[](int64_t index) const { return select(0, index); }
  Tensor unsqueeze(int axis) const;
  Tensor squeeze(int axis) const;
  /** @brief Joins the axes [from, to] into one, where strides allow it. */
  Tensor flatten(int from = 0, int to = -1) const;
  /** @brief Repeats axes of extent 1 (and new leading ones) with stride 0; writing to it is wrong.
   */
  Tensor expand(const Shape& shape) const;
  /** @brief The lowest-level view: any shape and strides from element `offset` of this view on. */
  Tensor as_strided(const Shape& shape, const Strides& strides, int64_t offset = 0) const;

  /** @brief The same elements under another shape: a view where strides allow it, else a copy. It
   *  and clone() are kernels, with their definitions in kernels/copy.cpp. */
  Tensor reshape(const Shape& shape) const;
  /** @brief A new contiguous tensor with the same elements. */
  Tensor clone() const;

  /** @brief This tensor when it is on `device` already, else a copy there. Contiguous only; see
   *  bs::contiguous. Synchronous towards the host. */
  Tensor to(Device device) const;
  /** @brief The value of a one-element tensor, as a double. Waits for the device. */
  double item() const;

  /** @brief First element. Only kernels and tests look at memory. @throws Error for another dtype.
   */
  template <class T>
  T* data() const {
    check_dtype(dtype_of<T>);
    return static_cast<T*>(data());
  }
  void* data() const;

 private:
  friend class WeakTensor;
  void check_defined(const char* caller = __builtin_FUNCTION()) const;
  void check_dtype(DType expected) const;
  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;
  Shape shape_;
  Strides strides_;
  DType dtype_ = DType::f32;
};

/** @brief Copies between two contiguous tensors of one dtype and shape on any two devices. They may
 *  overlap: a GPU then needs memory for a copy in between. Waits where the host is involved. */
void copy_bytes(const Tensor& from, const Tensor& to);

/** @brief Shape, dtype, device and values, the middle of long axes left out. */
std::string to_string(const Tensor& tensor);
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape) {
  Tensor t = empty(shape, dtype_of<T>);
  BS_CHECK(t.numel() == static_cast<int64_t>(values.size()), "tensor: {} values for shape {}",
           values.size(), shape);
  std::copy(values.begin(), values.end(), t.data<T>());
  return t;
}

}  // namespace bs
