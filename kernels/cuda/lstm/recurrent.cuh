#pragma once
/** @file The steps of a recurrent layer with one state: a product and a kernel, a thread an
 * element, each. A `Cell` has the number of `gates`, whether the last one `splits`, and the
 * arithmetic of an element: `forward` and `backward`. */
#include <bs/kernels/recurrent.h>
#include <bs/kernels/cuda/device/lstm/lstm_cell.cuh>
#include <bs/kernels/cuda/lstm/step_product.cuh>

namespace bs::cuda::recurrent {

/// One step of one direction; pointers that have no use are null.
template <class T>
struct RecurrentArgs {
  using W = wide<T>;
  T* gates;                ///< [batch, G cells]
  T* candidate;            ///< [batch, cells]
  const T* before;         ///< [batch, cells]: h
  T* after;                ///< [batch, cells]
  const T* bias;           ///< [G cells]
  const int64_t* lengths;  ///< [batch]
  const W* sums;           ///< [batch, G cells]: the recurrent product
  const T* dy;             ///< [batch, cells]
  W* dh;                   ///< [batch, cells]
  T* dgates;               ///< [batch, G cells]
  T* drecurrent;           ///< [batch, G cells]
  int64_t t;
  int batch, cells;
};

template <class T>
T* element_pointer(const Tensor& x, int64_t index = 0) {
  return x.defined() ? static_cast<T*>(x.data()) + index * (x.numel() / x.size(0)) : nullptr;
}

/// What both passes read and write at step t.
template <class T>
RecurrentArgs<T> args_at(const RecurrentSteps& s, int64_t t) {
  RecurrentArgs<T> a{};
  a.gates = element_pointer<T>(s.gates, t);
  a.candidate = element_pointer<T>(s.candidate, t);
  a.before = element_pointer<T>(s.h, s.before(t));
  a.after = element_pointer<T>(s.h, s.after(t));
  a.bias = element_pointer<T>(s.bias);
  a.lengths = element_pointer<int64_t>(s.lengths);
  a.t = t;
  a.batch = static_cast<int>(s.batch());
  a.cells = static_cast<int>(s.cells());
  return a;
}

template <class T, class Cell>
__global__ void recurrent_forward(const RecurrentArgs<T> a) {
  using W = wide<T>;
  const int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (e >= int64_t{a.batch} * a.cells) return;
  const int64_t b = e / a.cells, u = e - b * a.cells;
  const int64_t at = Cell::gates * b * a.cells + u;
  W z[Cell::gates], s[Cell::gates];
#pragma unroll
  for (int g = 0; g < Cell::gates; ++g) {
    z[g] = device::widen(a.gates[at + g * int64_t{a.cells}]);
    s[g] = a.bias ? device::widen(a.bias[u + g * int64_t{a.cells}]) : W(0);
  }
  const bool active = a.lengths == nullptr || a.t < a.lengths[b];
  wait_for_previous_launch();
  const T before = a.before[e];
  if (!active) {
    a.after[e] = before;
    return;
  }
#pragma unroll
  for (int g = 0; g < Cell::gates; ++g) s[g] += a.sums[at + g * int64_t{a.cells}];
  a.after[e] = device::narrow<T>(Cell::forward(z, s, device::widen(before)));
#pragma unroll
  for (int g = 0; g < Cell::gates; ++g)
    a.gates[at + g * int64_t{a.cells}] = device::narrow<T>(z[g]);
  if constexpr (Cell::splits) a.candidate[e] = device::narrow<T>(s[Cell::gates - 1]);
}

template <class T, class Cell>
__global__ void recurrent_backward(const RecurrentArgs<T> a) {
  using W = wide<T>;
  const int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (e >= int64_t{a.batch} * a.cells) return;
  const int64_t b = e / a.cells, u = e - b * a.cells;
  const int64_t at = Cell::gates * b * a.cells + u;
  const bool active = a.lengths == nullptr || a.t < a.lengths[b];
  const W arrives = a.dy ? device::widen(a.dy[e]) : W(0);
  W z[Cell::gates], d[Cell::gates] = {}, last = 0;
#pragma unroll
  for (int g = 0; g < Cell::gates; ++g) z[g] = device::widen(a.gates[at + g * int64_t{a.cells}]);
  const W q = Cell::splits ? device::widen(a.candidate[e]) : W(0);
  const W before = device::widen(a.before[e]);
  wait_for_previous_launch();
  W dh = a.dh[e] + arrives;
  if (active) dh = Cell::backward(z, q, before, dh, d, last);
  a.dh[e] = dh;
#pragma unroll
  for (int g = 0; g < Cell::gates; ++g) {
    const int64_t to = at + g * int64_t{a.cells};
    const T stored = device::narrow<T>(d[g]);
    if constexpr (Cell::splits) a.drecurrent[to] = stored;
    a.dgates[to] = Cell::splits && g == Cell::gates - 1 ? device::narrow<T>(last) : stored;
  }
}

template <class T, class Cell>
void forward_steps(const RecurrentSteps& s, Stream stream) {
  using W = wide<T>;
  const LstmQueue q = queue_on(stream);
  const int64_t batch = s.batch(), cells = s.cells(), width = Cell::gates * cells;
  const Tensor sums = Tensor::empty({batch, width}, sizeof(W) == 8 ? f64 : f32, stream.device());
  const auto* hh = element_pointer<T>(s.hh);
  for (int64_t n = 0; n < s.steps(); ++n) {
    RecurrentArgs<T> a = args_at<T>(s, s.step(n));
    a.sums = element_pointer<W>(sums);
    product<T>(q.handle, batch, width, cells, a.before, hh, true, 0, element_pointer<W>(sums));
    launch_elements(recurrent_forward<T, Cell>, batch * cells, q.early, q.stream, a);
  }
}

template <class T, class Cell>
void backward_steps(const RecurrentBackwardSteps& s, Stream stream) {
  using W = wide<T>;
  const LstmQueue q = queue_on(stream);
  const RecurrentSteps& f = s.forward;
  const int64_t batch = f.batch(), cells = f.cells(), width = Cell::gates * cells;
  const auto* hh = element_pointer<T>(f.hh);
  for (int64_t n = f.steps() - 1; n >= 0; --n) {
    const int64_t t = f.step(n);
    RecurrentArgs<T> a = args_at<T>(f, t);
    a.dy = element_pointer<T>(s.dy, t);
    a.dh = element_pointer<W>(s.dh);
    a.dgates = element_pointer<T>(s.dgates, t);
    a.drecurrent = element_pointer<T>(s.drecurrent, t);
    // The first launch has no product of this sequence before it that it could overlap with.
    const bool early = q.early && n + 1 < f.steps();
    launch_elements(recurrent_backward<T, Cell>, batch * cells, early, q.stream, a);
    const T* d = Cell::splits ? a.drecurrent : a.dgates;
    product<T>(q.handle, batch, cells, width, d, hh, false, 1, a.dh);
  }
}

}  // namespace bs::cuda::recurrent
