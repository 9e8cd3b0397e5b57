#pragma once
/** @file What the rest of lib needs of the CUDA runtime, without its headers. */
#include <bs/lib/stream.h>

#include <cstddef>

namespace bs::cuda {

/** @brief GPUs usable by this build; 0 without a driver. Never throws. */
int count_devices() noexcept;
/** @brief The library's own non-blocking stream of `device`. */
Stream default_stream(Device device);
void synchronize(Stream stream);
/** @brief Copies on the current stream of the GPU involved. Waits where the host gets the bytes. */
void copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes);
/** @brief Sets bytes of device memory on `stream`. */
void fill_zero(void* pointer, size_t bytes, Stream stream);

/** @brief Makes `device` current for the CUDA runtime until the end of the scope. */
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
};

/** @brief Whether what is queued on `stream` goes into a graph instead. */
bool is_captured(Stream stream);

/** @brief Until the end of the scope this thread may take memory, load a kernel, wait, or look at
 * an event while another thread captures. Else CUDA would end that capture. Never throws. */
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  int mode_;
};

/** @brief Facts that kernels choose their shape by. */
struct DeviceProperties {
  int multiprocessors = 0;
  int capability = 0;           ///< major * 10 + minor
  int shared_memory_optin = 0;  ///< most bytes of shared memory a block may have
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;  ///< all there is, free or not
  double memory_rate = 0;  ///< bytes a second that its bus could carry; copies reach some .9 of it
};
const DeviceProperties& device_properties(Device device);

}  // namespace bs::cuda
