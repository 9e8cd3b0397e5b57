#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/scan.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <array>
#include <type_traits>

namespace bs::cpu {

namespace {

/// Calls f(Type<T>{}, Type<W>{}) for floats, and for i64, which is summed as unsigned.
template <class F>
void visit(const char* op, DType dtype, F&& f) {
  if (dtype == i64) return f(Type<int64_t>{}, Type<uint64_t>{});
  visit_floating(op, dtype, [&]<class T>(Type<T>) { f(Type<T>{}, Type<Wide<T>>{}); });
}

/// What a running result of W is kept in: of floats in double, for it would stall in float where
/// terms are below its rounding.
template <class W>
using Running = std::conditional_t<std::is_floating_point_v<W>, double, W>;

/// Rows that are scanned side by side: each result waits for the one before it in its row.
constexpr int64_t abreast = 4;

template <class T, class W, class Step>
void scan_rows(const Tensor& x, const Tensor& y, W identity, bool reverse, Step step) {
  const int64_t n = x.size(1);
  const T* from = x.data<T>();
  T* to = y.data<T>();
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / n);
  parallel_for(x.size(0), grain, [&](int64_t begin, int64_t end) {
    RowBuffer<T> in(abreast * n), out(abreast * n);
    for (int64_t r = begin; r < end; r += abreast) {
      const int64_t rows = std::min(abreast, end - r);
      const auto* source = in.read(from + r * n, rows * n);
      auto* target = out.target(to + r * n);
      const auto run = [&](auto count, int64_t first) {
        std::array<W, decltype(count)::value> running;
        running.fill(identity);
        for (int64_t k = 0; k < n; ++k)
          for (size_t i = 0; i < running.size(); ++i) {
            const int64_t at = (first + static_cast<int64_t>(i)) * n + (reverse ? n - 1 - k : k);
            running[i] = step(running[i], static_cast<W>(source[at]));
            target[at] = static_cast<Wide<T>>(running[i]);
          }
      };
      if (rows == abreast) {
        run(std::integral_constant<size_t, abreast>{}, 0);
      } else {
        for (int64_t i = 0; i < rows; ++i) run(std::integral_constant<size_t, 1>{}, i);
      }
      out.write(to + r * n, rows * n);
    }
  });
}

/// Columns of matrices [n, inner], side by side.
template <class T, class W, class Step>
void scan_columns(const Tensor& x, const Tensor& y, W identity, bool reverse, Step step) {
  constexpr int64_t together = 64;
  const int64_t n = x.size(1), inner = x.size(2), groups = ceil_div(inner, together);
  const T* from = x.data<T>();
  T* to = y.data<T>();
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / (n * std::min(inner, together)));
  parallel_for(x.size(0) * groups, grain, [&](int64_t begin, int64_t end) {
    RowBuffer<T, std::array<Wide<T>, together>> in, out;
    for (int64_t g = begin; g < end; ++g) {
      const int64_t matrix = g / groups, first = g % groups * together;
      const int64_t width = std::min(together, inner - first);
      std::array<W, together> running;
      running.fill(identity);
      for (int64_t k = 0; k < n; ++k) {
        const int64_t at = (matrix * n + (reverse ? n - 1 - k : k)) * inner + first;
        const auto* source = in.read(from + at, width);
        auto* target = out.target(to + at);
        for (int64_t i = 0; i < width; ++i) {
          const auto column = static_cast<size_t>(i);
          running[column] = step(running[column], static_cast<W>(source[i]));
          target[i] = static_cast<Wide<T>>(running[column]);
        }
        out.write(to + at, width);
      }
    }
  });
}

template <class T, class W, class Step>
void scan(const Tensor& x, const Tensor& y, W identity, bool reverse, Step step) {
  if (x.size(2) == 1) {
    scan_rows<T>(x, y, identity, reverse, step);
  } else {
    scan_columns<T>(x, y, identity, reverse, step);
  }
}

