#pragma once
/** @file How many blocks a launch may have. */
#include <bs/lib/check.h>

#include <cstdint>
#include <limits>

namespace bs::cuda {

/** @brief So many blocks of a grid's first axis, of which CUDA takes 2^31 - 1.
 *  @throws Error naming `op` for more, or for a negative number. */
inline unsigned grid_of(const char* op, int64_t blocks) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  BS_CHECK(blocks >= 0 && blocks <= most,
           "{}: {} blocks of threads are more than one launch can have, {}: cut the input", op,
           blocks, most);
  return static_cast<unsigned>(blocks);
}

}  // namespace bs::cuda
