#pragma once
/** @file The logarithmic mel filterbank: what speech recognisers listen to. */
#include <bs/nn/data/frames.h>
#include <bs/nn/data/real_fft.h>

#include <string>

namespace bs::data {

/** @brief How frequencies become mels. htk: 2595 log10(1 + f / 700) (O'Shaughnessy, 1987);
 *  slaney: linear up to 1 kHz, logarithmic above (Auditory Toolbox, 1998), librosa's default. */
enum class MelScale : uint8_t { htk, slaney };
/** @brief The shape of a frame; both periodic: the last value is the one before the first again. */
enum class Window : uint8_t { hann, hamming };

struct LogMelOptions {
  int64_t rate = 16000;   ///< samples a second
  double window = 0.025;  ///< seconds in a frame
  double hop = 0.010;     ///< seconds from a frame to the next
  int mels = 80;
  double low = 0;   ///< Hz, where the lowest filter begins
  double high = 0;  ///< Hz, where the highest ends; 0: half the rate
  MelScale scale = MelScale::htk;
  Window shape = Window::hann;
  double preemphasis = 0.97;  ///< y_n = x_n - a x_(n-1), with y_0 = x_0
  double dither = 0;          ///< deviation of normal noise added to the samples
  uint64_t seed = 0;          ///< of that noise
  double floor = 1e-9;        ///< added before the logarithm
};

/** @brief Samples in, log-mel frames out, in pieces of any size: the frames of the pieces are the
 *  frames of the whole, bit for bit.
 *
 *  Frame i covers the samples from i * hop on, as many as the window has. There is no padding, so
 *  the frames are floor((n - window) / hop) + 1. Each is shaped by the window and transformed over
 *  the next power of two. Triangular filters of height 1 sum its power |X_k|^2. The feature is the
 *  natural logarithm of (power + floor). About 5 us a frame of 25 ms at 16 kHz. */
class LogMel {
 public:
  /** @throws Error for options out of range, or so many mels that a filter holds no frequency. */
  explicit LogMel(const LogMelOptions& options);
  const LogMelOptions& options() const { return options_; }
  int64_t window_samples() const { return window_samples_; }
  int64_t hop_samples() const { return hop_samples_; }

  /** @brief The frames that these samples complete. */
  Frames push(std::span<const float> samples);
  /** @brief Forgets the samples so far: what is pushed next is a new recording.
   *  @param[in] seed of its dither */
  void reset(uint64_t seed);

 private:
  struct Filter {
    size_t first = 0;  ///< frequency of the first weight
    std::vector<double> weights;
  };
  void make_filters();
  void add_frame(std::span<const double> samples, Frames& frames);

  LogMelOptions options_;
  int64_t window_samples_, hop_samples_;
  std::vector<double> shape_;
  std::vector<Filter> filters_;
  RealFft fft_;
  std::vector<double> pending_;  ///< emphasised samples from the next frame's first on
  std::vector<double> frame_, power_;
  double previous_ = 0;
  int64_t position_ = 0;  ///< samples seen
  int64_t skip_ = 0;      ///< samples to come that no frame covers, where hop exceeds the window
};

/** @brief All frames of a recording. */
Frames log_mel(const LogMelOptions& options, std::span<const float> samples);

}  // namespace bs::data
