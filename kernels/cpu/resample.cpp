#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/resample.h>

namespace bs::cpu {

namespace {

/// Calls f(input, weight) for the inputs of an output.
template <class F>
void for_each_input(const AxisMap& map, int64_t output, F&& f) {
  const auto end = static_cast<size_t>(map.offsets()[static_cast<size_t>(output) + 1]);
  for (auto i = static_cast<size_t>(map.offsets()[static_cast<size_t>(output)]); i < end; ++i)
    f(map.from()[i], map.weights()[i]);
}

bool is_outside(const AxisMap& map, int64_t output) {
  const auto o = static_cast<size_t>(output);
  return map.offsets()[o] == map.offsets()[o + 1];
}

/// One row of outputs: the rows it comes from are added up first, whole, then their columns.
template <class T, class W = Wide<T>>
void resample_row(const ImageMap& map, int64_t p, const T* image, int64_t width, int64_t channels,
                  RowBuffer<T>& buffer, std::vector<W>& sums, W outside, W* out) {
  const int64_t outputs = map.columns.outputs();
  std::fill(sums.begin(), sums.end(), W{0});
  W* const row = sums.data();
  for_each_input(map.rows, p, [&](int64_t r, double weight) {
    const W* in = buffer.read(image + r * width * channels, width * channels);
    const auto factor = static_cast<W>(weight);
#pragma omp simd
    for (int64_t i = 0; i < width * channels; ++i) row[i] += factor * in[i];
  });
  const bool no_row = is_outside(map.rows, p);
  for (int64_t q = 0; q < outputs; ++q) {
    W* const to = out + q * channels;
    const bool none = no_row || is_outside(map.columns, q);
    std::fill_n(to, channels, none ? outside : W{0});
    if (none) continue;
    for_each_input(map.columns, q, [&](int64_t s, double weight) {
      const auto factor = static_cast<W>(weight);
      const W* from = row + s * channels;
#pragma omp simd
      for (int64_t c = 0; c < channels; ++c) to[c] += factor * from[c];
    });
  }
}

}  // namespace

void resample(const ImageMap& map, const Tensor& x, double outside, const Tensor& y, Stream) {
  visit_floating("resample", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const int64_t height = x.size(1), width = x.size(2), channels = x.size(3);
    const int64_t rows = y.size(1), size = y.size(2) * channels;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / (4 * size));
    parallel_for(y.size(0) * rows, grain, [&](int64_t begin, int64_t end) {
      RowBuffer<T> in(width * channels), out(size);
      std::vector<W> sums(static_cast<size_t>(width * channels));
      for (int64_t i = begin; i < end; ++i) {
        resample_row<T>(map, i % rows, from + i / rows * height * width * channels, width, channels,
                        in, sums, static_cast<W>(outside), out.target(to + i * size));
        out.write(to + i * size, size);
      }
    });
  });
}

}  // namespace bs::cpu
