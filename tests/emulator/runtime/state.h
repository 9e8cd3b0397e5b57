#pragma once
/** @file What the functions of the CUDA runtime share here. All of them do at once what they are
 *  asked for: a stream is only in order, or being captured. */
#include <cuda_runtime_api.h>

#include <functional>
#include <mutex>
#include <vector>

namespace bs::emulator {

/** @brief Notes an error for cudaGetLastError, and gives it. */
cudaError_t noted(cudaError_t error);

/** @brief What was captured, in the order in which it will run. */
struct Graph {
  std::vector<std::function<void()>> work;
};

struct StreamState {
  Graph* captured_to = nullptr;
  StreamState* capture_of = nullptr;  ///< the stream that a capture began on
};

/** @brief One runs at a time, of whatever thread. */
std::recursive_mutex& device_lock();
StreamState& state_of(cudaStream_t stream);
/** @brief Whether a capture that the stream takes part in goes on. */
bool is_captured(StreamState& stream);
/** @brief Runs it, or captures it. */
void submit(cudaStream_t stream, std::function<void()> work);

/** @brief Of each CTA and multiprocessor of the GPU that is emulated, an H200. */
inline constexpr int multiprocessors = 132, most_threads = 1024, threads_of_multiprocessor = 2048,
                     shared_of_cta = 232448, shared_of_multiprocessor = 233472;
inline constexpr size_t memory_bytes = size_t{16} << 30;

}  // namespace bs::emulator
