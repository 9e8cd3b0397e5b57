#include <bs/lib/storage.h>

#include <bs/lib/counted_memory.h>

#include <utility>

namespace bs {

Storage::Storage(size_t bytes, Device device) : bytes_(bytes), stream_(current_stream(device)) {
  if (bytes == 0) return;
  resource_ = &memory_resource(device);
  data_ = allocate_counted(bytes, *resource_, stream_);
}

Storage::Storage(void* data, size_t bytes, Device device, std::function<void()> release)
    : data_(data), bytes_(bytes), stream_(current_stream(device)), release_(std::move(release)) {}

Storage::~Storage() {
  if (resource_ && data_) free_bytes(data_, bytes_, *resource_, stream_);
  if (release_) release_();
}

}  // namespace bs
