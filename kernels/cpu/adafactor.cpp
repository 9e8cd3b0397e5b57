#include <bs/kernels/adafactor_step.h>
#include <bs/kernels/cpu/clip.h>
#include <bs/kernels/cpu/pieces.h>

#include <algorithm>
#include <array>

namespace bs::cpu {

namespace {

// A step needs no memory, which could fail to be there when other parameters have been stepped.
// Columns are summed by strips, a parameter's squares by lots, in an order that the shape sets.

constexpr int64_t strip = 128;  ///< columns that are summed together

/// A parameter as its matrices, with the addresses of all that a step moves.
template <class T>
struct Matrices : Factored {
  using W = Wide<T>;
  T* value;
  const T* gradient;
  W *row, *column, *master;
  W clip;

  Matrices(const AdafactorParameter& p, W factor)
      : Factored(p.value.shape()),
        value(p.value.data<T>()),
        gradient(p.gradient.data<T>()),
        row(has_rows ? p.row_variance.data<W>() : nullptr),
        column(column_variance(p).template data<W>()),
        master(p.master.defined() ? p.master.data<W>() : nullptr),
        clip(factor) {}
};

/// Moves the variances of rows on.
template <class T>
void move_rows(const Matrices<T>& p, const AdafactorStep<Wide<T>>& step) {
  using W = Wide<T>;
  const int64_t n = p.columns;
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / n);
  parallel_for(p.matrices * p.rows, grain, [&](int64_t begin, int64_t end) {
    PieceBuffer<T> buffer;
    for (int64_t r = begin; r < end; ++r) {
      W squares = 0;
      for (int64_t at = 0; at < n; at += piece_size) {
        const int64_t count = std::min(piece_size, n - at);
        const W* g = buffer.read(p.gradient + r * n + at, count);
        squares += sum_of<W>(count, [&](int64_t i) { return p.clip * g[i] * (p.clip * g[i]); });
      }
      p.row[r] = step.moved(p.row[r], squares / static_cast<W>(n));
    }
  });
}

/// The same of columns.
template <class T>
void move_columns(const Matrices<T>& p, const AdafactorStep<Wide<T>>& step) {
  using W = Wide<T>;
  const int64_t n = p.columns, strips = ceil_div(n, strip);
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / (p.rows * strip));
  parallel_for(p.matrices * strips, grain, [&](int64_t begin, int64_t end) {
    PieceBuffer<T> buffer;
    for (int64_t s = begin; s < end; ++s) {
      const int64_t matrix = s / strips, first = s % strips * strip;
      const int64_t count = std::min(strip, n - first);
      std::array<double, strip> squares{};
      for (int64_t r = 0; r < p.rows; ++r) {
        const W* g = buffer.read(p.gradient + (matrix * p.rows + r) * n + first, count);
        for (int64_t i = 0; i < count; ++i) {
          const W x = p.clip * g[i];
          squares[static_cast<size_t>(i)] += static_cast<double>(x * x);
        }
      }
      W* const column = p.column + matrix * n + first;
      for (int64_t i = 0; i < count; ++i)
        column[i] = step.moved(column[i], static_cast<W>(squares[static_cast<size_t>(i)] /
                                                         static_cast<double>(p.rows)));
    }
  });
}

/// Neighbours in one row, and what their variances are the products of.
template <class W>
struct Segment {
  int64_t at, n;  ///< of the parameter's elements
  W scale;
  const W* column;

  W direction(const AdafactorStep<W>& step, W g, int64_t i) const {
    return step.direction(g, scale * column[i]);
  }
};

/// Rows, or pieces of a long one, that are a unit of work.
struct Units {
  int64_t pieces, rows_each, count;

  explicit Units(const Factored& p)
      : pieces(ceil_div(p.columns, piece_size)),
        rows_each(std::max<int64_t>(1, piece_size / p.columns)),
        count(ceil_div(p.matrices * p.rows, rows_each) * pieces) {}
};

