#pragma once
// Lengths and labels in device code, whatever their dtype.
#include <bs/lib/tensor.h>

namespace bs::cuda {

/// Whole numbers of either width.
struct Integers {
  const void* data;
  bool wide;

  __device__ int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

inline Integers integers(const Tensor& t) { return {t.data(), t.dtype() == i64}; }

}  // namespace bs::cuda
