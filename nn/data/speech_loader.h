#pragma once
/** @file Batches of recordings and their texts. */
#include <bs/lib/tensor.h>
#include <bs/nn/data/cursor.h>
#include <bs/nn/data/speech_features.h>

#include <memory>
#include <string>

namespace bs::data {

/** @brief A recording and the numbers of its text's characters. */
struct Utterance {
  std::string name = {};
  std::vector<float> samples = {};
  std::vector<int64_t> tokens = {};
};
using Utterances = std::vector<Utterance>;

/** @brief Sequences of a batch side by side, the shorter ones filled up with zeros. */
struct SpeechBatch {
  Tensor features;        ///< [batch, frames, width] f32
  Tensor lengths;         ///< [batch] i64, on the host: frames of each
  Tensor targets;         ///< [batch, longest] i32
  Tensor target_lengths;  ///< [batch] i64, on the host
  double seconds = 0;     ///< of audio
};

/** @brief Extents of batches are multiples of these, so that few shapes come: a cuda::Graph is of
 *  one shape. */
struct SpeechPadding {
  int64_t frames = 1, labels = 1;  ///< at most 65536
};

/** @brief Puts sequences of features and tokens side by side on the host.
 *  @param[in] hop seconds a frame
 *  @throws Error when the counts or widths differ, or the padding is out of range. */
SpeechBatch collate(std::span<const Frames> features, std::span<const std::vector<int64_t>> tokens,
                    double hop, const SpeechPadding& padding = {});

/** @brief How recordings are varied from epoch to epoch. */
struct SpeechAugmentOptions {
  double slowest = 1, fastest = 1;  ///< speed, drawn evenly
  bool masks = false;               ///< SpecAugment
  SpecAugmentOptions spec = {};
};

struct SpeechLoaderOptions {
  int64_t batch = 16;
  int buckets = 6;  ///< utterances of about the same length come together; 1: of any length
  SpeechAugmentOptions augment = {};
  SpeechPadding padding = {};
  uint64_t seed = 0;
  Device device = Device::cpu();  ///< of features and targets
  int prefetch = 2;               ///< batches made ahead on a thread; 0: none, and no thread
  int workers = 1;  ///< threads that make the recordings of a batch; the number changes nothing
};

/** @brief An endless series of epochs, each all utterances once in another order. Batch number n is
 *  a function of the utterances, the options and n alone: save cursor(), then seek() to it.
 *
 *  An epoch sorts the utterances into buckets by length and shuffles each bucket. It cuts the
 *  sequence of all into batches, the last of which may be smaller, and shuffles these. */
class SpeechLoader : public Cursor {
 public:
  /** @throws Error for no utterances, or options out of range. */
  SpeechLoader(std::shared_ptr<const Utterances> utterances, SpeechFeatures features,
               const SpeechLoaderOptions& options);
  ~SpeechLoader() override;
  /** @brief The batch at the cursor, which moves on. @throws what making the batch threw. */
  SpeechBatch next();
  int64_t cursor() const override { return cursor_; }
  void seek(int64_t cursor) override;
  int64_t batches_an_epoch() const;
  /** @brief Numbers of the utterances of a batch. */
  std::vector<int64_t> indices(int64_t batch) const;

 private:
  struct Ahead;
  struct Epoch;
  void order(Epoch& epoch, int64_t number) const;
  SpeechBatch make(int64_t number) const;

  std::shared_ptr<const Utterances> utterances_;
  SpeechFeatures features_;
  SpeechLoaderOptions options_;
  std::vector<int64_t> by_length_;  ///< numbers of all utterances, the shortest first
  std::unique_ptr<Epoch> epoch_;    ///< what was in order last
  int64_t cursor_ = 0;
  std::unique_ptr<Ahead> ahead_;  ///< the thread; made by the first next() after a seek
};

}  // namespace bs::data
