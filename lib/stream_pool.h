#pragma once
/** @file Streams that live as long as the program. */
#include <bs/lib/stream.h>

namespace bs {

/** @brief One of 32 streams of `device` beside its default one, each in its turn. Tensors are freed
 *  on the stream that they were made on, so a stream of your own must outlive them; these always
 * do.
 *  @throws Error where there is no such device. The CPU has one stream, which this is then. */
Stream next_stream(Device device);

}  // namespace bs
