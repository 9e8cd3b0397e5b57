#pragma once
// Planes so small that a block has several in shared memory: memory is read and written in whole
// packs of 16 bytes, however the rows of an image begin.
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/tensor.h>
#include <bs/kernels/cuda/device/ptx/async_copy.cuh>
#include <bs/kernels/cuda/walk.cuh>

#include <initializer_list>

namespace bs::cuda {

/// How many planes a block holds, and what its threads walk of each.
struct HeldPlanes {
  static constexpr int together = 8;  ///< that a thread does a pixel of
  static constexpr unsigned threads = 128;

  uint32_t count = 0;  ///< 0 where planes are not held
  Divisor columns, pixels;

  /// Packs of a block's planes, of so many bytes each.
  __host__ __device__ uint32_t packs(size_t plane_bytes) const {
    return static_cast<uint32_t>(count * plane_bytes / 16);
  }
#ifdef __CUDACC__
  /// Begins to copy the block's planes; wait() ends it.
  static __device__ void load(uint4* held, const void* planes, uint32_t packs) {
    const auto* const from = static_cast<const uint4*>(planes) + uint64_t{blockIdx.x} * packs;
    for (uint32_t i = threadIdx.x; i < packs; i += threads)
      device::copy_async_16(held + i, from + i, true);
  }
  static __device__ void wait() {
    device::commit_copies();
    device::wait_copies<0>();
    __syncthreads();
  }
  /// What all threads wrote.
  static __device__ void store(const uint4* held, void* planes, uint32_t packs) {
    auto* const to = static_cast<uint4*>(planes) + uint64_t{blockIdx.x} * packs;
    for (uint32_t i = threadIdx.x; i < packs; i += threads) to[i] = held[i];
  }
  /// Calls f(first of the planes, line, column) for this thread's pixels.
  template <class F>
  __device__ void for_each_pixel(F&& f) const {
    for (uint32_t i = threadIdx.x; i < count / together * pixels.number; i += threads) {
      const uint32_t group = pixels.divide(i), pixel = i - group * pixels.number;
      const uint32_t line = columns.divide(pixel);
      f(group * together, line, pixel - line * columns.number);
    }
  }
#endif
};

/// The planes of a block that walks those of `walked` [planes, h, w, channels] and holds tensors of
/// as many planes with `plane_bytes`, of `usual_bytes` together where that is enough. None where
/// they do not fit, or leave threads or GPU idle.
inline HeldPlanes held_planes(const Tensor& walked, std::initializer_list<size_t> plane_bytes,
                              size_t usual_bytes = 20 << 10) {
  constexpr size_t most_bytes = 48 << 10;
  const auto planes = static_cast<size_t>(walked.size(0));
  const auto pixels = static_cast<size_t>(walked.size(1) * walked.size(2));
  size_t together_bytes = 0;
  for (const size_t bytes : plane_bytes) together_bytes += bytes;
  const auto whole = [&](size_t count) {
    bool all = planes % count == 0;
    for (const size_t bytes : plane_bytes) all = all && count * bytes % 16 == 0;
    return all;
  };
  const auto busy = [&](size_t count) {
    return count / HeldPlanes::together * pixels >= HeldPlanes::threads;
  };
  const auto fits = [&](size_t count, size_t bytes) { return count * together_bytes <= bytes; };
  if (walked.size(3) > 1) return {};
  size_t count = HeldPlanes::together;
  while (fits(count, most_bytes) &&
         (!whole(count) || !busy(count) || (whole(2 * count) && fits(2 * count, usual_bytes))))
    count *= 2;
  const auto multiprocessors =
      static_cast<size_t>(device_properties(walked.device()).multiprocessors);
  if (!fits(count, most_bytes) || planes / count < multiprocessors) return {};
  return {.count = static_cast<uint32_t>(count),
          .columns = Divisor(walked.size(2)),
          .pixels = Divisor(walked.size(1) * walked.size(2))};
}

}  // namespace bs::cuda
