#pragma once
/** @file What a thread records for later: its memory, and the numbers of the host that go on. */
#include <bs/lib/arena.h>
#include <bs/lib/capturing.h>
#include <bs/lib/random.h>
#include <bs/lib/tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace bs {

/** @brief What belongs to work that is recorded once and replayed; see cuda::Graph, which has one.
 *
 *  While a thread is in its scope, tensors on the device are made of its memory. What they replace
 *  is kept rather than freed, since the record may name it. Numbers that change from step to step
 *  live on the device: operations ask for them here, and refresh() writes them. */
class Recording {
 public:
  /** @param[in] stream work before the first replay goes there; not one that is being captured
   *  @param[in] memory shared with recordings whose replays never run at the same time; null: its
   *  own, of `stream` */
  Recording(Device device, Stream stream, std::shared_ptr<Arena> memory = nullptr);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  /** @brief This thread's, null for none. */
  static Recording* current();
  /** @brief The same, if it is of `device`. */
  static Recording* current(Device device);

  /** @brief A scope in which it is this thread's. @throws Error where there is one already. */
  class Scope {
   public:
    explicit Scope(Recording& recording);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Recording& recording_;
    std::optional<Capturing> capturing_;
  };

  /** @brief `count` numbers of f64 on the device, which `fill` writes at each refresh. What it
   *  refers to must live as long as the recording. */
  Tensor live(int64_t count, std::function<void(std::span<double>)> fill);
  /** @brief Calls `action` at each refresh, in the order of such calls and of live(). */
  void at_refresh(std::function<void()> action);
  /** @brief A sequence of random numbers: at each replay the generator's next one. */
  RandomState draw(Generator& generator);

  /** @brief Work before the first replay goes there. */
  Stream stream() const { return stream_; }
  /** @brief Where tensors of the device come from. */
  MemoryResource& memory() const { return *arena_; }
  /** @brief Frees it with the recording, unless it came from memory(). @return whether it will */
  bool keep(void* pointer, size_t bytes, MemoryResource& from, Stream stream) noexcept;
  /** @brief Ints that are zero before the first replay, for one operation, which must leave them
   *  zero. */
  int* zeroed(int count, const std::function<void(void*, size_t)>& fill_zero);
  /** @brief Memory that operations share, one after the other: at least `bytes`. With the scope it
   *  goes back to memory(), for the next recording there. */
  void* workspace(size_t bytes);

  /** @brief Does what is due before a replay. @return the words to copy to words(). */
  std::span<const uint64_t> refresh();
  void* words() const { return words_.data(); }
  int64_t bytes() const { return arena_->reserved(); }

 private:
  static constexpr size_t most_words = 4096;
  struct Drawn {
    RandomState first;
    uint64_t count = 0;
    const uint64_t* shift = nullptr;
  };
  struct Kept {
    void* pointer;
    size_t bytes;
    MemoryResource* from;
    Stream stream;
  };
  size_t take_words(size_t count);
  Tensor fresh(int64_t count, DType dtype) const;

  const Device device_;
  const Stream stream_;
  std::shared_ptr<Arena> arena_;
  Tensor words_, zeros_;
  std::vector<Tensor> held_;        ///< zeros handed out
  std::vector<Tensor> workspaces_;  ///< handed out in the scope
  std::vector<uint64_t> image_;     ///< of what is used of words_
  int64_t zeros_used_ = 0;
  std::vector<std::function<void()>> actions_;
  std::unordered_map<Generator*, Drawn> drawn_;
  std::vector<Kept> kept_;
};

/** @brief Throws an Error naming `op` while a graph is recorded on `device`: `op` does `what`. */
void check_unrecorded(const char* op, Device device, const char* what);

}  // namespace bs
