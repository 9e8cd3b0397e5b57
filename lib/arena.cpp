#include <bs/lib/arena.h>

#include <bs/lib/check.h>

#include <algorithm>
#include <iterator>

namespace bs {

namespace {

constexpr size_t alignment = 256;
constexpr size_t smallest_chunk = size_t{2} << 20;
constexpr size_t largest_growth = size_t{1} << 30;

size_t rounded(size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace

std::shared_ptr<Arena> Arena::make(MemoryResource& from, Stream stream) {
  return std::shared_ptr<Arena>(new Arena(from, stream));
}

Arena::~Arena() {
  for (const auto& [chunk, bytes] : chunks_) from_.deallocate(chunk, bytes, stream_);
}

void Arena::list(Pieces::iterator piece) {
  free_.emplace(piece->second.bytes, piece->first);
  piece->second.free = true;
}

void Arena::unlist(Pieces::iterator piece) {
  auto [at, end] = free_.equal_range(piece->second.bytes);
  while (at != end && at->second != piece->first) ++at;
  free_.erase(at);
  piece->second.free = false;
}

/// Grows by a quarter of all there is, at most a GiB, so that chunks stay few.
void Arena::add_chunk(size_t bytes) {
  const auto growth = std::min(static_cast<size_t>(reserved_) / 4, largest_growth);
  const size_t size = std::max({bytes, rounded(growth), smallest_chunk});
  size_t taken = size;
  void* memory = nullptr;
  try {
    memory = from_.allocate(size, stream_);
  } catch (const OutOfMemory&) {
    if (size == bytes) throw;
    taken = bytes;
    memory = from_.allocate(bytes, stream_);
  }
  auto* const chunk = static_cast<std::byte*>(memory);
  chunks_.emplace(chunk, taken);
  reserved_ += static_cast<int64_t>(taken);
  list(pieces_.emplace(chunk, Piece{.bytes = taken, .free = true, .first = true}).first);
}

void* Arena::allocate(size_t asked, Stream) {
  const size_t bytes = rounded(std::max<size_t>(asked, 1));
  const std::lock_guard lock(mutex_);
  auto best = free_.lower_bound(bytes);
  if (best == free_.end()) {
    add_chunk(bytes);
    best = free_.lower_bound(bytes);
  }
  const auto piece = pieces_.find(best->second);
  unlist(piece);
  if (const size_t rest = piece->second.bytes - bytes; rest > 0) {
    piece->second.bytes = bytes;
    list(pieces_.emplace(piece->first + bytes, Piece{.bytes = rest}).first);
  }
  if (live_++ == 0) self_ = shared_from_this();
  return piece->first;
}

void Arena::deallocate(void* pointer, size_t, Stream) noexcept {
  std::shared_ptr<Arena> last;  // outlives the lock
  const std::lock_guard lock(mutex_);
  auto piece = pieces_.find(static_cast<std::byte*>(pointer));
  const auto merge = [&](Pieces::iterator a, Pieces::iterator b) {
    a->second.bytes += b->second.bytes;
    pieces_.erase(b);
  };
  if (const auto next = std::next(piece);
      next != pieces_.end() && next->second.free && !next->second.first) {
    unlist(next);
    merge(piece, next);
  }
  if (piece != pieces_.begin() && !piece->second.first) {
    if (const auto before = std::prev(piece); before->second.free) {
      unlist(before);
      merge(before, piece);
      piece = before;
    }
  }
  list(piece);
  if (--live_ == 0) last = std::move(self_);
}

int64_t Arena::reserved() const {
  const std::lock_guard lock(mutex_);
  return reserved_;
}

}  // namespace bs
