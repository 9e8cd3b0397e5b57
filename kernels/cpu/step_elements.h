#pragma once
/** @file The loop of optimisers whose rule looks at one element at a time. */
#include <bs/kernels/cpu/clip.h>
#include <bs/kernels/cpu/pieces.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/parameter.h>

#include <algorithm>
#include <array>
#include <utility>

namespace bs::cpu {

/** @brief step(w, g, state...) for each element; pointers as arguments keep the loop vectorised, as
 *  does a step of the loop's own, which no store can change. */
template <class Step, class W, class... State>
void step_row(const Step step, W clip, int64_t n, const W* g, W* w, State*... state) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) step(w[i], clip * g[i], state[i]...);
}

/** @brief Steps a piece of one parameter. State that it has not is zero in each step. */
template <class T, class Step, class Parameter, size_t... k>
void step_piece(const Parameter& p, const Piece& piece, const Step& step, Wide<T> clip,
                std::index_sequence<k...>) {
  using W = Wide<T>;
  const int64_t n = piece.end - piece.begin;
  std::array<W, Step::optional * piece_size> absent;
  [[maybe_unused]] W* unused = absent.data();
  [[maybe_unused]] const auto state = [&](size_t i) {
    const Tensor& t = p.*Parameter::states[i];
    if (t.defined()) return t.data<W>() + piece.begin;
    W* const zeros = std::exchange(unused, unused + piece_size);
    std::fill_n(zeros, n, W(0));
    return zeros;
  };
  T* value = p.value.template data<T>() + piece.begin;
  PieceBuffer<T> gradient, weight;
  const W* g = gradient.read(p.gradient.template data<T>() + piece.begin, n);
  if (p.master.defined()) {
    W* w = p.master.template data<W>() + piece.begin;
    step_row(step, clip, n, g, w, state(k)...);
    if constexpr (sizeof(T) == 2) narrow(n, w, value);
  } else {
    weight.read(value, n);
    step_row(step, clip, n, g, weight.target(value), state(k)...);
    weight.write(value, n);
  }
}

/** @brief One step of all parameters. Rule<W> is made of `given` for W = float and double, takes
 *  other numbers by set(), and steps one element with its state by operator(). */
template <template <class> class Rule, class Parameter, class... Given>
void step_elements(const char* op, std::span<const Parameter> parameters, const GradientClip& clip,
                   const Tensor& numbers, const Given&... given) {
  const ClipView clip_by = view_of(clip);
  if (clip_by.skips()) return;
  Rule<float> in_float(given...);
  Rule<double> in_double(given...);
  const double* const others = numbers.defined() ? numbers.data<double>() : nullptr;
  in_float.set(others);
  in_double.set(others);
  const double factor = clip_by.factor();
  const auto numel = [&](size_t i) { return parameters[i].value.numel(); };
  for_each_piece(parameters.size(), numel, [&](const Piece& piece) {
    const Parameter& p = parameters[piece.tensor];
    constexpr std::make_index_sequence<Rule<float>::states> all;
    visit_floating(op, p.value.dtype(), [&]<class T>(Type<T>) {
      if constexpr (std::is_same_v<T, double>) {
        step_piece<T>(p, piece, in_double, factor, all);
      } else {
        step_piece<T>(p, piece, in_float, static_cast<float>(factor), all);
      }
    });
  });
}

}  // namespace bs::cpu
