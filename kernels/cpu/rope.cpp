#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/rope.h>

#include <type_traits>

namespace bs::cpu {

namespace {

/// Where a pair's two elements lie in a row.
struct Pairs {
  int64_t step, apart;
};

template <class T, class W>
void turn_row(const T* x, const W* cosines, const W* sines, int64_t pairs, int64_t n, bool inverse,
              const Pairs& at, T* y) {
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t e = i * at.step;
    const W a = static_cast<W>(x[e]), b = static_cast<W>(x[e + at.apart]);
    const W c = cosines[i], s = inverse ? -sines[i] : sines[i];
    y[e] = T(a * c - b * s);
    y[e + at.apart] = T(b * c + a * s);
  }
  for (int64_t e = 2 * pairs; e < n; ++e) y[e] = x[e];
}

}  // namespace

void rope(const Tensor& x, const Tensor& table, const Tensor& y, const RopeOptions& options,
          Stream) {
  const int64_t heads = x.size(1), length = x.size(2), n = x.size(3), pairs = table.size(2);
  const Pairs at = options.interleaved ? Pairs{2, 1} : Pairs{1, pairs};
  const int64_t rows = x.size(0) * length * heads;
  visit_floating("rope", x.dtype(), [&]<class T>(Type<T>) {
    using W = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const T* const from = x.data<T>();
    const W* const turns = table.data<W>();
    T* const to = y.data<T>();
    const auto row_of = [&](const Tensor& t, int64_t row) {
      return row / heads / length * t.strides()[0] + row % heads * t.strides()[1] +
             row / heads % length * t.strides()[2];
    };
    parallel_for(rows, elementwise_grain / n + 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const W* const cosines = turns + row / heads % length * 2 * pairs;
        turn_row(from + row_of(x, row), cosines, cosines + pairs, pairs, n, options.inverse, at,
                 to + row_of(y, row));
      }
    });
  });
}

}  // namespace bs::cpu
