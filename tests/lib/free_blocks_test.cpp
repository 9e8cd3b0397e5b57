#include <bs/lib/free_blocks.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

using namespace bs;

TEST_CASE("free blocks: a class holds what it serves, and wastes a quarter at most") {
  size_t last = 0;
  for (size_t bytes = 1; bytes < 100000; ++bytes) {
    const size_t size = FreeBlocks::size_class(bytes);
    REQUIRE(size >= bytes);
    REQUIRE(size % 256 == 0);
    REQUIRE(size >= last);
    if (bytes > 1024) REQUIRE(size - bytes < size / 4);
    REQUIRE(FreeBlocks::size_class(size) == size);
    last = size;
  }
  constexpr size_t large = size_t{5} << 60;
  CHECK(FreeBlocks::size_class(large) == large);
  CHECK(FreeBlocks::size_class(large - 1) == large);
}

TEST_CASE("free blocks: a block comes back for its class alone, the last one first") {
  FreeBlocks blocks;
  int one = 0, two = 0, other = 0;
  CHECK(blocks.take(256) == nullptr);
  CHECK(blocks.keep(&one, 1280));
  CHECK(blocks.keep(&two, 1280));
  CHECK(blocks.keep(&other, 1536));
  CHECK(blocks.bytes() == 2 * 1280 + 1536);
  CHECK(blocks.take(1024) == nullptr);
  CHECK(blocks.take(1280) == &two);
  CHECK(blocks.take(1280) == &one);
  CHECK(blocks.take(1280) == nullptr);
  CHECK(blocks.take(1536) == &other);
  CHECK(blocks.bytes() == 0);
}

TEST_CASE("free blocks: all that is kept is handed over once, with its size") {
  FreeBlocks blocks;
  std::vector<char> memory(300);
  std::vector<std::pair<void*, size_t>> kept, drained;
  for (size_t i = 0; i < memory.size(); ++i) {
    const size_t size = FreeBlocks::size_class(size_t{1} << i % 60);
    kept.emplace_back(&memory[i], size);
    CHECK(blocks.keep(&memory[i], size));
  }
  const auto drain = [&] {
    blocks.drain([&](void* block, size_t size) { drained.emplace_back(block, size); });
  };
  drain();
  drain();
  std::sort(kept.begin(), kept.end());
  std::sort(drained.begin(), drained.end());
  CHECK(drained == kept);
  CHECK(blocks.bytes() == 0);
}

TEST_CASE("exact blocks: one comes back for as many bytes alone, the last first; the oldest go") {
  ExactBlocks blocks;
  int one = 0, two = 0, three = 0, other = 0;
  CHECK(blocks.take(1000) == nullptr);
  CHECK(blocks.keep({&one, 1000}));
  CHECK(blocks.keep({&other, 1001}));
  CHECK(blocks.keep({&two, 1000}));
  CHECK(blocks.keep({&three, 1000}));
  CHECK(blocks.count() == 4);
  CHECK(blocks.bytes() == 4001);
  CHECK(blocks.take(999) == nullptr);
  CHECK(blocks.take(1000) == &three);
  const ExactBlocks::Block oldest = blocks.take_oldest();
  CHECK(oldest.pointer == &one);
  CHECK(oldest.bytes == 1000);
  CHECK(blocks.take(1001) == &other);
  CHECK(blocks.take(1000) == &two);
  CHECK(blocks.take(1000) == nullptr);
  CHECK(blocks.count() == 0);
  CHECK(blocks.bytes() == 0);
}
