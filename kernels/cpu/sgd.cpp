#include <bs/kernels/cpu/clip.h>
#include <bs/kernels/cpu/pieces.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/sgd_step.h>

namespace bs::cpu {

namespace {

/// `b` is null for a parameter without momentum.
template <class W>
void step_row(const SgdStep<W>& step, W clip, const W* g, W* w, W* b, int64_t n) {
  if (!b) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) step(w[i], clip * g[i]);
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) step(w[i], clip * g[i], b[i]);
}

template <class T>
void step_piece(const SgdParameter& p, const Piece& piece, const SgdStep<Wide<T>>& step,
                Wide<T> clip) {
  using W = Wide<T>;
  const int64_t n = piece.end - piece.begin;
  T* value = p.value.data<T>() + piece.begin;
  W* b = p.momentum.defined() ? p.momentum.data<W>() + piece.begin : nullptr;
  RowBuffer<T> gradient(n), weight(n);
  const W* g = gradient.read(p.gradient.data<T>() + piece.begin, n);
  if (p.master.defined()) {
    W* w = p.master.data<W>() + piece.begin;
    step_row(step, clip, g, w, b, n);
    if constexpr (sizeof(T) == 2) narrow(n, w, value);
  } else {
    weight.read(value, n);
    step_row(step, clip, g, weight.target(value), b, n);
    weight.write(value, n);
  }
}

}  // namespace

void sgd(std::span<const SgdParameter> parameters, const SgdOptions& options,
         const GradientClip& clip, const Tensor& rate, Stream) {
  const ClipView clip_by = view_of(clip);
  if (clip_by.skips()) return;
  const double factor = clip_by.factor();
  const auto pieces =
      pieces_of(parameters.size(), [&](size_t i) { return parameters[i].value.numel(); });
  for_each_piece(pieces, [&](const Piece& piece, int64_t) {
    const SgdParameter& p = parameters[piece.tensor];
    visit_floating("sgd", p.value.dtype(), [&]<class T>(Type<T>) {
      using W = Wide<T>;
      SgdStep<W> step(options);
      step.set(rate.defined() ? rate.data<double>() : nullptr);
      step_piece<T>(p, piece, step, static_cast<W>(factor));
    });
  });
}

}  // namespace bs::cpu
