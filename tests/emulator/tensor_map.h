#pragma once
/** @file What a tensor map says, as the emulator's cuTensorMapEncode functions write it. */
#include <array>
#include <cstdint>

namespace bs::emulator {

/** @brief In the first bytes of a CUtensorMap. */
struct TensorMap {
  static constexpr uint32_t sign = 0x2b5e50a7;  ///< that it is one

  uint32_t is_map = 0;
  uint8_t rank = 0, element_bytes = 0;
  uint8_t swizzle = 0;                      ///< 0, or 16 << swizzle bytes
  std::array<uint8_t, 2> steps{};           ///< im2col: of columns and rows
  std::array<int16_t, 2> lower{}, upper{};  ///< im2col: corners of the base pixels
  std::array<uint16_t, 5> box{};            ///< im2col: channels and pixels
  std::array<uint32_t, 5> last{};           ///< dimensions less 1, the innermost first
  std::array<uint64_t, 4> strides{};        ///< bytes, from the second dimension on
  uint64_t address = 0;
};
static_assert(sizeof(TensorMap) <= 128);

/** @brief Where a byte of shared memory lies, by the pattern of a swizzle of 16 << `swizzle` bytes:
 *  bits 4 to 6 are combined with bits 7 to 9. */
inline uint64_t swizzled(uint64_t address, int swizzle) {
  const uint64_t mask = (uint64_t{1} << swizzle) - 1;
  return address ^ (address >> 7 & mask) << 4;
}

}  // namespace bs::emulator
