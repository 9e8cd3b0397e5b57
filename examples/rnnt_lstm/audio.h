#pragma once
/** @file Sound files, through libsndfile. */
#include <cstdint>
#include <string>
#include <vector>

namespace bs::example {

/** @brief Reads wav, flac, ogg and what else libsndfile knows, mixes the channels into one, and
 *  brings it to `rate` samples a second.
 *  @throws IoError when the file cannot be read or is no regular file, or becomes more than 256
 *  samples for each of its bytes and more than 2^24. */
std::vector<float> read_audio(const std::string& path, int64_t rate);

}  // namespace bs::example
