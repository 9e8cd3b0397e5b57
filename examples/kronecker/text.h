#pragma once
/** @file A language model whose inner layers are dense or Kronecker products. */
#include <bs/examples/kronecker/options.h>

namespace bs::example {

/** @brief Trains a model that guesses the next byte of a text from those before it, with dense
 *  inner layers, with Kronecker products from the start, and with the products closest to the dense
 *  layers, trained on. Prints what each costs and how well it guesses.
 *  @throws IoError for a text that cannot be read, Error for one too short */
void compress_text(const KroneckerOptions& options);
/** @brief A few steps of the same on a text made up here, and that all models learn from them. */
void smoke_text(const KroneckerOptions& options);

}  // namespace bs::example
