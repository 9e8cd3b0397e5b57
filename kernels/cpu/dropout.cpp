#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/cpu/random_words.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/distribution.h>
#include <bs/kernels/dropout.h>

#include <array>

namespace bs::cpu {

namespace {

/// A function of its own: of numbers that a lambda holds g++ makes no vectors.
template <class W>
void drop(int64_t n, const uint32_t* word, uint32_t limit, const W* x, W scale, W* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const W kept = x[i] * scale;
    y[i] = word[i] < limit ? W{0} : kept;
  }
}

}  // namespace

void dropout(const Tensor& x, const Tensor& y, double p, RandomState state, int64_t first, Stream) {
  const auto limit = static_cast<uint32_t>(threshold(p));  // p < 1
  visit_floating("dropout", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const auto scale = static_cast<W>(1 / (1 - p));
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const auto piece = [=](const RandomWords& words, int64_t at, int64_t count) {
      constexpr size_t most = 4 * RandomWords::blocks;
      uint32_t word[most];
      words.in_order(word);
      RowBuffer<T, std::array<W, most>> in, out;  // an allocation takes longer than the rest
      const W* values = in.read(from + at, count);
      W* kept = out.target(to + at);
      drop(count, word, limit, values, scale, kept);
      out.write(to + at, count);
    };
    for_random_words<4>(x.numel(), state, piece, first / 4);
  });
}

void dropout2d(const Tensor& x, const Tensor& factor, const Tensor& y, Stream) {
  const auto f = []<class W>(W v, W s) { return s == 0 ? W(0) : v * s; };
  visit_wide("dropout2d", y.dtype(), [&]<class W>(Type<W>) { map<W, W, W>(f, y, x, factor); });
}

// The passes follow one another: they are bound by arithmetic here.

void activation_dropout(const Tensor& x, const Tensor& y, Activation f, double p, RandomState state,
                        Stream stream) {
  if (f == Activation::relu) {
    relu(x, y, stream);
  } else {
    gelu(x, y, bs::detail::gelu_form(f), stream);
  }
  dropout(y, y, p, state, 0, stream);
}

void activation_dropout_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Activation f,
                                 double p, RandomState state, Stream stream) {
  // The slope first: dy / (1 - p) may be beyond f16 where dx is not.
  if (f == Activation::relu) {
    relu_backward(x, dy, dx, stream);
  } else {
    gelu_backward(x, dy, dx, bs::detail::gelu_form(f), stream);
  }
  dropout(dx, dx, p, state, 0, stream);
}

}  // namespace bs::cpu
