#pragma once
/** @file Another source of memory for a while. */
#include <bs/lib/memory.h>

namespace bs::test {

/** @brief Tensors on `device` come from `resource` until the end of the scope. */
class ResourceScope {
 public:
  ResourceScope(Device device, MemoryResource& resource)
      : device_(device), before_(set_memory_resource(device, &resource)) {}
  ResourceScope(const ResourceScope&) = delete;
  ResourceScope& operator=(const ResourceScope&) = delete;
  ~ResourceScope() { set_memory_resource(device_, before_); }

 private:
  Device device_;
  MemoryResource* before_;
};

}  // namespace bs::test
