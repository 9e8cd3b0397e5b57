#pragma once
/** @file Functions of 16-bit floats that change a sign or choose a value: they are computed on the
 *  bits, without a conversion to f32 and back, which would take most of the time. */
#include <bs/kernels/cpu/parallel.h>
#include <bs/lib/tensor.h>

namespace bs::cpu {

/** @brief The bits of a 16-bit float's infinity. Those of positive numbers lie between it and 0,
 *  those of NaN above it. */
inline uint16_t infinity_bits(DType dtype) { return dtype == f16 ? 0x7c00 : 0x7f80; }

/** @brief Whether bits are those of a number above 0 or of infinity; of one below with the sign. */
inline bool is_positive(uint16_t bits, uint16_t infinity) {
  return static_cast<uint16_t>(bits - 1) < infinity;
}
inline bool is_negative(uint16_t bits, uint16_t infinity) {
  return is_positive(static_cast<uint16_t>(bits ^ 0x8000), infinity);
}

/** @brief y = f(x...), in bits, element by element of dense tensors of one 16-bit dtype. */
template <class F, class... X>
void map_bits(const F& f, const Tensor& y, const X&... x) {
  const auto run = [&f](int64_t first, int64_t last, uint16_t* __restrict to, const auto*... from) {
#pragma omp simd
    for (int64_t i = first; i < last; ++i) to[i] = static_cast<uint16_t>(f(from[i]...));
  };
  parallel_for(y.numel(), elementwise_grain, [&](int64_t first, int64_t last) {
    run(first, last, static_cast<uint16_t*>(y.data()), static_cast<const uint16_t*>(x.data())...);
  });
}

}  // namespace bs::cpu
