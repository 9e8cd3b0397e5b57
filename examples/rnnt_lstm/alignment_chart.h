#pragma once
/** @file Where in time a model hears each character, as a picture. */
#include <bs/nn/decode/lattice_posterior.h>

#include <string>
#include <vector>

namespace bs::example {

/** @brief The posterior over the lattice as SVG: time runs to the right, the text upwards; the
 *  darker a cell, the likelier the way goes through it, with a ring where each character is said.
 *  @param[in] characters of the text, one a row
 *  @param[in] seconds an encoder frame */
std::string alignment_chart(const decode::LatticePosterior& posterior,
                            const std::vector<std::string>& characters, double seconds);

}  // namespace bs::example
