#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/rope.h>

#include <algorithm>
#include <type_traits>

namespace bs::cpu {

namespace {

/// Turns the pairs of a row, whose elements lie `apart`; the pairs are `step` apart.
template <class W, class Step>
void turn_pairs(const W* x, const W* cosines, const W* sines, W sign, int64_t pairs, Step step,
                int64_t apart, W* y) {
#pragma omp simd
  for (int64_t i = 0; i < pairs; ++i) {
    const W a = x[i * step], b = x[i * step + apart];
    const W c = cosines[i], s = sign * sines[i];
    y[i * step] = a * c - b * s;
    y[i * step + apart] = b * c + a * s;
  }
}

/// One row of n elements, those behind the pairs included.
template <class W>
void turn_row(const W* x, const W* table, int64_t pairs, int64_t n, const RopeOptions& options,
              W* y) {
  const W sign = options.inverse ? W{-1} : W{1};
  if (options.interleaved) {
    turn_pairs(x, table, table + pairs, sign, pairs, std::integral_constant<int64_t, 2>{}, 1, y);
  } else {
    turn_pairs(x, table, table + pairs, sign, pairs, std::integral_constant<int64_t, 1>{}, pairs,
               y);
  }
  std::copy(x + 2 * pairs, x + n, y + 2 * pairs);
}

}  // namespace

void rope(const Tensor& x, const Tensor& table, const Tensor& y, const RopeOptions& options,
          Stream) {
  const int64_t heads = x.size(1), length = x.size(2), n = x.size(3), pairs = table.size(2);
  visit_floating("rope", x.dtype(), [&]<class T>(Type<T>) {
    const auto* const turns = table.data<Wide<T>>();
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / (heads * n));
    parallel_for(x.size(0) * length, grain, [&](int64_t begin, int64_t end) {
      RowBuffer<T> in(n), out(n);
      for (int64_t at = begin; at < end; ++at) {
        const int64_t sequence = at / length, place = at % length;
        const T* from = x.data<T>() + sequence * x.strides()[0] + place * x.strides()[2];
        T* to = y.data<T>() + sequence * y.strides()[0] + place * y.strides()[2];
        for (int64_t head = 0; head < heads; ++head) {
          turn_row(in.read(from, n), turns + place * 2 * pairs, pairs, n, options, out.target(to));
          out.write(to, n);
          from += x.strides()[1];
          to += y.strides()[1];
        }
      }
    });
  });
}

}  // namespace bs::cpu
