#include <bs/kernels/adamw_step.h>
#include <bs/kernels/cpu/clip.h>
#include <bs/kernels/cpu/pieces.h>
#include <bs/kernels/cpu/rows.h>

namespace bs::cpu {

namespace {

template <class W>
void step_row(const AdamWStep<W>& step, W clip, const W* g, W* w, W* m, W* v, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) step(w[i], clip * g[i], m[i], v[i]);
}

template <class T>
void step_piece(const AdamWParameter& p, const Piece& piece, const AdamWStep<Wide<T>>& step,
                Wide<T> clip) {
  using W = Wide<T>;
  const int64_t n = piece.end - piece.begin;
  T* value = p.value.data<T>() + piece.begin;
  W* m = p.first_moment.data<W>() + piece.begin;
  W* v = p.second_moment.data<W>() + piece.begin;
  RowBuffer<T> gradient(n), weight(n);
  const W* g = gradient.read(p.gradient.data<T>() + piece.begin, n);
  if (p.master.defined()) {
    W* w = p.master.data<W>() + piece.begin;
    step_row(step, clip, g, w, m, v, n);
    if constexpr (sizeof(T) == 2) narrow(n, w, value);
  } else {
    weight.read(value, n);
    step_row(step, clip, g, weight.target(value), m, v, n);
    weight.write(value, n);
  }
}

}  // namespace

void adamw(std::span<const AdamWParameter> parameters, int64_t step, const AdamWOptions& options,
           const GradientClip& clip, const Tensor& numbers, Stream) {
  AdamWStep<float> in_float(step, options);
  AdamWStep<double> in_double(step, options);
  const double* const given = numbers.defined() ? numbers.data<double>() : nullptr;
  in_float.set(given);
  in_double.set(given);
  const ClipView clip_by = view_of(clip);
  if (clip_by.skips()) return;
  const double factor = clip_by.factor();
  const auto pieces =
      pieces_of(parameters.size(), [&](size_t i) { return parameters[i].value.numel(); });
  for_each_piece(pieces, [&](const Piece& piece, int64_t) {
    const AdamWParameter& p = parameters[piece.tensor];
    visit_floating("adamw", p.value.dtype(), [&]<class T>(Type<T>) {
      if constexpr (std::is_same_v<T, double>) {
        step_piece<T>(p, piece, in_double, factor);
      } else {
        step_piece<T>(p, piece, in_float, static_cast<float>(factor));
      }
    });
  });
}

}  // namespace bs::cpu
