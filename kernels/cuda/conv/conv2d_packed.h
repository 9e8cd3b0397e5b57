#pragma once
/** @file What convolutions on tiles share: tensors as the kernels take them, and their kernels. */
#include <bs/kernels/conv2d.h>
#include <bs/kernels/cuda/conv/conv2d_launch.h>

#include <initializer_list>
#include <vector>

namespace bs::cuda {

/** @brief [n][h][w][c] of an image, or of filters [k][r][s][c]: itself where it lies so, else a
 *  copy. */
Tensor packed_image(const Tensor& image);

/** @brief A result of the kernels, channels-last: `to` itself where it lies so; else it is copied
 *  behind. */
class PackedResult {
 public:
  explicit PackedResult(const Tensor& to);
  const Tensor& packed() const { return packed_; }
  void finish(Stream stream) const;

 private:
  Tensor to_, packed_;
  bool in_place_;
};

/** @brief The epilogue's tensors for a packed result, as matrices of a row a pixel. */
std::vector<Tensor> operands_of(const Conv2dEpilogue& epilogue, const Tensor& result);

/** @brief The kernel of a form with an epilogue, made once a thread. */
const Conv2dKernel& conv2d_kernel_of(const Conv2dForm& form, const Conv2dEpilogue& epilogue);

/** @brief Whether all begin at multiples of 16 bytes, as the copy engine wants it. */
bool are_aligned(std::initializer_list<Tensor> tensors);

}  // namespace bs::cuda
