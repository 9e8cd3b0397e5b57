#include <bs/lib/arena.h>
#include <bs/lib/check.h>
#include <bs/lib/philox.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <vector>

using namespace bs;

namespace {

/// Host memory that counts what it gave, up to a limit.
struct Counted final : MemoryResource {
  explicit Counted(size_t most = size_t{1} << 40) : limit(most) {}
  void* allocate(size_t bytes, Stream) override {
    if (held + bytes > limit) BS_THROW(OutOfMemory, "counted: {} bytes", bytes);
    held += bytes;
    ++chunks;
    return std::aligned_alloc(256, bytes);
  }
  void deallocate(void* pointer, size_t bytes, Stream) noexcept override {
    held -= bytes;
    --chunks;
    std::free(pointer);
  }
  size_t limit, held = 0;
  int chunks = 0;
};

constexpr size_t chunk = size_t{2} << 20;

struct Taken {
  unsigned char* at;
  size_t bytes;
  unsigned char mark;
};

}  // namespace

TEST_CASE("an arena hands out again what was freed in it, and gives chunks back at its end") {
  Counted from;
  auto arena = Arena::make(from, {});
  void* a = arena->allocate(1000, {});
  void* b = arena->allocate(1, {});
  CHECK(static_cast<std::byte*>(b) == static_cast<std::byte*>(a) + 1024);
  CHECK(from.chunks == 1);
  CHECK(arena->reserved() == static_cast<int64_t>(chunk));
  arena->deallocate(a, 1000, {});
  CHECK(arena->allocate(500, {}) == a);  // the smallest piece that is large enough
  arena->deallocate(a, 500, {});
  arena->deallocate(b, 1, {});
  void* whole = arena->allocate(chunk, {});  // neighbours have become one piece again
  CHECK(whole == a);
  CHECK(from.chunks == 1);
  arena->deallocate(whole, chunk, {});
  CHECK(from.chunks == 1);
  arena.reset();
  CHECK(from.held == 0);
}

TEST_CASE("an arena outlives its owner while anything of it is held") {
  Counted from;
  auto arena = Arena::make(from, {});
  MemoryResource* resource = arena.get();
  void* a = resource->allocate(10, {});
  void* b = resource->allocate(10, {});
  arena.reset();
  CHECK(from.chunks == 1);
  resource->deallocate(a, 10, {});
  CHECK(from.chunks == 1);
  resource->deallocate(b, 10, {});
  CHECK(from.held == 0);
}

TEST_CASE("an arena takes no more than is asked for where there is little memory") {
  Counted from(chunk + 1024);
  const auto arena = Arena::make(from, {});
  void* a = arena->allocate(chunk, {});
  void* b = arena->allocate(1024, {});
  CHECK(from.held == chunk + 1024);
  CHECK_THROWS_AS(arena->allocate(1, {}), OutOfMemory);
  arena->deallocate(b, 1024, {});
  CHECK(arena->allocate(1, {}) == b);
  arena->deallocate(b, 1, {});
  arena->deallocate(a, chunk, {});
}

TEST_CASE("pieces of an arena never overlap") {
  Counted from;
  const auto arena = Arena::make(from, {});
  std::vector<Taken> taken;
  const auto give = [&](size_t i) {
    const Taken t = taken[i];
    for (size_t k = 0; k < t.bytes; ++k) REQUIRE(t.at[k] == t.mark);
    arena->deallocate(t.at, t.bytes, {});
    taken[i] = taken.back();
    taken.pop_back();
  };
  for (unsigned step = 0; step < 400; ++step) {
    const PhiloxBlock r = philox(7, step, 0);
    if (r.word[0] % 5 < 2 && !taken.empty()) {
      give(r.word[1] % taken.size());
    } else {
      const size_t bytes = r.word[1] % (r.word[2] % 8 == 0 ? 200000 : 2000) + 1;
      auto* const at = static_cast<unsigned char*>(arena->allocate(bytes, {}));
      REQUIRE(reinterpret_cast<uintptr_t>(at) % 256 == 0);
      taken.push_back({at, bytes, static_cast<unsigned char>(step)});
      std::memset(at, taken.back().mark, bytes);
    }
  }
  while (!taken.empty()) give(0);
  arena->deallocate(arena->allocate(chunk, {}), chunk, {});
  CHECK(from.held == static_cast<size_t>(arena->reserved()));
}
