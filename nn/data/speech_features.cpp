#include <bs/nn/data/speech_features.h>

#include <bs/lib/check.h>

#include <algorithm>
#include <cmath>

namespace bs::data {

FeatureStatistics statistics_of(std::span<const Frames> recordings) {
  for (const Frames& frames : recordings)
    BS_CHECK(frames.are_whole(), "statistics_of: {} numbers are no rows of {} features",
             frames.values.size(), frames.width);
  const auto width = static_cast<size_t>(recordings.empty() ? 0 : recordings.front().width);
  std::vector<double> sum(width), squares(width);
  int64_t count = 0;
  for (const Frames& frames : recordings) {
    BS_CHECK(frames.width == static_cast<int64_t>(width),
             "statistics_of: frames of {} features among those of {}", frames.width, width);
    count += frames.count();
    for (int64_t i = 0; i < frames.count(); ++i)
      for (size_t k = 0; k < width; ++k) {
        const auto x = static_cast<double>(frames.row(i)[k]);
        sum[k] += x;
        squares[k] += x * x;
      }
  }
  BS_CHECK(count > 0, "statistics_of: no frame in {} recordings", recordings.size());
  FeatureStatistics result;
  for (size_t k = 0; k < width; ++k) {
    const double mean = sum[k] / static_cast<double>(count);
    const double variance = squares[k] / static_cast<double>(count) - mean * mean;
    result.mean.push_back(static_cast<float>(mean));
    result.deviation.push_back(variance > 1e-12 ? static_cast<float>(std::sqrt(variance)) : 1.0F);
  }
  return result;
}

void detail::check_masks(const char* op, const SpecAugmentOptions& o) {
  BS_CHECK(o.frequency_masks >= 0 && o.frequency_width >= 0 && o.time_masks >= 0,
           "{}: {} masks of {} features and {} masks of frames, expected 0 or more", op,
           o.frequency_masks, o.frequency_width, o.time_masks);
  BS_CHECK(o.time_share >= 0 && o.time_share <= 1, "{}: a time_share of {} is not within [0, 1]",
           op, o.time_share);
}

void spec_augment(Frames& frames, const SpecAugmentOptions& o, Draws& draws) {
  detail::check_masks("spec_augment", o);
  BS_CHECK(frames.are_whole(), "spec_augment: {} numbers are no rows of {} features",
           frames.values.size(), frames.width);
  const int64_t count = frames.count();
  for (int mask = 0; mask < o.frequency_masks; ++mask) {
    const int64_t size = draws.below(std::min<int64_t>(o.frequency_width, frames.width) + 1);
    const int64_t first = draws.below(frames.width - size + 1);
    for (int64_t i = 0; i < count; ++i) std::fill_n(frames.row(i).begin() + first, size, 0.0F);
  }
  const auto longest = static_cast<int64_t>(o.time_share * static_cast<double>(count));
  for (int mask = 0; mask < o.time_masks; ++mask) {
    const int64_t size = draws.below(longest + 1);
    const int64_t first = draws.below(count - size + 1);
    std::fill_n(frames.values.begin() + first * frames.width, size * frames.width, 0.0F);
  }
}

namespace {

int64_t stacks(int64_t frames, int stack, int stride) {
  return frames >= stack ? (frames - stack) / stride + 1 : 0;
}

}  // namespace

Frames stack_frames(const Frames& frames, int stack, int stride) {
  BS_CHECK(stack > 0 && stride > 0, "stack_frames: stacks of {}, one every {}", stack, stride);
  BS_CHECK(frames.are_whole(), "stack_frames: {} numbers are no rows of {} features",
           frames.values.size(), frames.width);
  Frames result{.width = frames.width * stack};
  for (int64_t i = 0; i < stacks(frames.count(), stack, stride); ++i) {
    const auto begin = frames.values.begin() + i * stride * frames.width;
    result.values.insert(result.values.end(), begin, begin + result.width);
  }
  return result;
}

SpeechFeatures::SpeechFeatures(const SpeechFeatureOptions& options,
                               std::optional<FeatureStatistics> statistics)
    : options_(options), statistics_(std::move(statistics)), mel_(options.mel) {
  BS_CHECK(options.stack > 0 && options.stride > 0, "speech_features: stacks of {}, one every {}",
           options.stack, options.stride);
  const auto mels = static_cast<size_t>(options.mel.mels);
  BS_CHECK(
      !statistics_ || (statistics_->mean.size() == mels && statistics_->deviation.size() == mels),
      "speech_features: statistics of {} features for {} mels", statistics_->mean.size(), mels);
  pending_.width = options.mel.mels;
}

int64_t SpeechFeatures::width() const { return int64_t{options_.mel.mels} * options_.stack; }
double SpeechFeatures::hop() const { return options_.mel.hop * options_.stride; }

void SpeechFeatures::normalise(Frames& frames) const {
  if (!statistics_) return;
  for (int64_t i = 0; i < frames.count(); ++i) {
    const std::span<float> row = frames.row(i);
    for (size_t k = 0; k < row.size(); ++k)
      row[k] = (row[k] - statistics_->mean[k]) / statistics_->deviation[k];
  }
}

Frames SpeechFeatures::push(std::span<const float> samples) {
  Frames frames = mel_.push(samples);
  normalise(frames);
  const int64_t skipped = std::min(skip_, frames.count());
  skip_ -= skipped;
  pending_.values.insert(pending_.values.end(), frames.values.begin() + skipped * frames.width,
                         frames.values.end());
  Frames result = stack_frames(pending_, options_.stack, options_.stride);
  const int64_t past = result.count() * options_.stride;
  const int64_t used = std::min(past, pending_.count());
  skip_ += past - used;
  pending_.values.erase(pending_.values.begin(), pending_.values.begin() + used * pending_.width);
  return result;
}

void SpeechFeatures::reset(uint64_t seed) {
  mel_.reset(seed);
  pending_.values.clear();
  skip_ = 0;
}

Frames SpeechFeatures::whole(std::span<const float> samples, uint64_t seed,
                             const SpecAugmentOptions& masks, Draws* draws) {
  reset(seed);
  Frames frames = mel_.push(samples);
  reset(seed);
  normalise(frames);
  if (draws) spec_augment(frames, masks, *draws);
  return stack_frames(frames, options_.stack, options_.stride);
}

}  // namespace bs::data