/// dx of up to `abreast` rows, by `sums`, as long as they. See the front door for zeros.
template <size_t rows, class W>
void cumprod_backward_rows(const W* x, const W* dy, W* dx, W* sums, int64_t n) {
  const auto count = static_cast<int64_t>(rows);
  std::array<W, rows> running;
  running.fill(1);
  for (int64_t k = 0; k < n; ++k)
    for (size_t i = 0; i < rows; ++i) {
      const int64_t at = static_cast<int64_t>(i) * n + k;
      running[i] *= x[at];
      sums[at] = dy[at] * running[i];
    }
  running.fill(0);
  for (int64_t k = n - 1; k >= 0; --k)
    for (size_t i = 0; i < rows; ++i) {
      const int64_t at = static_cast<int64_t>(i) * n + k;
      sums[at] = running[i] += sums[at];
    }
  for (int64_t i = 0; i < count * n; ++i) dx[i] = sums[i] / x[i];
  for (int64_t i = 0; i < count; ++i) {
    const W* const row = x + i * n;
    const int64_t zero = std::find(row, row + n, W{0}) - row;
    if (zero == n) continue;
    W product = 1, at_zero = 0;
    for (int64_t k = 0; k < n; ++k) {
      if (k != zero) product *= row[k];
      if (k >= zero) at_zero += dy[i * n + k] * product;
    }
    dx[i * n + zero] = at_zero;
    std::fill(dx + i * n + zero + 1, dx + (i + 1) * n, W{0});
  }
}

}  // namespace

void cumsum(const Tensor& x, const Tensor& y, bool reverse, Stream) {
  visit("cumsum", x.dtype(), [&]<class T, class W>(Type<T>, Type<W>) {
    using R = Running<W>;
    scan<T, R>(x, y, R(0), reverse, [](R a, R b) { return a + b; });
  });
}

void cumprod(const Tensor& x, const Tensor& y, Stream) {
  visit("cumprod", x.dtype(), [&]<class T, class W>(Type<T>, Type<W>) {
    using R = Running<W>;
    scan<T, R>(x, y, R(1), false, [](R a, R b) { return a * b; });
  });
}

void cumprod_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream) {
  const int64_t n = x.size(1);
  visit_floating("cumprod_backward", x.dtype(), [&]<class T>(Type<T>) {
    const T* const factors = x.data<T>();
    const T* const slopes = dy.data<T>();
    T* const to = dx.data<T>();
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / n);
    parallel_for(x.size(0), grain, [=](int64_t begin, int64_t end) {
      RowBuffer<T> in(abreast * n), slope(abreast * n), out(abreast * n);
      LineVector<Wide<T>> sums(static_cast<size_t>(abreast * n));
      for (int64_t r = begin; r < end;) {
        const int64_t rows = end - r < abreast ? 1 : abreast, at = r * n;
        const auto* const row = in.read(factors + at, rows * n);
        const auto* const dy_row = slope.read(slopes + at, rows * n);
        auto* const dx_row = out.target(to + at);
        if (rows == abreast) {
          cumprod_backward_rows<abreast>(row, dy_row, dx_row, sums.data(), n);
        } else {
          cumprod_backward_rows<1>(row, dy_row, dx_row, sums.data(), n);
        }
        out.write(to + at, rows * n);
        r += rows;
      }
    });
  });
}

void searchsorted(const Tensor& sorted, const Tensor& values, const Tensor& y, bool right, Stream) {
  const int64_t n = sorted.size(1), m = values.size(1);
  int64_t* to = y.data<int64_t>();
  visit("searchsorted", sorted.dtype(), [&]<class T, class W>(Type<T>, Type<W>) {
    using V = std::conditional_t<std::is_integral_v<T>, T, W>;
    const T* rows = sorted.data<T>();
    const T* wanted = values.data<T>();
    parallel_for(y.numel(), elementwise_grain / 8, [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) {
        const T* row = rows + e / m * n;
        const auto value = static_cast<V>(wanted[e]);
        int64_t low = 0;
        for (int64_t high = n; low < high;) {
          const int64_t middle = (low + high) / 2;
          const auto here = static_cast<V>(row[middle]);
          const bool below = right ? here <= value : here < value;
          (below ? low : high) = below ? middle + 1 : middle;
        }
        to[e] = low;
      }
    });
  });
}

}  // namespace bs::cpu
