#include <bs/kernels/cpu/random_words.h>
#include <bs/kernels/distribution.h>
#include <bs/kernels/random.h>

#include <type_traits>

namespace bs::cpu {

namespace {

/// Writes f(words, j, out) for every block j, which gives the elements out[0 .. per_block), to x.
template <int per_block, class T, class F>
void generate(T* to, int64_t n, RandomState state, F&& f) {
  for_random_words<per_block>(n, state, [&](const RandomWords& words, int64_t at, int64_t count) {
    T values[RandomWords::blocks * per_block];
    for (int64_t j = 0; j < RandomWords::blocks; ++j) f(words.word, j, values + j * per_block);
    std::copy_n(values, count, to + at);
  });
}

using Words = const uint32_t (&)[4][RandomWords::blocks];

/// Rounds a double as every twin does: to 16 bits by way of float.
template <class T>
T round_to(double value) {
  if constexpr (std::is_same_v<T, double>) {
    return value;
  } else {
    return T(static_cast<float>(value));
  }
}

template <class T>
T from_integer(int64_t value) {
  if constexpr (sizeof(T) == 2) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace

void uniform(const Tensor& x, double low, double high, RandomState state, Stream) {
  visit_floating("uniform_", x.dtype(), [&]<class T>(Type<T>) {
    constexpr int digits = precision(dtype_of<T>);
    const double range = high - low;
    const T first = round_to<T>(low);
    const auto limit = static_cast<double>(round_to<T>(high));
    const auto value = [=](uint64_t bits) {
      const T v = round_to<T>(std::fma(range, unit_interval<digits>(bits), low));
      return static_cast<double>(v) < limit ? v : first;
    };
    if constexpr (sizeof(T) == 8) {
      generate<2>(x.data<T>(), x.numel(), state, [=](Words w, int64_t j, T* out) {
        for (int k = 0; k < 2; ++k) out[k] = value(join(w[2 * k][j], w[2 * k + 1][j]));
      });
    } else {
      generate<4>(x.data<T>(), x.numel(), state, [=](Words w, int64_t j, T* out) {
        for (int k = 0; k < 4; ++k) out[k] = value(join(w[k][j], 0));
      });
    }
  });
}

void normal(const Tensor& x, double mean, double deviation, RandomState state, Stream) {
  visit_floating("normal_", x.dtype(), [&]<class T>(Type<T>) {
    using W = std::conditional_t<sizeof(T) == 8, double, float>;
    const auto put = [m = static_cast<W>(mean), d = static_cast<W>(deviation)](Pair<W> p, T* out) {
      out[0] = T(std::fma(d, p.first, m));
      out[1] = T(std::fma(d, p.second, m));
    };
    if constexpr (sizeof(T) == 8) {
      generate<2>(x.data<T>(), x.numel(), state, [=](Words w, int64_t j, T* out) {
        put(normal_pair(join(w[0][j], w[1][j]), join(w[2][j], w[3][j])), out);
      });
    } else {
      generate<4>(x.data<T>(), x.numel(), state, [=](Words w, int64_t j, T* out) {
        put(normal_pair(w[0][j], w[1][j]), out);
        put(normal_pair(w[2][j], w[3][j]), out + 2);
      });
    }
  });
}

void randint(const Tensor& x, int64_t low, uint64_t range, RandomState state, Stream) {
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    generate<2>(x.data<T>(), x.numel(), state, [=](Words w, int64_t j, T* out) {
      for (int k = 0; k < 2; ++k)
        out[k] = from_integer<T>(static_cast<int64_t>(
            static_cast<uint64_t>(low) + below(join(w[2 * k][j], w[2 * k + 1][j]), range)));
    });
  });
}

void bernoulli(const Tensor& x, double p, RandomState state, Stream) {
  const uint64_t limit = threshold(p);
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    generate<4>(x.data<T>(), x.numel(), state, [=](Words w, int64_t j, T* out) {
      for (int k = 0; k < 4; ++k) out[k] = from_integer<T>(w[k][j] < limit);
    });
  });
}

}  // namespace bs::cpu
