#pragma once
/** @file How many threads the CPU kernels use. */

namespace bs {

/** @brief The cores that the process may use. */
int cores();
/** @brief The threads that a loop of the calling thread is spread over. At the start
 * OMP_NUM_THREADS, else cores(). */
int threads();
/** @brief Sets it for the calling thread; other threads keep theirs. Change it rarely: the next
 * loop makes or ends threads. Results are the same bits for any number.
 *  @throws Error unless `count` is positive */
void set_threads(int count);

}  // namespace bs
