#include <bs/lib/changes.h>

#include <bs/lib/overlap.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

namespace bs {

namespace {

struct Change {
  ByteRange where;
  const char* operation = nullptr;
};

/// The last changes, in a ring. A counter in each storage would say neither which part was changed
/// nor by what, and would cost every tensor its bytes.
constexpr uint64_t remembered = 4096;
constinit std::mutex mutex;
constinit std::array<Change, remembered> changes;
constinit std::atomic<uint64_t> count = 0;

}  // namespace

void note_change(const Tensor& x, const char* operation) {
  if (!x.defined() || x.use_count() == 1) return;  // nobody else can have saved it
  const ByteRange where = byte_range(x);
  if (where.begin == where.end) return;
  const std::lock_guard lock(mutex);
  const uint64_t at = count.load(std::memory_order_relaxed);
  changes[at % remembered] = {where, operation};
  count.store(at + 1, std::memory_order_release);
}

uint64_t change_count() { return count.load(std::memory_order_acquire); }

const char* changed_since(const Tensor& x, uint64_t moment) {
  if (change_count() == moment) return nullptr;
  const ByteRange where = byte_range(x);
  const std::lock_guard lock(mutex);
  const uint64_t now = count.load(std::memory_order_relaxed);
  for (uint64_t at = std::max(moment, now < remembered ? 0 : now - remembered); at < now; ++at)
    if (changes[at % remembered].where.overlaps(where)) return changes[at % remembered].operation;
  return nullptr;
}

}  // namespace bs
