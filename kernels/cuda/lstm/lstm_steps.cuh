#pragma once
/** @file The kernels between the products of an LSTM's steps, a thread an element. All of a
 *  sequence is in LstmArgs, which lie in device memory: a launch names only which step it is, so
 *  that a captured graph of launches serves any sequence. */
#include <bs/kernels/distribution.h>
#include <bs/kernels/lstm.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/philox.h>
#include <bs/kernels/cuda/device/lstm/lstm_cell.cuh>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/early_launch.cuh>

namespace bs::cuda::recurrent {

using device::wide;

/// One direction of a layer; pointers that have no use are null.
template <class T>
struct LstmArgs {
  using W = wide<T>;
  T* gates;                ///< [steps, batch, 4 cells]
  T* h;                    ///< [steps + 1, batch, width]
  W* c;                    ///< [steps + 1, batch, cells]
  T* outputs;              ///< [steps, batch, cells]
  const int64_t* lengths;  ///< [batch]
  const T* dy;             ///< [steps, batch, width]
  const W* dcells;         ///< [steps, batch, cells]
  W* dc;                   ///< [batch, cells]
  T* dgates;               ///< [steps, batch, 4 cells]
  T* dhidden;              ///< [steps, batch, width]
  int64_t steps, base;     ///< base: the number of the first step of the chunk at work
  int batch, cells, width;
  bool reverse;
  W zoneout_hidden, zoneout_cell;
  bool expected;
  unsigned limit_hidden, limit_cell;
  RandomState state;
};

/// The step done as number base + offset, and the state's slots before and after it.
template <class T>
struct Step {
  int64_t t, before, after;
  __device__ Step(const LstmArgs<T>& a, int offset) {
    const int64_t n = a.base + offset;
    t = a.reverse ? a.steps - 1 - n : n;
    before = a.reverse ? t + 1 : t;
    after = a.reverse ? t : t + 1;
  }
};

/// Zoneout's factor of an element of [steps, batch, width]; see kernels/cpu/lstm.h.
template <class T>
__device__ wide<T> keep_factor(const LstmArgs<T>& a, bool of_cell, int64_t element) {
  using W = wide<T>;
  const W p = of_cell ? a.zoneout_cell : a.zoneout_hidden;
  if (a.expected || p == W(0)) return p;
  if (p == W(1)) return p;
  const auto block = static_cast<uint64_t>(element / 4 * 2 + of_cell);
  const PhiloxBlock bits = philox(a.state.seed, block, a.state.sequence());
  const int word = static_cast<int>(element % 4);
  const unsigned drawn = word == 0   ? bits.word[0]
                         : word == 1 ? bits.word[1]
                         : word == 2 ? bits.word[2]
                                     : bits.word[3];
  return drawn < (of_cell ? a.limit_cell : a.limit_hidden) ? W(1) : W(0);
}

/// keep * old + (1 - keep) * made, where what has no part may be anything: beyond a sequence's
/// length the new state is made of padding.
template <class W>
__device__ W blend(W keep, W old, W made) {
  return keep == W(1) ? old : keep == W(0) ? made : keep * old + (W(1) - keep) * made;
}

template <class T>
__global__ void store_args(LstmArgs<T> from, LstmArgs<T>* to) {
  *to = from;
}

template <class T>
__global__ void advance(LstmArgs<T>* args, int steps) {
  args->base += steps;
}

/// Cells of a step. `sums` [batch, 4 cells] is the recurrent product. The output goes where the
/// next product reads it: `next`, [batch, cells]. Without `variants` there is neither zoneout nor
/// a sequence shorter than others.
template <class T, bool hard, bool variants, bool projects>
__global__ void cells_forward(const LstmArgs<T>* args, int offset, const wide<T>* sums, T* next) {
  using W = wide<T>;
  const LstmArgs<T>& a = *args;
  const int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t count = int64_t{a.batch} * a.cells;
  if (e >= count) return;
  const Step<T> s(a, offset);
  const int64_t b = e / a.cells, u = e - b * a.cells;
  const int64_t at = 4 * b * a.cells + u;
  T* gates = a.gates + s.t * 4 * count + at;
  device::LstmGates<W> z{device::widen(gates[0]), device::widen(gates[a.cells]),
                         device::widen(gates[2 * int64_t{a.cells}]),
                         device::widen(gates[3 * int64_t{a.cells}])};
  const W before = a.c[s.before * count + e];
  const bool active = !variants || a.lengths == nullptr || s.t < a.lengths[b];
  wait_for_previous_launch();
  z.i += sums[at];
  z.f += sums[at + a.cells];
  z.g += sums[at + 2 * int64_t{a.cells}];
  z.o += sums[at + 3 * int64_t{a.cells}];
  W c = device::lstm_cell<hard>(z, before);
  T out = device::narrow<T>(z.o * device::squash<hard>(c));
  gates[0] = device::narrow<T>(z.i);
  gates[a.cells] = device::narrow<T>(z.f);
  gates[2 * int64_t{a.cells}] = device::narrow<T>(z.g);
  gates[3 * int64_t{a.cells}] = device::narrow<T>(z.o);
  if constexpr (variants) {
    const int64_t element = s.t * count + e;
    const W k = active ? keep_factor(a, true, element) : W(1);
    c = blend(k, before, c);
    if constexpr (projects) {
      if (!active) out = device::narrow<T>(W(0));
    } else {
      const W keep = active ? keep_factor(a, false, element) : W(1);
      const W old = device::widen(a.h[s.before * count + e]);
      if (keep != W(0)) out = device::narrow<T>(blend(keep, old, device::widen(out)));
    }
  }
  a.c[s.after * count + e] = c;
  if constexpr (projects) {
    a.outputs[s.t * count + e] = out;
  } else {
    a.h[s.after * count + e] = out;
  }
  next[e] = out;
}

/// h of a step from the projected outputs `sums` [batch, width]; `next` as above.
template <class T, bool variants>
__global__ void projected_forward(const LstmArgs<T>* args, int offset, const wide<T>* sums,
                                  T* next) {
  using W = wide<T>;
  const LstmArgs<T>& a = *args;
  const int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t count = int64_t{a.batch} * a.width;
  if (e >= count) return;
  const Step<T> s(a, offset);
  wait_for_previous_launch();
  W h = sums[e];
  if constexpr (variants) {
    const bool active = a.lengths == nullptr || s.t < a.lengths[e / a.width];
    const W keep = active ? keep_factor(a, false, s.t * count + e) : W(1);
    h = blend(keep, device::widen(a.h[s.before * count + e]), h);
  }
  const T stored = device::narrow<T>(h);
  a.h[s.after * count + e] = stored;
  next[e] = stored;
}

/// The gradient of h after a step: `dh` [batch, width] holds what came back through later steps,
/// and is left with what the state before keeps. The rest goes to the projection in `next`.
template <class T, bool variants>
__global__ void projected_backward(const LstmArgs<T>* args, int offset, wide<T>* dh, T* next) {
  using W = wide<T>;
  const LstmArgs<T>& a = *args;
  const int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t count = int64_t{a.batch} * a.width;
  if (e >= count) return;
  const Step<T> s(a, offset);
  const int64_t element = s.t * count + e;
  const W arrives = a.dy ? device::widen(a.dy[element]) : W(0);
  wait_for_previous_launch();
  const W d = dh[e] + arrives;
  W keep = 0;
  if constexpr (variants) {
    const bool active = a.lengths == nullptr || s.t < a.lengths[e / a.width];
    keep = active ? keep_factor(a, false, element) : W(1);
  }
  dh[e] = keep * d;
  const T candidate = device::narrow<T>((W(1) - keep) * d);
  a.dhidden[element] = candidate;
  next[e] = candidate;
}

/// Gradients of a step's sums, also into `next` [batch, 4 cells], which the recurrent product
/// reads. `dh` [batch, cells] is as above, or with a projection what came back through it.
template <class T, bool hard, bool variants, bool projects>
__global__ void cells_backward(const LstmArgs<T>* args, int offset, wide<T>* dh, T* next) {
  using W = wide<T>;
  const LstmArgs<T>& a = *args;
  const int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t count = int64_t{a.batch} * a.cells;
  if (e >= count) return;
  const Step<T> s(a, offset);
  const int64_t b = e / a.cells, u = e - b * a.cells;
  const int64_t at = 4 * b * a.cells + u, element = s.t * count + e;
  const T* gates = a.gates + s.t * 4 * count + at;
  const device::LstmGates<W> z{device::widen(gates[0]), device::widen(gates[a.cells]),
                               device::widen(gates[2 * int64_t{a.cells}]),
                               device::widen(gates[3 * int64_t{a.cells}])};
  const W before = a.c[s.before * count + e];
  W candidate = a.c[s.after * count + e];
  W dc = a.dc[e] + (a.dcells ? a.dcells[element] : W(0));
  W doutput = !projects && a.dy ? device::widen(a.dy[element]) : W(0);
  const bool active = !variants || a.lengths == nullptr || s.t < a.lengths[b];
  wait_for_previous_launch();
  doutput += dh[e];
  device::LstmGates<W> d{};
  if (active) {
    W kept = 0;
    if constexpr (variants) {
      if constexpr (!projects) {
        const W k = keep_factor(a, false, element);
        dh[e] = k * doutput;
        doutput *= W(1) - k;
      }
      const W k = keep_factor(a, true, element);
      kept = k * dc;
      dc *= W(1) - k;
      if (a.zoneout_cell > W(0)) candidate = z.f * before + z.i * z.g;
    }
    d = device::lstm_cell_backward(device::lstm_slopes<hard>(z, before, candidate), doutput, dc);
    dc += kept;
  } else if (!projects) {
    dh[e] = doutput;
  }
  a.dc[e] = dc;
  T* dgates = a.dgates + s.t * 4 * count + at;
  const W sums[4] = {d.i, d.f, d.g, d.o};
#pragma unroll
  for (int g = 0; g < 4; ++g) {
    const T stored = device::narrow<T>(sums[g]);
    dgates[g * int64_t{a.cells}] = stored;
    next[at + g * int64_t{a.cells}] = stored;
  }
}

}  // namespace bs::cuda::recurrent
