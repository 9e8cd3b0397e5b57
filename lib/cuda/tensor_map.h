#pragma once
/** @file Descriptions of tensors in global memory for Hopper's tensor memory accelerator (TMA). */
#include <array>
#include <cstdint>
#include <type_traits>

namespace bs::cuda {

/** @brief A CUtensorMap: opaque, passed to a kernel by value as `const __grid_constant__`, alone or
 *  within a struct. The device text has a twin of the same size and alignment. */
struct alignas(64) TensorMap {
  uint64_t words[16];
};
static_assert(sizeof(TensorMap) == 128 && std::is_trivially_copyable_v<TensorMap>);

enum class TensorMapElement : uint8_t { u8, u16, u32, i32, u64, f16, bf16, f32, tf32, f64 };

/** @brief The permutation of 16-byte pieces of a box within 2, 4 or 8 lines of shared memory. */
enum class TensorMapSwizzle : uint8_t { none, bytes_32, bytes_64, bytes_128 };

/** @brief What L2 fetches at least of a line that is touched. */
enum class TensorMapPromotion : uint8_t { none, bytes_64, bytes_128, bytes_256 };

/** @brief A tensor, and the box of it that one copy moves. The innermost dimension, whose elements
 *  are side by side, comes first. What a box has beyond the tensor reads as zeros and is not
 *  written. */
struct TiledTensor {
  TensorMapElement element = TensorMapElement::f16;  ///< u8 for fp8; tf32 rounds what it loads
  const void* address = nullptr;
  int rank = 2;                      ///< 1 to 5
  std::array<int64_t, 5> dims{};     ///< elements along each
  std::array<int64_t, 5> strides{};  ///< bytes from one to the next; strides[0] is not looked at
  std::array<int, 5> box{};          ///< elements of the box along each, at most 256
  TensorMapSwizzle swizzle = TensorMapSwizzle::none;
  TensorMapPromotion promotion = TensorMapPromotion::bytes_128;

  bool operator==(const TiledTensor&) const = default;
};

/** @brief Images [n][h][w][c], and what one copy moves of them: `channels` of `pixels` base pixels,
 *  row by row and image by image. A tap that the copy names moves them. What lies outside of an
 *  image reads as zeros. */
struct Im2colTensor {
  TensorMapElement element = TensorMapElement::f16;
  const void* address = nullptr;
  std::array<int64_t, 4> dims{};     ///< c, w, h, n
  std::array<int64_t, 4> strides{};  ///< bytes; strides[0] is not looked at
  std::array<int, 2> first{};        ///< first base pixel of a row (w) and of an image (h)
  std::array<int, 2> count{};        ///< base pixels of a row, rows of an image
  std::array<int, 2> step{1, 1};     ///< from one base pixel to the next: 1 to 8
  int channels = 0, pixels = 0;      ///< of a copy
  TensorMapSwizzle swizzle = TensorMapSwizzle::none;
  TensorMapPromotion promotion = TensorMapPromotion::bytes_128;
};

/** @brief Whether TMA can walk these images: addresses and strides in multiples of 16 bytes, base
 *  pixels at most 128 from the image's ends. Needs no GPU. */
bool fits_im2col(const Im2colTensor& tensor);
/** @brief Encodes; @throws Error where it does not fit; CudaError without a driver that can. */
TensorMap encode_im2col(const char* op, const Im2colTensor& tensor);

/** @brief Throws an Error that names `op`, the rule broken and the values, unless TMA can address
 *  the tensor: address and strides in multiples of 16 bytes, dims up to 2^32, a line of the box of
 *  a multiple of 16 bytes and within the span of the swizzle. Needs no GPU. */
void check_tiled(const char* op, const TiledTensor& tensor);

/** @brief Checks and encodes, without a word to the GPU. Some 0.2 us, and a tenth of that for what
 *  the thread has encoded lately.
 *  @throws Error as check_tiled; CudaError without a driver that knows TMA. */
TensorMap encode_tiled(const char* op, const TiledTensor& tensor);

}  // namespace bs::cuda
