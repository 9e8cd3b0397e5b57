#pragma once
/** @file Blocks of memory that are free, by size, for a pool to hand out again. */
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bs {

/** @brief Lists of free blocks, one for each class of sizes. Its owner locks it. */
class FreeBlocks {
 public:
  /** @brief Bytes of the blocks that serve `bytes` (> 0), a multiple of 256. There are four classes
   *  an octave, so at most a quarter of a block is unused. */
  static size_t size_class(size_t bytes);

  /** @brief A block of `size` bytes, which size_class() has given; null for none. */
  void* take(size_t size) noexcept;
  /** @brief @return false where the host has no memory to remember the block in. */
  bool keep(void* block, size_t size) noexcept;
  /** @brief Forgets all and calls `f(block, size)` for each. */
  template <class F>
  void drain(const F& f) {
    for (size_t i = 0; i < lists_.size(); ++i)
      for (void* const block : std::exchange(lists_[i], {})) f(block, size_of_list(i));
    bytes_ = 0;
  }
  /** @brief Bytes of all blocks. */
  size_t bytes() const { return bytes_; }

 private:
  static size_t list_of(size_t size);
  static size_t size_of_list(size_t list);
  std::array<std::vector<void*>, 224> lists_;  ///< by size, from 2^8 to 2^64
  size_t bytes_ = 0;
};

/** @brief Free blocks of any size, each for a request of just as many bytes. Its owner locks it. */
class ExactBlocks {
 public:
  struct Block {
    void* pointer;
    size_t bytes;
  };

  /** @brief The block of `bytes` bytes that came last; null for none. */
  void* take(size_t bytes) noexcept;
  /** @brief The block that came first, of those that there are. */
  Block take_oldest() noexcept;
  /** @brief @return false where the host has no memory to remember the block in. */
  bool keep(const Block& block) noexcept;
  size_t count() const { return blocks_.size(); }
  /** @brief Bytes of all blocks. */
  size_t bytes() const { return bytes_; }

 private:
  std::vector<Block> blocks_;  ///< the oldest first
  size_t bytes_ = 0;
};

}  // namespace bs
