#include <bs/nn/data/log_mel.h>

#include <bs/kernels/distribution.h>
#include <bs/lib/check.h>
#include <bs/nn/data/resample.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

namespace bs::data {

namespace {

constexpr double slaney_step = 200.0 / 3;           // Hz a mel below the bend
constexpr double slaney_bend = 1000;                // Hz
const double slaney_log_step = std::log(6.4) / 27;  // 27 mels from 1 kHz to 6.4 kHz

double to_mel(double hertz, MelScale scale) {
  if (scale == MelScale::htk) return 2595 * std::log10(1 + hertz / 700);
  if (hertz < slaney_bend) return hertz / slaney_step;
  return slaney_bend / slaney_step + std::log(hertz / slaney_bend) / slaney_log_step;
}
double to_hertz(double mel, MelScale scale) {
  if (scale == MelScale::htk) return 700 * (std::pow(10, mel / 2595) - 1);
  const double bend = slaney_bend / slaney_step;
  if (mel < bend) return mel * slaney_step;
  return slaney_bend * std::exp((mel - bend) * slaney_log_step);
}

int64_t samples(double seconds, int64_t rate) {
  return static_cast<int64_t>(std::llround(seconds * static_cast<double>(rate)));
}

LogMelOptions checked(LogMelOptions o) {
  constexpr double longest = 10;  // seconds
  BS_CHECK(o.rate > 0 && o.rate <= most_rate, "log_mel: {} samples a second", o.rate);
  if (o.high == 0) o.high = static_cast<double>(o.rate) / 2;
  BS_CHECK(o.window > 0 && o.window <= longest && o.hop > 0 && o.hop <= longest &&
               samples(o.window, o.rate) >= 2 && samples(o.hop, o.rate) >= 1,
           "log_mel: a window of {} s, a hop of {} s at {} Hz", o.window, o.hop, o.rate);
  BS_CHECK(o.mels > 0 && o.mels <= 1 << 14 && 0 <= o.low && o.low < o.high &&
               o.high <= static_cast<double>(o.rate) / 2,
           "log_mel: {} mels from {} to {} Hz at {} Hz", o.mels, o.low, o.high, o.rate);
  BS_CHECK(o.preemphasis >= 0 && o.preemphasis <= 1 && o.dither >= 0 && o.floor >= 0,
           "log_mel: preemphasis {}, dither {}, floor {}", o.preemphasis, o.dither, o.floor);
  return o;
}

}  // namespace

LogMel::LogMel(const LogMelOptions& options)
    : options_(checked(options)),
      window_samples_(samples(options.window, options.rate)),
      hop_samples_(samples(options.hop, options.rate)),
      fft_(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(window_samples_)))) {
  const double a = options_.shape == Window::hann ? 0.5 : 0.54;
  for (int64_t i = 0; i < window_samples_; ++i)
    shape_.push_back(a - (1 - a) * std::cos(2 * std::numbers::pi * static_cast<double>(i) /
                                            static_cast<double>(window_samples_)));
  frame_.resize(shape_.size());
  power_.resize(static_cast<size_t>(fft_.size() / 2 + 1));
  make_filters();
}

void LogMel::make_filters() {
  const LogMelOptions& o = options_;
  const double lowest = to_mel(o.low, o.scale), highest = to_mel(o.high, o.scale);
  const auto corner = [&](int i) {
    return to_hertz(lowest + (highest - lowest) * i / (o.mels + 1), o.scale);
  };
  const double step = static_cast<double>(o.rate) / static_cast<double>(fft_.size());
  for (int m = 0; m < o.mels; ++m) {
    const double left = corner(m), middle = corner(m + 1), right = corner(m + 2);
    Filter filter;
    for (size_t k = 0; k < power_.size(); ++k) {
      const double f = static_cast<double>(k) * step;
      const double weight = std::min((f - left) / (middle - left), (right - f) / (right - middle));
      if (weight <= 0) continue;
      if (filter.weights.empty()) filter.first = k;
      filter.weights.push_back(weight);
    }
    BS_CHECK(!filter.weights.empty(),
             "log_mel: {} mels are too many: filter {} from {} to {} Hz lies between frequencies "
             "{} Hz apart",
             o.mels, m, left, right, step);
    filters_.push_back(std::move(filter));
  }
}

void LogMel::reset(uint64_t seed) {
  options_.seed = seed;
  pending_.clear();
  previous_ = 0;
  position_ = skip_ = 0;
}

void LogMel::add_frame(std::span<const double> from, Frames& frames) {
  for (size_t i = 0; i < frame_.size(); ++i) frame_[i] = from[i] * shape_[i];
  const auto spectrum = fft_(frame_);
  for (size_t k = 0; k < power_.size(); ++k) power_[k] = std::norm(spectrum[k]);
  for (const Filter& filter : filters_) {
    double sum = 0;
    for (size_t i = 0; i < filter.weights.size(); ++i)
      sum += filter.weights[i] * power_[filter.first + i];
    frames.values.push_back(static_cast<float>(std::log(sum + options_.floor)));
  }
}

Frames LogMel::push(std::span<const float> given) {
  for (const float sample : given) {
    double x = static_cast<double>(sample);
    if (options_.dither > 0) {
      const PhiloxBlock bits = philox(options_.seed, static_cast<uint64_t>(position_), 0);
      x += options_.dither * static_cast<double>(normal_pair(bits.word[0], bits.word[2]).first);
    }
    const double y = position_ == 0 ? x : x - options_.preemphasis * previous_;
    previous_ = x;
    ++position_;
    if (skip_ > 0) {
      --skip_;
    } else {
      pending_.push_back(y);
    }
  }
  Frames frames{.width = options_.mels};
  const auto window = static_cast<size_t>(window_samples_), hop = static_cast<size_t>(hop_samples_);
  size_t at = 0;
  for (; at + window <= pending_.size(); at += hop)
    add_frame(std::span(pending_).subspan(at, window), frames);
  const size_t used = std::min(at, pending_.size());
  skip_ += static_cast<int64_t>(at - used);
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(used));
  return frames;
}

Frames log_mel(const LogMelOptions& options, std::span<const float> samples) {
  return LogMel(options).push(samples);
}

}  // namespace bs::data
