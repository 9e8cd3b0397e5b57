// Allocations that fail where they are large, so that a vector as long as a wrong number shows
// itself on every machine. In a file of its own: where the compiler sees both ends, it warns.
#include <cstdlib>
#include <new>

namespace {

/** What no call of the test needs at once. */
constexpr size_t most_bytes = size_t{64} << 20;

}  // namespace

void* operator new(size_t bytes) {
  void* memory = bytes <= most_bytes ? std::malloc(bytes) : nullptr;
  if (!memory) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return bytes <= most_bytes ? std::malloc(bytes) : nullptr;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
