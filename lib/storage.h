#pragma once
/** @file The bytes behind tensors, shared by all views of them. */
#include <bs/lib/memory.h>

#include <functional>
#include <memory>

namespace bs {

/** @brief An owned or borrowed block of bytes on one device. */
class Storage {
 public:
  /** @brief Allocates on the current stream of `device`. @throws OutOfMemory. */
  Storage(size_t bytes, Device device);
  /** @brief Wraps memory that someone else owns; `release` runs when the last view is gone. */
  Storage(void* data, size_t bytes, Device device, std::function<void()> release);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return stream_.device(); }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Stream stream_;
  MemoryResource* resource_ = nullptr;
  std::function<void()> release_;
};

}  // namespace bs
