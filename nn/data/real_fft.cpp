#include <bs/nn/data/real_fft.h>

#include <bs/lib/check.h>

#include <algorithm>
#include <bit>
#include <numbers>

namespace bs::data {

RealFft::RealFft(int64_t size) : size_(size) {
  BS_CHECK(size >= 2 && std::has_single_bit(static_cast<uint64_t>(size)),
           "fft: {} is no power of two from 2 on", size);
  const auto half = static_cast<size_t>(size / 2);
  half_.resize(half);
  spectrum_.resize(half + 1);
  for (size_t k = 0; k <= half; ++k)
    turns_.push_back(std::polar(
        1.0, -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(size)));
  reversed_.assign(half, 0);
  for (size_t i = 1; i < half; ++i)
    reversed_[i] = reversed_[i / 2] / 2 + (i % 2 != 0 ? half / 2 : 0);
}

void RealFft::transform_half() {
  const size_t count = half_.size();
  for (size_t i = 0; i < count; ++i)
    if (i < reversed_[i]) std::swap(half_[i], half_[reversed_[i]]);
  for (size_t length = 2; length <= count; length *= 2) {
    const size_t stride = static_cast<size_t>(size_) / length;  // of the turns by 2 pi / length
    for (size_t begin = 0; begin < count; begin += length)
      for (size_t k = 0; k < length / 2; ++k) {
        Complex& a = half_[begin + k];
        Complex& b = half_[begin + k + length / 2];
        const Complex& w = turns_[k * stride];
        // Written out: operator* of std::complex checks for infinities.
        const Complex t(b.real() * w.real() - b.imag() * w.imag(),
                        b.real() * w.imag() + b.imag() * w.real());
        b = a - t;
        a += t;
      }
  }
}

std::span<const std::complex<double>> RealFft::operator()(std::span<const double> x) {
  BS_CHECK(static_cast<int64_t>(x.size()) <= size_, "fft: {} values for a size of {}", x.size(),
           size_);
  const auto at = [&](size_t i) { return i < x.size() ? x[i] : 0.0; };
  const size_t count = half_.size();
  for (size_t i = 0; i < count; ++i) half_[i] = {at(2 * i), at(2 * i + 1)};
  transform_half();
  // z_n = x_2n + i x_2n+1 gives Z; E and O of the even and the odd values follow from its symmetry.
  for (size_t k = 0; k <= count; ++k) {
    const Complex z = half_[k % count], mirrored = std::conj(half_[(count - k) % count]);
    const Complex even = 0.5 * (z + mirrored), odd = Complex(0, -0.5) * (z - mirrored);
    spectrum_[k] = even + turns_[k] * odd;
  }
  return spectrum_;
}

}  // namespace bs::data
