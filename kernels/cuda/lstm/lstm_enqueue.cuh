#pragma once
/** @file Puts the steps of an LSTM on a stream: products by cuBLAS, kernels between them. All
 *  memory is given, nothing is allocated, and no pointer but those of the buffers is named, so
 *  the calls can be captured in a graph once and replayed for other sequences. */
#include <bs/kernels/cuda/lstm/lstm_steps.cuh>
#include <bs/kernels/cuda/lstm/step_product.cuh>

#include <cstddef>

namespace bs::cuda::recurrent {

/// What the launches of a sequence depend on, besides its values.
struct LstmShape {
  DType dtype;
  int64_t batch, cells, width;
  bool projects, hard, variants;
  cublasComputeType_t sums;

  auto operator<=>(const LstmShape&) const = default;  // NOLINT(modernize-use-nullptr): its bug
};

inline LstmShape shape_of(const LSTMSteps& s) {
  return {s.gates.dtype(),
          s.batch(),
          s.cells(),
          s.width(),
          s.hr.defined(),
          s.rule.hard,
          s.rule.zoneout() || s.lengths.defined(),
          blas_compute_type(s.gates.dtype())};
}

/// Memory of the steps; each matrix is that of one step.
template <class T>
struct LstmBuffers {
  using W = wide<T>;
  LstmArgs<T>* args = nullptr;
  T* hidden = nullptr;     ///< [batch, width]: h, which the recurrent product reads
  T* outputs = nullptr;    ///< [batch, cells]: what is projected
  W* sums = nullptr;       ///< [batch, 4 cells]: recurrent product
  W* projected = nullptr;  ///< [batch, width]
  T* dsums = nullptr;      ///< [batch, 4 cells]
  W* dh = nullptr;         ///< [batch, width]
  W* doutputs = nullptr;   ///< [batch, cells]
  T* dhidden = nullptr;    ///< [batch, width]: gradient of h~

  /// Lays the buffers out one after the other from `memory`; returns their size in bytes.
  size_t place(const LstmShape& s, bool backward, std::byte* memory) {
    size_t at = 0;
    const auto take = [&]<class E>(E*& pointer, int64_t count) {
      pointer = reinterpret_cast<E*>(memory + at);
      at += (static_cast<size_t>(count) * sizeof(E) + 255) / 256 * 256;
    };
    take(args, 1);
    if (backward) {
      take(dsums, s.batch * 4 * s.cells);
      take(dh, s.batch * s.width);
      if (s.projects) take(doutputs, s.batch * s.cells);
      if (s.projects) take(dhidden, s.batch * s.width);
    } else {
      take(hidden, s.batch * s.width);
      take(sums, s.batch * 4 * s.cells);
      if (s.projects) take(outputs, s.batch * s.cells);
      if (s.projects) take(projected, s.batch * s.width);
    }
    return at;
  }
};

/// Calls f(hard, variants, projects), each a std::bool_constant.
template <class F>
void visit_kinds(const LstmShape& s, F&& f) {
  const auto flag = [](bool value, auto&& g) {
    if (value) {
      g(std::true_type{});
    } else {
      g(std::false_type{});
    }
  };
  flag(s.hard, [&](auto hard) {
    flag(s.variants, [&](auto variants) {
      flag(s.projects, [&](auto projects) { f(hard, variants, projects); });
    });
  });
}

/// From the recurrent product in b.sums to the state after the step.
template <class T>
void enqueue_cells(const LstmShape& s, const LstmBuffers<T>& b, const wide<T>* sums, const T* hr,
                   int offset, bool early, const LstmQueue& q) {
  visit_kinds(
      s, [&]<bool hard, bool variants, bool projects>(
             std::bool_constant<hard>, std::bool_constant<variants>, std::bool_constant<projects>) {
        launch_elements(cells_forward<T, hard, variants, projects>, s.batch * s.cells, early,
                        q.stream, b.args, offset, sums, projects ? b.outputs : b.hidden);
        if constexpr (projects) {
          product<T>(q.handle, s.batch, s.width, s.cells, b.outputs, hr, true, 0, b.projected);
          launch_elements(projected_forward<T, variants>, s.batch * s.width, q.early, q.stream,
                          b.args, offset, b.projected, b.hidden);
        }
      });
}

/// `count` steps from number base + first on.
template <class T>
void enqueue_forward(const LstmShape& s, const LstmBuffers<T>& b, const T* hh, const T* hr,
                     int first, int count, const LstmQueue& q) {
  for (int k = first; k < first + count; ++k) {
    product<T>(q.handle, s.batch, 4 * s.cells, s.width, b.hidden, hh, true, 0, b.sums);
    enqueue_cells<T>(s, b, b.sums, hr, k, q.early, q);
  }
}

/// From the gradient in b.dh to that of a step's sums. `early`: see launch_elements.
template <class T>
void enqueue_cells_backward(const LstmShape& s, const LstmBuffers<T>& b, const T* hr, int offset,
                            bool early, const LstmQueue& q) {
  visit_kinds(
      s, [&]<bool hard, bool variants, bool projects>(
             std::bool_constant<hard>, std::bool_constant<variants>, std::bool_constant<projects>) {
        if constexpr (projects) {
          launch_elements(projected_backward<T, variants>, s.batch * s.width, early, q.stream,
                          b.args, offset, b.dh, b.dhidden);
          product<T>(q.handle, s.batch, s.cells, s.width, b.dhidden, hr, false, 0, b.doutputs);
        }
        launch_elements(cells_backward<T, hard, variants, projects>, s.batch * s.cells,
                        projects ? q.early : early, q.stream, b.args, offset,
                        projects ? b.doutputs : b.dh, b.dsums);
      });
}

/// `count` steps from number base + first on, downwards.
template <class T>
void enqueue_backward(const LstmShape& s, const LstmBuffers<T>& b, const T* hh, const T* hr,
                      int first, int count, const LstmQueue& q) {
  // Without variants nothing of dh is kept but what comes through the weights.
  const wide<T> beta = s.variants || s.projects ? 1 : 0;
  for (int k = 0; k < count; ++k) {
    enqueue_cells_backward<T>(s, b, hr, first - k, q.early && k > 0, q);
    product<T>(q.handle, s.batch, s.width, 4 * s.cells, b.dsums, hh, false, beta, b.dh);
  }
}

}  // namespace bs::cuda::recurrent
