#pragma once
/** @file What convolutions do with their sums on the CPU. */
#include <bs/kernels/conv2d.h>
#include <bs/kernels/cpu/activate.h>
#include <bs/kernels/cpu/convert.h>

namespace bs::cpu {

/** @brief The epilogue of a convolution, computed in W. */
template <class W, class T>
class ConvEpilogue {
 public:
  explicit ConvEpilogue(const Conv2dEpilogue& e)
      : bias_(e.bias.defined() ? e.bias.data<T>() : nullptr),
        residual_(e.residual.defined() ? e.residual.data<T>() : nullptr),
        activation_(e.activation) {
    if (residual_) strides_ = Strides4(e.residual);
  }

  bool is_identity() const { return !bias_ && !residual_ && activation_ == Activation::none; }

  /// The sums of k channels from `channel` on, of pixel (n, h, w).
  void channels(int64_t channel, int64_t k, int64_t n, int64_t h, int64_t w, W* sums) const {
    for (int64_t j = 0; bias_ && j < k; ++j) sums[j] += convert<W>(bias_[channel + j]);
    if (residual_) {
      const T* more = residual_ + at(channel, n, h, w);
      for (int64_t j = 0; j < k; ++j) sums[j] += convert<W>(more[j * strides_.c]);
    }
    activate(activation_, sums, k);
  }

  /// The sums of one channel and m neighbouring pixels, of which number i is `place(i)`: n, h, w.
  template <class Place>
  void pixels(int64_t channel, int64_t m, const Place& place, W* sums) const {
    const W bias = bias_ ? convert<W>(bias_[channel]) : W(0);
    for (int64_t i = 0; bias_ && i < m; ++i) sums[i] += bias;
    for (int64_t i = 0; residual_ && i < m; ++i) {
      const auto [n, h, w] = place(i);
      sums[i] += convert<W>(residual_[at(channel, n, h, w)]);
    }
    activate(activation_, sums, m);
  }

 private:
  int64_t at(int64_t c, int64_t n, int64_t h, int64_t w) const {
    return c * strides_.c + n * strides_.n + h * strides_.h + w * strides_.w;
  }

  const T* bias_;
  const T* residual_;
  Strides4 strides_;
  Activation activation_;
};

/** @brief Rounds k sums to neighbours `stride` apart. */
template <class W, class T>
void store_line(int64_t k, const W* sums, T* out, int64_t stride) {
  if (stride == 1) return narrow(k, sums, out);
  for (int64_t j = 0; j < k; ++j) out[j * stride] = convert<T>(sums[j]);
}

}  // namespace bs::cpu
