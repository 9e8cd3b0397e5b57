#include <bs/lib/free_blocks.h>

#include <algorithm>
#include <bit>
#include <iterator>
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

void* ExactBlocks::take(size_t bytes) noexcept {
  const auto alike = [bytes](const Block& block) { return block.bytes == bytes; };
  const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(), alike);
  if (found == blocks_.rend()) return nullptr;
  void* const pointer = found->pointer;
  blocks_.erase(std::next(found).base());
  bytes_ -= bytes;
  return pointer;
}

ExactBlocks::Block ExactBlocks::take_oldest() noexcept {
  const Block oldest = blocks_.front();
  blocks_.erase(blocks_.begin());
  bytes_ -= oldest.bytes;
  return oldest;
}

bool ExactBlocks::keep(const Block& block) noexcept {
  try {
    blocks_.push_back(block);
  } catch (const std::bad_alloc&) {
    return false;
  }
  bytes_ += block.bytes;
  return true;
}

}  // namespace bs
