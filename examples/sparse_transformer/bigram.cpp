#include <bs/examples/sparse_transformer/bigram.h>

#include <cmath>

namespace bs::example {

Bigram::Bigram(std::span<const uint8_t> text) {
  std::array<int64_t, bytes> counts{};
  for (const uint8_t b : text) ++counts[b];
  for (size_t b = 0; b < bytes; ++b)
    single_[b] = static_cast<double>(counts[b] + 1) / static_cast<double>(text.size() + bytes);
  for (size_t i = 1; i < text.size(); ++i) {
    int64_t& pair = pairs_[text[i - 1] * bytes + text[i]];
    if (pair++ == 0) ++followers_[text[i - 1]];
    ++before_[text[i - 1]];
  }
}

double Bigram::probability(uint8_t before, uint8_t next) const {
  const auto different = static_cast<double>(followers_[before]);
  const auto count = static_cast<double>(before_[before]);
  if (count == 0) return single_[next];
  return (static_cast<double>(pairs_[before * bytes + next]) + different * single_[next]) /
         (count + different);
}

double Bigram::loss(std::span<const uint8_t> text) const {
  if (text.size() < 2) return 0;
  double sum = 0;
  for (size_t i = 1; i < text.size(); ++i) sum -= std::log(probability(text[i - 1], text[i]));
  return sum / static_cast<double>(text.size() - 1);
}

}  // namespace bs::example
