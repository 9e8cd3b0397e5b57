#include <bs/kernels/conv2d_operation.h>
#include <bs/kernels/cpu/gemm.h>
#include <bs/kernels/cpu/gemm_epilogue.h>
#include <bs/kernels/cpu/gemm_rounding.h>
#include <bs/kernels/cpu/parallel.h>

#include <algorithm>
#include <vector>

namespace bs::cpu {

namespace {

constexpr int64_t some_rows = 256;  // of pixels that are gathered at a time

using Numbers = std::vector<double>;

Numbers zeros_of(int64_t count) { return Numbers(static_cast<size_t>(count)); }

/// The elements of a dense operand, as the multiplier gets them.
Numbers read(const MathInstruction& math, const Tensor& t) {
  Numbers out = zeros_of(t.numel());
  visit_floating("conv2d_operation", t.dtype(), [&]<class T>(Type<T>) {
    const T* from = t.data<T>();
    for (int64_t i = 0; i < t.numel(); ++i)
      out[static_cast<size_t>(i)] = multiplied(math, static_cast<double>(from[i]));
  });
  return out;
}

/// Where tap (r, s) of the pixel (h, w) reads an image of height x width pixels; -1: outside.
using Place = int64_t (*)(const Conv2dProblem& p, int64_t h, int64_t w, int64_t r, int64_t s);

int64_t input_place(const Conv2dProblem& p, int64_t h, int64_t w, int64_t r, int64_t s) {
  const int64_t y = h * p.stride.h + r * p.dilation.h - p.padding.top;
  const int64_t x = w * p.stride.w + s * p.dilation.w - p.padding.left;
  return y >= 0 && x >= 0 && y < p.h && x < p.w ? y * p.w + x : -1;
}

int64_t output_place(const Conv2dProblem& p, int64_t h, int64_t w, int64_t r, int64_t s) {
  const int64_t y = h + p.padding.top - r * p.dilation.h;
  const int64_t x = w + p.padding.left - s * p.dilation.w;
  if (y < 0 || x < 0 || y % p.stride.h != 0 || x % p.stride.w != 0) return -1;
  const int64_t i = y / p.stride.h, j = x / p.stride.w;
  return i < p.p && j < p.q ? i * p.q + j : -1;
}

/// Pixels of the result, and what each sees of the image that is read.
struct Gather {
  const Conv2dProblem& p;
  Place place;
  int64_t height, width;  // of the result
  int64_t pixels;         // of an image that is read
  int64_t channels;

  int64_t depth() const { return p.r * p.s * channels; }
  /// Rows [first, first + count) of pixels by taps and channels.
  Numbers rows(const Numbers& image, int64_t first, int64_t count) const {
    Numbers out = zeros_of(count * depth());
    auto to = out.begin();
    for (int64_t row = first; row < first + count; ++row) {
      const int64_t n = row / (height * width), h = row / width % height, w = row % width;
      for (int64_t tap = 0; tap < p.r * p.s; ++tap, to += channels) {
        const int64_t at = place(p, h, w, tap / p.s, tap % p.s);
        if (at >= 0) std::copy_n(image.begin() + (n * pixels + at) * channels, channels, to);
      }
    }
    return out;
  }
};

Gather inputs_of(const Conv2dProblem& p) { return {p, input_place, p.p, p.q, p.h * p.w, p.c}; }
Gather outputs_of(const Conv2dProblem& p) { return {p, output_place, p.h, p.w, p.p * p.q, p.k}; }

/// Filters [k][tap][c] as taps and k by c: what gradients of pixels are multiplied by.
Numbers turned(const Conv2dProblem& p, const Numbers& filters) {
  const int64_t taps = p.r * p.s;
  Numbers out = zeros_of(p.k * taps * p.c);
  for (int64_t k = 0; k < p.k; ++k)
    for (int64_t tap = 0; tap < taps; ++tap)
      std::copy_n(filters.begin() + (k * taps + tap) * p.c, p.c,
                  out.begin() + (tap * p.k + k) * p.c);
  return out;
}

/// Applies the epilogue to rows of sums.
template <class W>
void finish(const Conv2dLaunch& launch, int64_t first, int64_t columns, Numbers& sums) {
  const Conv2dDescription& d = launch.operation->description();
  for (double& sum : sums) sum = accumulated(d.tile.math, sum);
  EpilogueRows<W> rows(d.epilogue, launch.operands, launch.scalars);
  const int64_t count = static_cast<int64_t>(sums.size()) / columns;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < columns; j += EpilogueRows<W>::most) {
      const EpiloguePlace at{0, first + i, j};
      rows.run(at, at, std::min(columns - j, EpilogueRows<W>::most),
               &sums[static_cast<size_t>(i * columns + j)]);
    }
}

/// Images of results: products of what their pixels see and the filters.
template <class W>
void run_pixels(const Conv2dLaunch& launch) {
  const MathInstruction& math = launch.operation->description().tile.math;
  const Conv2dProblem& p = launch.problem;
  const bool forward = launch.operation->description().kind == Conv2dKind::fprop;
  const Gather gather = forward ? inputs_of(p) : outputs_of(p);
  const Numbers image = read(math, launch.a), filters = read(math, launch.b);
  const Numbers b = forward ? filters : turned(p, filters);
  const int64_t columns = forward ? p.k : p.c, depth = gather.depth();
  const Matrices<const double> right = forward ? Matrices<const double>{b.data(), 0, 1, depth}
                                               : Matrices<const double>{b.data(), 0, columns};
  const int64_t rows = p.n * gather.height * gather.width;
  for (int64_t first = 0; first < rows; first += some_rows) {
    const int64_t count = std::min(some_rows, rows - first);
    const Numbers a = gather.rows(image, first, count);
    Numbers sums = zeros_of(count * columns);
    gemm<double, double, double>({.m = count, .n = columns, .k = depth}, {a.data(), 0, depth},
                                 right, 0.0, {sums.data(), 0, columns});
    finish<W>(launch, first, columns, sums);
  }
}

/// Gradients of filters: sums over pixels.
template <class W>
void run_filters(const Conv2dLaunch& launch) {
  const MathInstruction& math = launch.operation->description().tile.math;
  const Conv2dProblem& p = launch.problem;
  const Gather gather = inputs_of(p);
  const Numbers dy = read(math, launch.a), x = read(math, launch.b);
  const int64_t columns = gather.depth(), rows = p.n * p.p * p.q;
  Numbers sums = zeros_of(p.k * columns);
  for (int64_t first = 0; first < rows; first += some_rows) {
    const int64_t count = std::min(some_rows, rows - first);
    const Numbers seen = gather.rows(x, first, count);
    gemm<double, double, double>({.m = p.k, .n = columns, .k = count},
                                 {dy.data() + first * p.k, 0, 1, p.k}, {seen.data(), 0, columns},
                                 1.0, {sums.data(), 0, columns});
  }
  finish<W>(launch, 0, columns, sums);
}

template <class W>
void run(const Conv2dLaunch& launch) {
  if (launch.operation->description().kind == Conv2dKind::wgrad) {
    run_filters<W>(launch);
  } else {
    run_pixels<W>(launch);
  }
}

}  // namespace

void conv2d_operation(const Conv2dLaunch& launch, Stream) {
  if (launch.operation->description().tile.math.accumulator == Element::f64) {
    run<double>(launch);
  } else {
    run<float>(launch);
  }
}

}  // namespace bs::cpu
