#pragma once
/** @file What the LSTM's front doors verify. */
#include <bs/kernels/lstm.h>

namespace bs::detail {

/** @brief The type that sums of products of `dtype` are kept in. */
inline DType sum_type(DType dtype) { return dtype == f64 ? f64 : f32; }

/** @brief Throws an Error naming `op` unless each sequence of x [T, B, ...] can have its length. */
void check_lengths(const char* op, const Tensor& x, const Tensor& lengths);

/** @brief Extents of a layer. */
struct LSTMSizes {
  int64_t steps, batch, in, cells, width;
};

/** @brief The extents of directions over x, or of `layers` over each other.
 *  @throws Error naming `op` when shapes, dtypes, devices, lengths or chances do not fit. */
LSTMSizes check_lstm(const char* op, const Tensor& x, std::span<const LSTMDirection> directions,
                     const Tensor& lengths, bool layers = false);

}  // namespace bs::detail
