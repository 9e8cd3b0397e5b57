#pragma once
// Numbers in the order of values, for what sorts them or selects among them.
#include <bs/lib/dtype.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

#include <cstdint>
#include <type_traits>

namespace bs::cuda {

/// An unsigned number in the order of the values: NaN last, -0 as 0; of 64 or of 32 bits.
template <class T>
__device__ uint64_t key_of(T value) {
  if constexpr (std::is_integral_v<T>) {
    if constexpr (sizeof(T) == 8) return static_cast<uint64_t>(value) ^ (uint64_t{1} << 63);
    return static_cast<uint32_t>(static_cast<int32_t>(value)) ^ 0x80000000U;
  } else if constexpr (sizeof(T) == 8) {
    if (value != value) return ~uint64_t{0};
    const auto bits = static_cast<uint64_t>(__double_as_longlong(value == 0 ? 0.0 : value));
    return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
  } else {
    const float wide = device::widen(value);
    if (wide != wide) return 0xffffffffU;
    const uint32_t bits = __float_as_uint(wide == 0 ? 0.0F : wide);
    return bits >> 31 ? ~bits : bits | 0x80000000U;
  }
}

/// The same in as few bytes as the value has, but at least two.
template <class T>
using ShortKey = std::conditional_t<sizeof(T) <= 2, uint16_t,
                                    std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

template <class T>
__device__ ShortKey<T> short_key_of(T value) {
  if constexpr (sizeof(T) == 1) {
    return value;
  } else if constexpr (sizeof(T) == 2) {
    const float wide = device::widen(value);
    if (wide != wide) return 0xffff;
    const unsigned bits = wide == 0 ? 0 : reinterpret_cast<const uint16_t&>(value);
    return static_cast<uint16_t>(bits >> 15 ? ~bits : bits | 0x8000U);
  } else {
    return static_cast<ShortKey<T>>(key_of(value));
  }
}

/// The value of a key. Zeros of either sign share one, and so do all NaNs.
template <class T>
__device__ T value_of(ShortKey<T> key) {
  if constexpr (sizeof(T) == 1) {
    return static_cast<T>(key);
  } else {
    using K = ShortKey<T>;
    constexpr K top = K(K{1} << (8 * sizeof(T) - 1));
    if constexpr (std::is_integral_v<T>) return static_cast<T>(key ^ top);
    const K bits = static_cast<K>(key & top ? key ^ top : ~key);
    return reinterpret_cast<const T&>(bits);
  }
}

/// Whether values of several bits have this key.
template <class T>
__device__ bool is_shared(ShortKey<T> key) {
  using K = ShortKey<T>;
  if constexpr (std::is_integral_v<T>) return false;
  return key == K(K{1} << (8 * sizeof(T) - 1)) || key == K(~K{0});
}

/// Keys of numbers of this dtype that differ do so at this bit or above it.
inline int lowest_key_bit(DType dtype) { return dtype == bf16 ? 16 : dtype == f16 ? 13 : 0; }

}  // namespace bs::cuda
