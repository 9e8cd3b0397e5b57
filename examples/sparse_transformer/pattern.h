#pragma once
/** @file The attention pattern the options ask for. */
#include <bs/examples/sparse_transformer/options.h>
#include <bs/nn/attention.h>

namespace bs::example {

/** @brief The pattern as the model wants it: a function of the size. */
nn::Pattern make_pattern(const PatternOptions& options, uint64_t seed);

}  // namespace bs::example
