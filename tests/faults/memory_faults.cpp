#include <bs/lib/check.h>
#include <bs/tests/faults/memory_faults.h>

#include <atomic>
#include <cstdlib>

namespace {

std::atomic<bool> counts = false;
std::atomic<int64_t> made = 0, failing = -1;
thread_local bool exempt = false;  ///< what guards around tensors need is not counted

std::atomic<size_t> most_bytes = 0;

/// Whether the allocation that is asked for just now is not to be had.
bool fails(size_t bytes) {
  if (!counts || exempt) return false;
  for (size_t most = most_bytes; bytes > most && !most_bytes.compare_exchange_weak(most, bytes);) {
  }
  return made++ == failing;
}

void* allocate(size_t bytes, size_t alignment) {
  if (fails(bytes)) return nullptr;
  bytes = (bytes + alignment) / alignment * alignment;  // more than 0, as new must give
  return alignment <= alignof(std::max_align_t) ? std::malloc(bytes)
                                                : std::aligned_alloc(alignment, bytes);
}

void* allocate_or_throw(size_t bytes, size_t alignment) {
  void* const pointer = allocate(bytes, alignment);
  if (!pointer) throw std::bad_alloc();
  return pointer;
}

constexpr size_t usual = alignof(std::max_align_t);
size_t value(std::align_val_t alignment) { return static_cast<size_t>(alignment); }

}  // namespace

// Those for arrays and for sizes come to these.
void* operator new(size_t bytes) { return allocate_or_throw(bytes, usual); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, usual); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, value(alignment));
}
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(bytes, value(alignment));
}
void* operator new[](size_t bytes) { return allocate_or_throw(bytes, usual); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, usual);
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, value(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(bytes, value(alignment));
}
void operator delete(void* pointer) noexcept { std::free(pointer); }
void operator delete(void* pointer, size_t) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::align_val_t) noexcept { std::free(pointer); }
void operator delete(void* pointer, size_t, std::align_val_t) noexcept { std::free(pointer); }
void operator delete[](void* pointer) noexcept { std::free(pointer); }
void operator delete[](void* pointer, size_t) noexcept { std::free(pointer); }
void operator delete[](void* pointer, std::align_val_t) noexcept { std::free(pointer); }
void operator delete[](void* pointer, size_t, std::align_val_t) noexcept { std::free(pointer); }

namespace bs::test {

/// Stands before the resource of the tests. Never gone: tensors may outlive a fault.
class MemoryFault::Resource final : public MemoryResource {
 public:
  explicit Resource(MemoryResource& inner) : inner_(inner) {}
  void* allocate(size_t bytes, Stream stream) override {
    if (fails(bytes)) BS_THROW(OutOfMemory, "memory: {} bytes were to be missing", bytes);
    exempt = true;
    void* const pointer = inner_.allocate(bytes, stream);
    exempt = false;
    return pointer;
  }
  void deallocate(void* pointer, size_t bytes, Stream stream) noexcept override {
    exempt = true;
    inner_.deallocate(pointer, bytes, stream);
    exempt = false;
  }

 private:
  MemoryResource& inner_;
};

MemoryFault::MemoryFault(int64_t number) {
  static auto* const resource = new Resource(memory_resource(Device::cpu()));
  tensors_ = resource;
  before_ = set_memory_resource(Device::cpu(), tensors_);
  made = 0;
  most_bytes = 0;
  failing = number;
  counts = true;
}

MemoryFault::~MemoryFault() {
  counts = false;
  set_memory_resource(Device::cpu(), before_);
}

int64_t MemoryFault::count() const { return made; }
int64_t MemoryFault::largest() const { return static_cast<int64_t>(most_bytes.load()); }

}  // namespace bs::test
