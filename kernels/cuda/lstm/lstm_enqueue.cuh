#pragma once
/** @file Puts the steps of an LSTM on a stream: products by cuBLAS, kernels between them. All
 *  memory is given, nothing is allocated, and no pointer but those of the buffers is named, so
 *  the calls can be captured in a graph once and replayed for other sequences. */
#include <bs/kernels/cuda/gemm/blas_matrix.h>
#include <bs/kernels/cuda/early_launch.cuh>
#include <bs/kernels/cuda/lstm/lstm_steps.cuh>

#include <cstddef>

namespace bs::cuda::recurrent {

/// What the launches of a sequence depend on, besides its values.
struct LstmShape {
  DType dtype;
  int64_t batch, cells, width;
  bool projects, hard, variants;
  cublasComputeType_t sums;

  auto operator<=>(const LstmShape&) const = default;
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

/// c (m x n, rows dense) = beta c + a (m x k) b, where b is (k x n), or its transpose is stored.
template <class T>
void product(cublasHandle_t handle, int64_t m, int64_t n, int64_t k, const T* a, const T* b,
             bool transposed, wide<T> beta, wide<T>* c) {
  using W = wide<T>;
  const W one = 1;
  const DType dtype = sizeof(T) == 8              ? f64
                      : sizeof(T) == 4            ? f32
                      : std::is_same_v<T, __half> ? f16
                                                  : bf16;
  const cudaDataType_t in = blas_type(dtype);
  const cudaDataType_t out = sizeof(W) == 8 ? CUDA_R_64F : CUDA_R_32F;
  BS_CUBLAS_CHECK(cublasGemmEx_64(handle, transposed ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, n, m,
                                  k, &one, b, in, transposed ? k : n, a, in, k, &beta, c, out, n,
                                  blas_compute_type(dtype), CUBLAS_GEMM_DEFAULT));
}

/// Launches a kernel over `count` elements. `early`: the launch before was a product, and the
/// kernel waits for it by itself.
template <class... Parameters, class... Arguments>
void launch_elements(void (*kernel)(Parameters...), int64_t count, bool early, cudaStream_t stream,
                     Arguments... arguments) {
  constexpr unsigned threads = 128;
  const auto blocks = static_cast<unsigned>(ceil_div(count, threads));
  launch_waiting(kernel, dim3(blocks), dim3(threads), 0, stream, early, arguments...);
}

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

/// Where the products of a sequence go, and in what form.
struct LstmQueue {
  cublasHandle_t handle;
  cudaStream_t stream;
  bool early;  ///< the device can begin a kernel before the one ahead has ended
};

inline LstmQueue queue_on(Stream stream) {
  return {cublas_handle(stream), native(stream),
          device_properties(stream.device()).capability >= 90};
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
