#pragma once
/** @file From samples to what a speech model reads: log-mel frames, normalised and stacked. */
#include <bs/nn/data/draws.h>
#include <bs/nn/data/log_mel.h>

#include <optional>

namespace bs::data {

/** @brief Mean and deviation of each feature over a training set. */
struct FeatureStatistics {
  std::vector<float> mean, deviation;
};
/** @brief Statistics of all frames together, in double; a deviation of zero counts as one.
 *  @throws Error when there is no frame, or widths differ. */
FeatureStatistics statistics_of(std::span<const Frames> recordings);

/** @brief Hides parts of a recording from a model that learns (Park et al., SpecAugment, 2019). */
struct SpecAugmentOptions {
  int frequency_masks = 2;
  int frequency_width = 20;  ///< features hidden by a mask, at most
  int time_masks = 10;
  double time_share = 0.03;  ///< of the recording, hidden by a mask at most; from 0 to 1
};
/** @brief Sets the masked features, and the masked frames, to 0: the mean of normalised ones.
 *  @throws Error for options out of range, or values that are no whole frames. */
void spec_augment(Frames& frames, const SpecAugmentOptions& options, Draws& draws);

/** @brief `stack` frames side by side, a new stack every `stride` frames; frames at the end that
 *  fill no stack are dropped. @throws Error unless both are positive. */
Frames stack_frames(const Frames& frames, int stack, int stride);

namespace detail {
/** @brief Throws an Error naming `op` for counts or widths below 0, and a share outside of [0, 1].
 */
void check_masks(const char* op, const SpecAugmentOptions& options);
}  // namespace detail

struct SpeechFeatureOptions {
  LogMelOptions mel = {};
  int stack = 3;
  int stride = 3;
};

/** @brief The whole way from samples to features; also for a stream, piece by piece. The features
 *  of the pieces are those of the whole, bit for bit. */
class SpeechFeatures {
 public:
  /** @throws Error for options out of range, or statistics of another width. Without statistics
   *  nothing is normalised. */
  explicit SpeechFeatures(const SpeechFeatureOptions& options,
                          std::optional<FeatureStatistics> statistics = {});
  /** @brief Features of a frame: mels x stack. */
  int64_t width() const;
  /** @brief Seconds from a frame to the next. */
  double hop() const;

  /** @brief The features that these samples complete. */
  Frames push(std::span<const float> samples);
  /** @brief What is pushed next is a new recording. */
  void reset(uint64_t seed = 0);
  /** @brief All features of one recording, with masks where the draws for them are given. */
  Frames whole(std::span<const float> samples, uint64_t seed = 0,
               const SpecAugmentOptions& masks = {}, Draws* draws = nullptr);

 private:
  void normalise(Frames& frames) const;
  SpeechFeatureOptions options_;
  std::optional<FeatureStatistics> statistics_;
  LogMel mel_;
  Frames pending_;    ///< frames from the next stack's first on
  int64_t skip_ = 0;  ///< frames to come that no stack holds
};

}  // namespace bs::data
