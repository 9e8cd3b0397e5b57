#pragma once
/** @file Listening to a file as if it were being spoken. */
#include <bs/examples/rnnt_lstm/trainer.h>

namespace bs::example {

/** @brief Transcribes samples in pieces of `piece` of them; `on_text` sees the text so far after
 *  each. The text at the end is that of the whole recording at once.
 *  @param[in] recogniser in eval mode */
std::string transcribe_pieces(const Recogniser& recogniser, std::span<const float> samples,
                              int64_t piece,
                              const std::function<void(const std::string&)>& on_text);

/** @brief The checkpoint options.resume writes down options.stream on the screen, in steps of 0.2
 * s.
 *  @return exit status */
int stream(const Options& options, std::span<const float> samples);

}  // namespace bs::example
