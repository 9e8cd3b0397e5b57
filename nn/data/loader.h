#pragma once
/** @file Batches of a text for a language model. */
#include <bs/lib/tensor.h>
#include <bs/nn/data/cursor.h>
#include <bs/nn/data/text_dataset.h>

#include <memory>
#include <span>

namespace bs::data {

/** @brief Tokens and what follows each of them. */
struct Batch {
  Tensor inputs;   ///< [batch, context]
  Tensor targets;  ///< [batch, context], the bytes one further on
};

/** @brief The windows of `context` + 1 bytes that begin at `starts`, as tokens.
 *  @param[in] dtype i64 or i32
 *  @throws Error for a window that leaves the text. */
Batch windows(const TextDataset& text, std::span<const int64_t> starts, int64_t context,
              DType dtype = i32, Device device = Device::cpu());

struct LoaderOptions {
  int64_t batch = 16;
  int64_t context = 256;
  uint64_t seed = 0;
  DType dtype = i32;  ///< of the tokens, i64 or i32
  Device device = Device::cpu();
  int prefetch = 2;  ///< batches made ahead on a thread; 0: none, and no thread
};

/** @brief An endless series of batches of random windows. Batch number n is a function of the text,
 *  the seed and n alone. So the series goes on anywhere: save cursor(), then seek() to it. */
class Loader : public Cursor {
 public:
  /** @throws Error for a text shorter than one window, or options out of range. */
  Loader(TextDataset text, const LoaderOptions& options);
  ~Loader() override;
  /** @brief The batch at the cursor, which moves on. @throws what making the batch threw. */
  Batch next();
  int64_t cursor() const override { return cursor_; }
  void seek(int64_t cursor) override;

 private:
  struct Ahead;
  Batch make(int64_t number) const;

  TextDataset text_;
  LoaderOptions options_;
  int64_t cursor_ = 0;
  std::unique_ptr<Ahead> ahead_;  ///< the thread; made by the first next() after a seek
};

}  // namespace bs::data
