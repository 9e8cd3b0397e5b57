#pragma once
/** @file Text out of a transducer, greedily or by beam search. */
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace bs::decode {

/** @brief What the prediction network knows after some tokens; a model derives its own. One that
 *  knows nothing may give null in its place. */
struct PredictionState {
  virtual ~PredictionState() = default;
};
using PredictionPtr = std::shared_ptr<const PredictionState>;

/** @brief A transducer and one utterance, as decoders ask about them. */
class TransducerScorer {
 public:
  virtual ~TransducerScorer() = default;
  /** @brief Encoder frames there are so far. */
  virtual int64_t frames() const = 0;
  /** @brief Number of the class that goes on to the next frame. */
  virtual int64_t blank() const = 0;
  /** @brief The prediction network before any token. */
  virtual PredictionPtr start() const = 0;
  /** @brief ... after one more. */
  virtual PredictionPtr next(const PredictionPtr& state, int64_t token) const = 0;
  /** @brief Logits of all classes at an encoder frame; numbers, or -infinity, but not all of them.
   */
  virtual std::vector<float> logits(int64_t frame, const PredictionPtr& state) const = 0;
};

/** @brief Tokens, and the frame at which each was decided. */
struct Hypothesis {
  std::vector<int64_t> tokens, frames;
  double log_probability = 0;  ///< of the alignment (greedy) or of all found (beam)
};

struct GreedyOptions {
  int max_symbols = 30;  ///< tokens at one frame, then the next
};

/** @brief Takes the likeliest class each time; goes on where it stopped when more frames came. */
class GreedyDecoder {
 public:
  explicit GreedyDecoder(const TransducerScorer& scorer, const GreedyOptions& options = {});
  /** @brief Decodes the frames there are beyond those decoded before.
   *  @throws Error where logits are NaN or infinity. */
  const Hypothesis& advance();
  const Hypothesis& hypothesis() const { return hypothesis_; }

 private:
  const TransducerScorer& scorer_;
  GreedyOptions options_;
  PredictionPtr state_;
  Hypothesis hypothesis_;
  int64_t frame_ = 0;
};

Hypothesis greedy_decode(const TransducerScorer& scorer, const GreedyOptions& options = {});

struct BeamOptions {
  int width = 4;           ///< hypotheses kept from a frame to the next
  int max_symbols = 8;     ///< tokens at one frame
  double temperature = 1;  ///< logits are divided by it
  /** A hypothesis' score is its log probability divided by one more than its tokens. Those are
   *  dropped whose score is less than another's by more than this; negative: none. */
  double score_threshold = -1;
  /** Classes less likely than the likeliest by more than this in log probability are not tried;
   *  negative: all are. */
  double class_threshold = -1;
  /** So many classes are tried, the likeliest, and the blank in any case; 0: all. */
  int classes = 0;
  /** What tokens say, where different tokens may say the same. Hypotheses that say the same are
   *  one. Not given: hypotheses of the same tokens are one. */
  std::function<std::string(const std::vector<int64_t>& tokens)> text = {};
};

/** @brief Best-first search frame by frame (Graves, Sequence transduction, 2012). Hypotheses of
 *  the same tokens, or of the same text, are one. Their probabilities are added, so that a text
 *  counts and not an alignment. Tokens and frames go on as those of the likelier one, or of the one
 *  that reached the blank first. With nothing cut off, each log probability is that of the text
 *  under the model. Of equals the first found comes first, and classes of higher numbers.
 *  @return up to `width` hypotheses, the likeliest first
 *  @throws Error for options out of range, and where logits are NaN or infinity.
 *  Cost: of a frame up to width x max_symbols calls of logits, where thresholds cut off the rest.
 */
std::vector<Hypothesis> beam_decode(const TransducerScorer& scorer,
                                    const BeamOptions& options = {});

}  // namespace bs::decode
