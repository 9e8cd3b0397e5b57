#include <bs/kernels/cpu/clip.h>
#include <bs/kernels/cpu/pieces.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/lamb_step.h>

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

}  // namespace

void lamb(std::span<const LambParameter> parameters, int64_t step, const LambOptions& options,
          const GradientClip& clip, const Tensor& numbers, Stream) {
  const double* const given = numbers.defined() ? numbers.data<double>() : nullptr;
  const ClipView clip_by = view_of(clip);
  if (clip_by.skips()) return;
  const auto pieces =
      pieces_of(parameters.size(), [&](size_t i) { return parameters[i].value.numel(); });
  std::vector<Squares> partial(pieces.size()), total(parameters.size());
  const auto visit = [&](auto&& body) {
    for_each_piece(pieces, [&](const Piece& piece, int64_t index) {
      const LambParameter& p = parameters[piece.tensor];
      visit_floating("lamb", p.value.dtype(), [&]<class T>(Type<T>) {
        LambStep<Wide<T>> with(step, options);
        with.set(given);
        body(Rows<T>(p, piece), with, piece.tensor, static_cast<size_t>(index));
      });
    });
  };
  visit([&]<class T>(const Rows<T>& rows, const LambStep<Wide<T>>& with, size_t, size_t index) {
    partial[index] = step_moments(rows, with, static_cast<Wide<T>>(clip_by.factor()));
  });
  for (size_t i = 0; i < pieces.size(); ++i) {
    total[pieces[i].tensor].w += partial[i].w;
    total[pieces[i].tensor].u += partial[i].u;
  }
  visit([&]<class T>(const Rows<T>& rows, const LambStep<Wide<T>>& with, size_t tensor, size_t) {
    step_weights(rows, with, with.length(total[tensor].w, total[tensor].u));
  });
}

}  // namespace bs::cpu
