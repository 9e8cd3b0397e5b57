#pragma once
/** @file Block-sparse weights of convolutions as dense ones, and back. */
#include <bs/kernels/conv2d.h>
#include <bs/tests/support/sparse_case.h>

namespace bs::test {

/** @brief A weight [K, C, R, S] from its blocks. */
inline Reference dense_weight(const Reference& values, const Mask& mask, int64_t c,
                              Extent2 kernel) {
  const Reference matrix = densify(values, mask);
  const int64_t k = mask.height(), taps = kernel.h * kernel.w;
  Reference w({k, c, kernel.h, kernel.w});
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < c; ++j)
      for (int64_t t = 0; t < taps; ++t)
        w[static_cast<size_t>((i * c + j) * taps + t)] =
            matrix[static_cast<size_t>((i * taps + t) * c + j)];
  return w;
}

/** @brief The blocks of a weight [K, C, R, S] that the mask has. */
inline Reference blocks_of_weight(const Reference& w, const Mask& mask) {
  const int64_t k = w.shape[0], c = w.shape[1], taps = w.shape[2] * w.shape[3];
  Reference matrix({k, taps * c});
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < c; ++j)
      for (int64_t t = 0; t < taps; ++t)
        matrix[static_cast<size_t>((i * taps + t) * c + j)] =
            w[static_cast<size_t>((i * c + j) * taps + t)];
  return sparsify(matrix, mask);
}

}  // namespace bs::test
