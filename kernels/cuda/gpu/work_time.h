#pragma once
/** @file What work takes on a GPU. */
#include <bs/lib/stream.h>

#include <functional>

namespace bs::cuda {

/** @brief Nanoseconds of `work()`, queued on `stream`: the least of some times, behind one that
 *  loads its kernels. Endless where it has too little memory. The host waits. */
double time_of(Stream stream, const std::function<void()>& work);

/** @brief Whether it may: nothing is captured, nor recorded. */
bool may_time(Stream stream);

}  // namespace bs::cuda
