#pragma once
/** @file Tensors that are used on other streams than the one they were made on. */
#include <bs/lib/tensor.h>

#include <vector>

namespace bs {

/** @brief Says that work on `stream` uses x. Its memory is then freed behind all that is queued on
 *  `stream` at that time, so that nothing else gets it before; no host waits. The stream must live
 *  until then. Needed for streams other than the one that was current as x was made. */
void record_stream(const Tensor& x, Stream stream);

namespace detail {
/** @brief The streams recorded for tensors in these bytes, which are forgotten. */
std::vector<Stream> take_recorded(const void* memory, size_t bytes);
}  // namespace detail

}  // namespace bs
