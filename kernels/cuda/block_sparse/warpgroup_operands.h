#pragma once
/** @file How the operands of the warpgroup kernels of the block-sparse products are described to
 *  them: axes of a batch, and maps for the copy engine. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tiles.h>
#include <bs/kernels/strided.h>
#include <bs/lib/cuda/tensor_map.h>
#include <bs/lib/integers.h>
#include <bs/lib/tensor.h>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_problem.cuh>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace bs::cuda {

/// Batch and sum of a product on three axes together, those of the batch first.
class Axes {
 public:
  template <int N, int M>
  Axes(const StridedLoop<N>& over, const StridedLoop<M>& summed)
      : batch_rank_(over.numel() == 1 ? 0 : over.rank),
        rank_(batch_rank_ + (summed.numel() == 1 ? 0 : summed.rank)) {
    for (int axis = 0; axis < 3; ++axis) {
      batch.shape[axis] = axis < batch_rank_ ? static_cast<int>(over.shape[axis]) : 1;
      const bool inside = axis >= batch_rank_ && axis < rank_;
      sum.shape[axis] = inside ? static_cast<int>(summed.shape[axis - batch_rank_]) : 1;
    }
  }

  bool fit(int most) const { return rank_ <= most; }

  /// Strides of an operand, number `of_batch` of the one loop and `of_sum` of the other.
  template <int N, int M>
  std::array<int64_t, 3> strides(const StridedLoop<N>& over, int of_batch,
                                 const StridedLoop<M>& summed, int of_sum) const {
    std::array<int64_t, 3> out{};
    for (int axis = 0; axis < rank_; ++axis)
      out[static_cast<size_t>(axis)] = axis < batch_rank_
                                           ? over.strides[of_batch][axis]
                                           : summed.strides[of_sum][axis - batch_rank_];
    return out;
  }

  /// Whether operand `n` has its matrices of `size` elements one after the other.
  template <int N>
  bool dense(const StridedLoop<N>& over, int n, int64_t size) const {
    for (int axis = batch_rank_ - 1; axis >= 0; --axis) {
      if (over.strides[n][axis] != size) return false;
      size *= over.shape[axis];
    }
    return true;
  }

  device::BatchAxes batch{}, sum{};

 private:
  int batch_rank_, rank_;
};

/// A dense operand for the copy engine: lines of `length` elements, `lines` of them, and up to
/// three axes more. What it cannot address makes it unfit.
struct DenseMap {
  TiledTensor tensor;
  int64_t element_bytes;
  bool fit = true;

  DenseMap(const Tensor& x, int64_t length, int64_t lines, int64_t line_stride, int box_length,
           int box_lines)
      : element_bytes(static_cast<int64_t>(size_of(x.dtype()))) {
    tensor.element = x.dtype() == f16    ? TensorMapElement::f16
                     : x.dtype() == bf16 ? TensorMapElement::bf16
                                         : TensorMapElement::f32;
    tensor.address = x.data();
    // L2 brings nothing beside what is asked for: where the depth is along the lines, that would
    // be what the next stage asks for, when it may be lost again.
    tensor.promotion = TensorMapPromotion::none;
    tensor.rank = 0;
    fit = reinterpret_cast<uintptr_t>(x.data()) % 16 == 0;
    const int64_t bytes = box_length * element_bytes;
    tensor.swizzle = bytes == 128  ? TensorMapSwizzle::bytes_128
                     : bytes == 64 ? TensorMapSwizzle::bytes_64
                                   : TensorMapSwizzle::bytes_32;
    add(length, 1, box_length);
    add(lines, line_stride, box_lines);
  }

  void add(int64_t extent, int64_t stride, int box = 1) {
    const auto axis = static_cast<size_t>(tensor.rank++);
    tensor.dims[axis] = extent;
    // The stride of an axis of one element may be anything that the copy engine takes.
    tensor.strides[axis] = axis > 0 && extent == 1 ? 16 : stride * element_bytes;
    tensor.box[axis] = box;
    fit = fit && fits_int(extent) && (axis == 0 || tensor.strides[axis] % 16 == 0);
  }

  /// Axes over which the operand is repeated stay of extent 1, and steps along them are 0.
  void add_axes(const Axes& axes, const std::array<int64_t, 3>& strides, int count,
                device::BatchSteps& steps) {
    for (int axis = 0; axis < 3; ++axis) {
      const int64_t stride = strides[static_cast<size_t>(axis)];
      steps.step[axis] = stride != 0;
      const int64_t extent = int64_t{axes.batch.shape[axis]} * axes.sum.shape[axis];
      if (axis < count) {
        add(stride != 0 ? extent : 1, stride);
      } else {
        fit = fit && stride == 0;
      }
    }
  }

  device::TensorMapWords encode(const char* op) const {
    return std::bit_cast<device::TensorMapWords>(encode_tiled(op, tensor));
  }
};

/// Strides in units of `size`.
inline device::BatchSteps steps_of(const std::array<int64_t, 3>& strides, int64_t size) {
  device::BatchSteps steps{};
  for (size_t axis = 0; axis < 3; ++axis) steps.step[axis] = static_cast<int>(strides[axis] / size);
  return steps;
}

/// What the kernels ask for beforehand: tables on the device, of which some may be undefined.
inline device::ListMemory list_memory(const Tensor& first, const Tensor& second,
                                      const Tensor& third = {}) {
  device::ListMemory memory{};
  int i = 0;
  for (const Tensor* table : {&first, &second, &third}) {
    if (!table->defined()) continue;
    memory.from[i] = table->data();
    memory.lines[i++] =
        static_cast<int>(std::min<int64_t>(ceil_div(table->bytes(), 128), INT32_MAX));
  }
  return memory;
}

}  // namespace bs::cuda
