#include <bs/nn/data/resample.h>

#include <bs/lib/check.h>
#include <bs/lib/integers.h>
#include <bs/lib/out_of_memory.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <numbers>
#include <numeric>

namespace bs::data {

namespace {

/// The weights of the inputs around an output that lies `offset` inputs behind one of them.
std::vector<double> weights(double offset, int64_t radius, double cutoff, int zeros) {
  std::vector<double> result;
  double sum = 0;
  for (int64_t i = -radius; i <= radius; ++i) {
    const double t = (static_cast<double>(i) - offset) * cutoff;  // in zero crossings
    const double x = std::numbers::pi * t;
    const double sinc = std::abs(x) < 1e-12 ? 1 : std::sin(x) / x;
    const double window = std::abs(t) < zeros ? 0.5 + 0.5 * std::cos(x / zeros) : 0;
    result.push_back(sinc * window);
    sum += result.back();
  }
  for (double& w : result) w /= sum;
  return result;
}

}  // namespace

std::vector<float> resample(std::span<const float> samples, int64_t from, int64_t to, int zeros,
                            double rolloff) try {
  BS_CHECK(from > 0 && to > 0 && from <= most_rate && to <= most_rate,
           "resample: from {} to {} samples a second", from, to);
  BS_CHECK(zeros > 0 && zeros <= 1024 && rolloff >= 0.01 && rolloff <= 1,
           "resample: {} zero crossings, rolloff {}", zeros, rolloff);
  if (from == to) return {samples.begin(), samples.end()};
  const int64_t divisor = std::gcd(from, to);
  from /= divisor;
  to /= divisor;
  const double cutoff =
      rolloff * std::min(1.0, static_cast<double>(to) / static_cast<double>(from));
  const auto radius = static_cast<int64_t>(std::ceil(zeros / cutoff));
  // Output n lies at n from / to inputs: after the point there are `to` different parts only.
  std::vector<std::vector<double>> phases(static_cast<size_t>(to));
  const auto count = static_cast<int64_t>(samples.size());
  std::vector<float> result(static_cast<size_t>(ceil_div(count * to, from)));
  for (size_t n = 0; n < result.size(); ++n) {
    const int64_t scaled = static_cast<int64_t>(n) * from;
    const int64_t centre = scaled / to, part = scaled % to;
    auto& phase = phases[static_cast<size_t>(part)];
    if (phase.empty())
      phase = weights(static_cast<double>(part) / static_cast<double>(to), radius, cutoff, zeros);
    const int64_t begin = std::max(int64_t{0}, centre - radius);
    const int64_t end = std::min(count, centre + radius + 1);
    double sum = 0;
    for (int64_t i = begin; i < end; ++i)
      sum += phase[static_cast<size_t>(i - centre + radius)] *
             static_cast<double>(samples[static_cast<size_t>(i)]);
    result[n] = static_cast<float>(sum);
  }
  return result;
} catch (const std::bad_alloc&) {
  out_of_own_memory("resample");
}

std::vector<float> change_speed(std::span<const float> samples, double factor) {
  BS_CHECK(factor >= 0.1 && factor <= 10, "change_speed: a factor of {}", factor);
  return resample(samples, std::llround(100 * factor), 100);
}

}  // namespace bs::data
