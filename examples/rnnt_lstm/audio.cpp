#include <bs/examples/rnnt_lstm/audio.h>
#include <bs/lib/check.h>
#include <bs/lib/file.h>
#include <bs/nn/data/resample.h>
#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace bs::example {
namespace {

/// Samples that a file may become, before and after its rate is changed. Speech takes a byte for at
/// most 64, in any format; silence next to nothing, so half an hour of it is always taken.
int64_t most_samples(int64_t bytes) { return std::max(int64_t{1} << 24, 256 * bytes); }

void check_finite(const std::string& path, const std::vector<float>& samples) {
  if (!std::ranges::all_of(samples, [](float x) { return std::isfinite(x); }))
    BS_THROW(IoError, "{}: a sample is not finite", path);
}

}  // namespace

std::vector<float> read_audio(const std::string& path, int64_t rate) {
  // Refuses pipes and devices, on which sf_open would wait. It opens by name itself: what has no
  // header, such as .gsm, it knows by its ending.
  const InputFile regular(path);
  SF_INFO info = {};
  const std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> file(sf_open(path.c_str(), SFM_READ, &info),
                                                         sf_close);
  if (!file) BS_THROW(IoError, "{}: {}", path, sf_strerror(nullptr));
  constexpr int slowest = 1000, fastest = 768'000;  // samples a second: a header can say anything
  if (info.samplerate < slowest || info.samplerate > fastest)
    BS_THROW(IoError, "{}: {} samples a second are not from {} to {}", path, info.samplerate,
             slowest, fastest);
  const auto channels = static_cast<size_t>(info.channels);
  const int64_t most = most_samples(regular.size());
  const double stretched =
      std::max(1.0, static_cast<double>(rate) / static_cast<double>(info.samplerate));
  std::vector<float> buffer(4096 * channels), mono;
  for (sf_count_t frames; (frames = sf_readf_float(file.get(), buffer.data(), 4096)) > 0;) {
    // The header's count of them is not trusted.
    if (static_cast<double>(mono.size() + static_cast<size_t>(frames)) * stretched >
        static_cast<double>(most))
      BS_THROW(IoError, "{}: its {} bytes become more than {} samples", path, regular.size(), most);
    for (size_t i = 0; i < static_cast<size_t>(frames); ++i) {
      float sum = 0;
      for (size_t c = 0; c < channels; ++c) sum += buffer[i * channels + c];
      mono.push_back(sum / static_cast<float>(channels));
    }
  }
  if (sf_error(file.get()) != SF_ERR_NO_ERROR)
    BS_THROW(IoError, "{}: {}", path, sf_strerror(file.get()));
  check_finite(path, mono);
  std::vector<float> samples = data::resample(mono, info.samplerate, rate);
  check_finite(path, samples);  // between large numbers there are larger ones
  return samples;
}

}  // namespace bs::example
