#include <bs/kernels/cpu/clip.h>
#include <bs/kernels/cpu/pieces.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/lamb_step.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <array>

namespace bs::cpu {

namespace {

/// Sums of squares of w and of u.
struct Squares {
  double w = 0, u = 0;
};

/// A piece of one parameter, its value as rows of the type that is computed in.
template <class T>
struct Rows {
  using W = Wide<T>;
  int64_t n;
  T* value;
  const T* gradient;
  W *m, *v, *master;

  Rows(const LambParameter& p, const Piece& piece)
      : n(piece.end - piece.begin),
        value(p.value.data<T>() + piece.begin),
        gradient(p.gradient.data<T>() + piece.begin),
        m(p.first_moment.data<W>() + piece.begin),
        v(p.second_moment.data<W>() + piece.begin),
        master(p.master.defined() ? p.master.data<W>() + piece.begin : nullptr) {}
};

template <class T>
Squares step_moments(const Rows<T>& rows, const LambStep<Wide<T>>& step, Wide<T> clip) {
  using W = Wide<T>;
  PieceBuffer<T> gradient, weight;
  const W* g = gradient.read(rows.gradient, rows.n);
  const W* w = rows.master ? rows.master : weight.read(rows.value, rows.n);
  W *m = rows.m, *v = rows.v;
  double w_squares = 0, u_squares = 0;
#pragma omp simd reduction(+ : w_squares, u_squares)
  for (int64_t i = 0; i < rows.n; ++i) {
    step.moments(clip * g[i], m[i], v[i]);
    const auto u = static_cast<double>(step.direction(w[i], m[i], v[i]));
    w_squares += static_cast<double>(w[i]) * static_cast<double>(w[i]);
    u_squares += u * u;
  }
  return {w_squares, u_squares};
}

template <class T>
void step_weights(const Rows<T>& rows, const LambStep<Wide<T>>& step, Wide<T> length) {
  using W = Wide<T>;
  const W *m = rows.m, *v = rows.v;
  const auto walk = [&](W* w) {
#pragma omp simd
    for (int64_t i = 0; i < rows.n; ++i) w[i] -= length * step.direction(w[i], m[i], v[i]);
  };
  if (rows.master) {
    walk(rows.master);
    if constexpr (sizeof(T) == 2) narrow(rows.n, rows.master, rows.value);
  } else {
    PieceBuffer<T> weight;
    weight.read(rows.value, rows.n);
    walk(weight.target(rows.value));
    weight.write(rows.value, rows.n);
  }
}

/// One step of a parameter. Its sums need no memory, which could fail to be there when other
/// parameters have been stepped. Pieces are summed by the lot, always in their order.
template <class T>
void step_parameter(const LambParameter& p, const LambStep<Wide<T>>& step, Wide<T> clip) {
  constexpr int64_t lot = 1024;
  std::array<Squares, lot> partial;
  const int64_t n = p.value.numel(), pieces = ceil_div(n, piece_size);
  const auto visit = [&](int64_t first, int64_t count, auto&& body) {
    parallel_for(count, elementwise_grain / piece_size, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = (first + i) * piece_size;
        body(Rows<T>(p, Piece{0, at, std::min(at + piece_size, n)}), i);
      }
    });
  };
  Squares total;
  for (int64_t first = 0; first < pieces; first += lot) {
    const int64_t count = std::min(lot, pieces - first);
    visit(first, count, [&](const Rows<T>& rows, int64_t i) {
      partial[static_cast<size_t>(i)] = step_moments(rows, step, clip);
    });
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      total.w += partial[i].w;
      total.u += partial[i].u;
    }
  }
  const Wide<T> length = step.length(total.w, total.u);
  visit(0, pieces, [&](const Rows<T>& rows, int64_t) { step_weights(rows, step, length); });
}

}  // namespace

void lamb(std::span<const LambParameter> parameters, int64_t step, const LambOptions& options,
          const GradientClip& clip, const Tensor& numbers, Stream) {
  const double* const given = numbers.defined() ? numbers.data<double>() : nullptr;
  const ClipView clip_by = view_of(clip);
  if (clip_by.skips()) return;
  for (const LambParameter& p : parameters)
    visit_floating("lamb", p.value.dtype(), [&]<class T>(Type<T>) {
      LambStep<Wide<T>> with(step, options);
      with.set(given);
      step_parameter<T>(p, with, static_cast<Wide<T>>(clip_by.factor()));
    });
}

}  // namespace bs::cpu
