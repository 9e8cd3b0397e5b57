#pragma once
/** @file What a pool of a device does when, whatever hands out its memory. */
#include <bs/lib/free_blocks.h>
#include <bs/lib/memory.h>
#include <bs/lib/out_of_memory.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

namespace bs {

/** @brief Memory of a device in the order of streams, as its driver has it. */
class OrderedMemory {
 public:
  virtual ~OrderedMemory() = default;
  /** @brief Null where there is too little. @throws Error where something else fails. */
  virtual void* take(size_t bytes, Stream stream) = 0;
  /** @brief Whether it was freed; not where the stream or the driver is gone. */
  virtual bool give(void* pointer, Stream stream) noexcept = 0;
  /** @brief Whether what is queued on the stream goes into a graph instead. */
  virtual bool captured(Stream stream) noexcept = 0;
  /** @brief Waits for all that is queued on the device. */
  virtual void wait() = 0;
  /** @brief Gives what was freed, and is not in use any more, back to the system, until it holds
   *  `keep` bytes. */
  virtual void trim(int64_t keep) = 0;
  /** @brief A stream to give memory back on whose own one is gone. */
  virtual Stream stream() = 0;
  virtual int64_t reserved() const = 0;
  /** @brief Of what is reserved, what was taken and not given back. */
  virtual int64_t used() const { return reserved(); }
  virtual MemoryShares shares() const = 0;
};

/** @brief A pool over it. Before it fails, it waits for the device and gives back what is cached,
 *  what is reserved included. Nothing is freed into a graph that does not own it, nor by a stream
 *  that is gone. Such memory comes back by trim(), or by an allocation that finds no room. Others
 *  wait for no stream, for that would end the captures of other threads; nor do these while a
 *  thread captures work by this library.
 *
 *  Blocks that are freed on one stream are kept for what it asks for next: its driver takes longer
 *  to find memory than most operations take of the host's time, and a free holds the stream up for
 *  1.5 us. Small ones serve requests of about their size, large ones of just as many bytes. */
class OrderedPool final : public MemoryResource {
 public:
  static constexpr size_t most_small = size_t{1} << 20;  ///< bytes of a small block
  static constexpr size_t most_kept = size_t{64} << 20;  ///< bytes of those that are kept
  static constexpr size_t most_large = 512;              ///< large blocks that are kept
  /** @brief Of their bytes, what one may have: the driver's time is nothing beside what work on
   *  larger ones takes. */
  static constexpr size_t part_of_one = 4;

  /** @param[in] keeping the stream whose blocks are kept, which is memory's own; none: no block is
   *  @param[in] large_bytes of large blocks that are kept; then the oldest are given back */
  OrderedPool(Device device, OrderedMemory& memory, std::optional<Stream> keeping = {},
              size_t large_bytes = 0)
      : device_(device), memory_(memory), keeping_(keeping), large_bytes_(large_bytes) {}
  void* allocate(size_t bytes, Stream stream) override;
  void deallocate(void* pointer, size_t bytes, Stream stream) noexcept override;
  void trim() override;
  void reserve(int64_t bytes) override;
  int64_t reserved() const override { return memory_.reserved(); }
  /** @brief Bytes freed that have not come back yet. */
  int64_t stranded() const { return stranded_bytes_; }

 private:
  struct Stranded {
    void* pointer;
    size_t bytes;
  };
  void* take(size_t bytes, Stream stream);
  void* take_kept(size_t size, Stream stream) noexcept;
  bool keep(void* pointer, size_t bytes, Stream stream) noexcept;
  void give_back(void* pointer, size_t bytes, Stream stream) noexcept;
  bool give_oldest(size_t count, size_t bytes) noexcept;
  bool give_kept();
  void trim_to(int64_t keep);
  bool give(void* pointer, Stream stream) noexcept;
  void strand(const Stranded& memory) noexcept;
  void fetch_stranded();

  Device device_;
  OrderedMemory& memory_;
  const std::optional<Stream> keeping_;
  std::mutex mutex_;
  const size_t large_bytes_;
  FreeBlocks small_;  ///< kept, as are
  ExactBlocks large_;
  std::unordered_set<void*> of_graphs_;  ///< taken while their stream was captured
  std::vector<Stranded> stranded_;       ///< freed, but not by their streams
  std::atomic<int64_t> stranded_bytes_ = 0;
  std::atomic<int64_t> kept_ = 0;  ///< bytes that trim() leaves
};

}  // namespace bs
