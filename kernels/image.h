#pragma once
/** @file Images [N, C, H, W], or [N, C, ...], and the two formats they lie in: row-major, and
 * channels-last, where neighbours in memory are channels. Shapes are the same in both; strides tell
 * the format. */
#include <bs/lib/tensor.h>

#include <string>

namespace bs {

/** @brief Rows and columns of an image at most: sums and products of two places fit 64 bits. */
constexpr int64_t most_pixels = int64_t{1} << 24;
/** @brief Throws an Error naming `op` unless `x` is [N, C, H, W] with no more rows and columns. */
void check_image(const char* op, const Shape& x);
/** @brief Whether neighbours in memory are channels, by the strides alone: x may have gaps. */
bool is_channels_last(const Tensor& x);
/** @brief x itself where it is dense and channels-last, else such a copy. */
Tensor channels_last(const Tensor& x);
/** @brief x itself where it is dense in the format asked for, else such a copy. */
Tensor in_format(const Tensor& x, bool channels_last);
/** @brief x itself where it is dense in the format that its strides tell, else such a copy. */
Tensor dense_image(const Tensor& x);
/** @brief An uninitialised image tensor [N, C, H, W], channels-last or row-major. */
Tensor empty_image(const Shape& shape, DType dtype, Device device, bool channels_last);
/** @brief The same of x's shape, dtype, device and format. */
Tensor empty_image_like(const Tensor& x);

/** @brief An order of an image's axes, from the slowest to the fastest. The library's own shapes
 * are nchw throughout, whatever lies in memory; others' arrays may come in any. */
enum class ImageFormat : uint8_t { nchw, nhwc, chwn };
std::string to_string(ImageFormat format);
/** @brief A dense array with the axes of another in a new order, such as [N, H, W, C] to [C, H, W,
 *  N]. x itself where it is dense and the orders are the same, else one read and
 *  one write.
 *  @param[in] x any dtype, any strides
 *  @throws Error unless x has four axes. */
Tensor relayout(const Tensor& x, ImageFormat from, ImageFormat to);
/** @brief An array in that order as the image [N, C, H, W] that it is; a view. */
Tensor as_image(const Tensor& x, ImageFormat format);

}  // namespace bs