/// Calls body(segment, unit - first) for the segments of units [first, last).
template <class T, class Body>
void for_each_segment(const Matrices<T>& p, const AdafactorStep<Wide<T>>& step, int64_t first,
                      int64_t last, Body&& body) {
  using W = Wide<T>;
  const Units units(p);
  parallel_for(last - first, elementwise_grain / piece_size, [&](int64_t begin, int64_t end) {
    int64_t known = -1;
    W mean = 0;  // of the rows' variances of matrix `known`
    for (int64_t u = first + begin; u < first + end; ++u) {
      const int64_t row = u / units.pieces * units.rows_each, at = u % units.pieces * piece_size;
      const int64_t rows_end = std::min(row + units.rows_each, p.matrices * p.rows);
      for (int64_t r = row; r < rows_end; ++r) {
        const int64_t matrix = r / p.rows;
        if (p.has_rows && matrix != known) {
          const W* const variances = p.row + matrix * p.rows;
          mean =
              sum_of<W>(p.rows, [=](int64_t i) { return variances[i]; }) / static_cast<W>(p.rows);
          known = matrix;
        }
        const W scale = p.has_rows ? step.row_scale(p.row[r], mean) : W(1);
        body(Segment<W>{r * p.columns + at, std::min(piece_size, p.columns - at), scale,
                        p.column + matrix * p.columns + at},
             u - first);
      }
    }
  });
}

/// Sums of squares of w and of u.
struct Squares {
  double w = 0, u = 0;
};

template <class T>
Squares squares_of(const Matrices<T>& p, const AdafactorStep<Wide<T>>& step) {
  using W = Wide<T>;
  constexpr int64_t lot = 1024;
  std::array<Squares, lot> partial;
  const int64_t units = Units(p).count;
  Squares total;
  for (int64_t first = 0; first < units; first += lot) {
    partial.fill({});
    const int64_t last = std::min(first + lot, units);
    for_each_segment(p, step, first, last, [&](const Segment<W>& s, int64_t unit) {
      PieceBuffer<T> gradient, weight;
      const W* g = gradient.read(p.gradient + s.at, s.n);
      const W* w = p.master ? p.master + s.at : weight.read(p.value + s.at, s.n);
      double w_squares = 0, u_squares = 0;
#pragma omp simd reduction(+ : w_squares, u_squares)
      for (int64_t i = 0; i < s.n; ++i) {
        const auto u = static_cast<double>(s.direction(step, p.clip * g[i], i));
        w_squares += static_cast<double>(w[i]) * static_cast<double>(w[i]);
        u_squares += u * u;
      }
      partial[static_cast<size_t>(unit)].w += w_squares;
      partial[static_cast<size_t>(unit)].u += u_squares;
    });
    for (int64_t i = 0; i < last - first; ++i) {
      total.w += partial[static_cast<size_t>(i)].w;
      total.u += partial[static_cast<size_t>(i)].u;
    }
  }
  return total;
}

template <class T>
void step_weights(const Matrices<T>& p, const AdafactorStep<Wide<T>>& step, Wide<T> length) {
  using W = Wide<T>;
  for_each_segment(p, step, 0, Units(p).count, [&](const Segment<W>& s, int64_t) {
    PieceBuffer<T> gradient, weight;
    const W* g = gradient.read(p.gradient + s.at, s.n);
    const auto walk = [&](W* w) {
#pragma omp simd
      for (int64_t i = 0; i < s.n; ++i)
        w[i] = step.stepped(w[i], s.direction(step, p.clip * g[i], i), length);
    };
    T* const value = p.value + s.at;
    if (p.master) {
      walk(p.master + s.at);
      if constexpr (sizeof(T) == 2) narrow(s.n, p.master + s.at, value);
    } else {
      weight.read(value, s.n);
      walk(weight.target(value));
      weight.write(value, s.n);
    }
  });
}

}  // namespace

void adafactor(std::span<const AdafactorParameter> parameters, int64_t step,
               const AdafactorOptions& options, const GradientClip& clip, const Tensor& numbers,
               Stream) {
  const ClipView clip_by = view_of(clip);
  if (clip_by.skips()) return;
  for (const AdafactorParameter& parameter : parameters)
    visit_floating("adafactor", parameter.value.dtype(), [&]<class T>(Type<T>) {
      AdafactorStep<Wide<T>> with(step, options);
      with.set(numbers.defined() ? numbers.data<double>() : nullptr);
      const Matrices<T> p(parameter, static_cast<Wide<T>>(clip_by.factor()));
      if (p.has_rows) move_rows(p, with);
      move_columns(p, with);
      const Squares squares = squares_of(p, with);
      step_weights(p, with, with.length(squares.w, squares.u, parameter.value.numel()));
    });
}

}  // namespace bs::cpu
