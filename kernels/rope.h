#pragma once
/** @file Rotary position embedding (Su, Lu, Pan, Murtadha, Wen, Liu, 2021). */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief Cosines and sines [length, 2, dim / 2] of the angles p * base^(-2 i / dim), i < dim / 2,
 * of the places p from `first` on. They are computed in double, on the device.
 *  @param[in] dtype f32 or f64
 *  @throws Error for an odd dim. */
Tensor rope_table(int64_t length, int64_t dim, double base = 10000, int64_t first = 0,
                  DType dtype = f32, Device device = Device::cpu());

struct RopeOptions {
  bool interleaved = false;  ///< turn (x_2i, x_2i+1), not (x_i, x_i+dim/2)
  bool inverse = false;      ///< turn back
};

/** @brief Turns each pair (a, b) of a row by its angle: (a cos - b sin, b cos + a sin). The row at
 *  index s of the sequence takes row s of the table.
 *  @param[in] x [batch, heads, sequence, head_dim], floating, any strides
 *  @param[in] table of rope_table: f64 for f64, else f32; `sequence` rows. Where it has fewer
 * columns than head_dim, the elements behind its pairs stay as they are.
 *  @return of x's shape and dtype, in memory [batch, sequence, heads, head_dim]
 *  @throws Error when the table does not fit x. */
Tensor rope(const Tensor& x, const Tensor& table, const RopeOptions& options = {});
/** @brief dx: turning dy back. */
Tensor rope_backward(const Tensor& dy, const Tensor& table, const RopeOptions& options = {});

/// The last axes of x and y and the table are dense.
BS_BACKENDS(void rope(const Tensor& x, const Tensor& table, const Tensor& y,
                      const RopeOptions& options, Stream stream))

}  // namespace bs
