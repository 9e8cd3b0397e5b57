#pragma once
/** @file Queues of work on a device. Operations use the calling thread's current stream. */
#include <bs/lib/device.h>

namespace bs {

/** @brief A queue of a device, by handle: a `cudaStream_t`, or nothing on the CPU. Not an owner. */
class Stream {
 public:
  Stream() = default;
  Stream(Device device, void* handle) : device_(device), handle_(handle) {}
  Device device() const { return device_; }
  /** @brief The `cudaStream_t` behind; null for the CPU. */
  void* handle() const { return handle_; }
  /** @brief Blocks until all work queued so far is done. */
  void synchronize() const;
  bool operator==(const Stream&) const = default;

 private:
  Device device_;
  void* handle_ = nullptr;
};

/** @brief The stream on which this thread's operations on `device` run. By default a non-blocking
 *  stream of the library's own, one a device. */
Stream current_stream(Device device);
/** @brief Waits for the current stream of `device`. */
void synchronize(Device device);

/** @brief Makes `stream` current for this thread and its device until the end of the scope. */
class StreamGuard {
 public:
  explicit StreamGuard(Stream stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream previous_;
};

}  // namespace bs
