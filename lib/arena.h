#pragma once
/** @file Memory of one owner, cut from chunks of another resource that are kept to the end. */
#include <bs/lib/memory.h>

#include <map>
#include <memory>
#include <mutex>

namespace bs {

/** @brief A resource that takes chunks of `from` on one stream and gives none back before its end.
 *
 *  What is freed here is handed out again here, and nowhere else: addresses that work on a device
 *  was recorded with stay its own. It lives until its owner and all that was allocated are gone. */
class Arena final : public MemoryResource, public std::enable_shared_from_this<Arena> {
 public:
  static std::shared_ptr<Arena> make(MemoryResource& from, Stream stream);
  ~Arena() override;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /** @brief The smallest free piece that is large enough; a new chunk where there is none. The
   *  stream of the caller does not matter: its work is in one order. @throws OutOfMemory. */
  void* allocate(size_t bytes, Stream stream) override;
  void deallocate(void* pointer, size_t bytes, Stream stream) noexcept override;
  /** @brief Bytes of all chunks. */
  int64_t reserved() const override;
  /** @brief What chunks are taken and freed on. */
  Stream stream() const { return stream_; }

 private:
  Arena(MemoryResource& from, Stream stream) : from_(from), stream_(stream) {}
  struct Piece {
    size_t bytes = 0;
    bool free = false;
    bool first = false;  ///< of its chunk
  };
  using Pieces = std::map<std::byte*, Piece>;
  void add_chunk(size_t bytes);
  void list(Pieces::iterator piece);
  void unlist(Pieces::iterator piece);

  MemoryResource& from_;
  const Stream stream_;
  mutable std::mutex mutex_;
  Pieces pieces_;                           ///< of all chunks, by address
  std::multimap<size_t, std::byte*> free_;  ///< pieces that are free, by size
  std::map<std::byte*, size_t> chunks_;
  int64_t reserved_ = 0, live_ = 0;
  std::shared_ptr<Arena> self_;  ///< while anything is allocated
};

}  // namespace bs
