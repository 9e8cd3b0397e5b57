#pragma once
/** @file Where in time a transducer hears each token of a text. */
#include <bs/lib/tensor.h>

#include <span>
#include <vector>

namespace bs::decode {

/** @brief Probabilities over the lattice of T frames and U tokens, given that the text is right. */
struct LatticePosterior {
  int64_t frames = 0, tokens = 0;
  std::vector<double> node = {};  ///< [T, U + 1]: of passing (t, u)
  std::vector<double> emit = {};  ///< [T, U]: of saying token u at frame t; a column sums to 1
  double log_probability = 0;     ///< of the text: minus the transducer loss
};

/** @brief Forward and backward sums over all alignments (Graves, 2012), in double on the host.
 *  @param[in] logits [T, U + 1, classes], floating, T > 0
 *  @param[in] tokens the U of the text
 *  @throws Error when shapes do not fit, or a token or `blank` is no class. */
LatticePosterior lattice_posterior(const Tensor& logits, std::span<const int64_t> tokens,
                                   int64_t blank);

}  // namespace bs::decode
