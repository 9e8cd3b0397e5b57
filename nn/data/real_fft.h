#pragma once
/** @file The discrete Fourier transform of real sequences. */
#include <complex>
#include <cstdint>
#include <span>
#include <vector>

namespace bs::data {

/** @brief X_k = sum_n x_n exp(-2 pi i k n / N) for k = 0 .. N/2, N a power of two from 2 on.
 *
 *  The N reals are transformed as N/2 complex numbers (Cooley, Tukey, 1965), which costs
 *  about 2.5 N log2 N operations in double. One object a thread: it holds the scratch memory. */
class RealFft {
 public:
  /** @throws Error unless `size` is a power of two, at least 2. */
  explicit RealFft(int64_t size);
  int64_t size() const { return size_; }
  /** @brief Transforms `x`, which may be shorter than N: then zeros follow it.
   *  @return N/2 + 1 values, valid until the next call
   *  @throws Error when x is longer than N. */
  std::span<const std::complex<double>> operator()(std::span<const double> x);

 private:
  using Complex = std::complex<double>;
  void transform_half();
  int64_t size_;
  std::vector<Complex> half_;     ///< the N/2 complex numbers, transformed in place
  std::vector<Complex> turns_;    ///< exp(-2 pi i k / N) for k = 0 .. N/2
  std::vector<size_t> reversed_;  ///< bit-reversed positions of the N/2 numbers
  std::vector<Complex> spectrum_;
};

}  // namespace bs::data
