#include <bs/lib/free_blocks.h>

#include <algorithm>
#include <bit>
#include <new>

namespace bs {

namespace {
constexpr size_t least = 256;
constexpr size_t least_bits = 8;
}  // namespace

size_t FreeBlocks::size_class(size_t bytes) {
  const size_t step = std::max(least, std::bit_floor(bytes) / 4);
  return (bytes + step - 1) / step * step;
}

size_t FreeBlocks::list_of(size_t size) {
  const auto octave = static_cast<size_t>(std::bit_width(size)) - 1;
  return (octave - least_bits) * 4 + (size >> (octave - 2) & 3);
}

size_t FreeBlocks::size_of_list(size_t list) {
  return (4 + list % 4) << (list / 4 + least_bits - 2);
}

void* FreeBlocks::take(size_t size) noexcept {
  std::vector<void*>& list = lists_[list_of(size)];
  if (list.empty()) return nullptr;
  void* const block = list.back();
  list.pop_back();
  bytes_ -= size;
  return block;
}

bool FreeBlocks::keep(void* block, size_t size) noexcept {
  try {
    lists_[list_of(size)].push_back(block);
  } catch (const std::bad_alloc&) {
    return false;
  }
  bytes_ += size;
  return true;
}

}  // namespace bs
