#pragma once
// One cell of an LSTM: its gates, its state, and their gradients. kernels/lstm.h has the formulas.

namespace bs::cuda::device {

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }
__device__ inline float hyperbolic(float x) { return tanhf(x); }
__device__ inline double hyperbolic(double x) { return tanh(x); }

/// The sigmoid, or clamp(1/2 + z/8, 0, 1); comparisons let NaN through.
template <bool hard, class W>
__device__ inline W gate(W z) {
  if constexpr (hard) {
    const W s = W(0.5) + z * W(0.125);
    return s < W(0) ? W(0) : s > W(1) ? W(1) : s;
  } else {
    return W(1) / (W(1) + exponential(-z));
  }
}

/// tanh, or clamp(z, -1, 1).
template <bool hard, class W>
__device__ inline W squash(W z) {
  if constexpr (hard) {
    return z < W(-1) ? W(-1) : z > W(1) ? W(1) : z;
  } else {
    return hyperbolic(z);
  }
}

/// Derivatives by the result.
template <bool hard, class W>
__device__ inline W gate_slope(W s) {
  if constexpr (hard) {
    return s > W(0) && s < W(1) ? W(0.125) : W(0);
  } else {
    return s * (W(1) - s);
  }
}
template <bool hard, class W>
__device__ inline W squash_slope(W t) {
  if constexpr (hard) {
    return t > W(-1) && t < W(1) ? W(1) : W(0);
  } else {
    return W(1) - t * t;
  }
}

template <class W>
struct LstmGates {
  W i, f, g, o;
};

/// Sums to gates, in place; returns c~.
template <bool hard, class W>
__device__ inline W lstm_cell(LstmGates<W>& z, W before) {
  z.i = gate<hard>(z.i);
  z.f = gate<hard>(z.f);
  z.g = squash<hard>(z.g);
  z.o = gate<hard>(z.o);
  return z.f * before + z.i * z.g;
}

/// What the gradients of a cell are multiplied with, known before they are.
template <class W>
struct LstmSlopes {
  LstmGates<W> sums;  ///< i, f, g by the gradient of c~, o by that of the output
  W output, before;   ///< of c~ by that of the output; of the cell before by that of c~
};

template <bool hard, class W>
__device__ inline LstmSlopes<W> lstm_slopes(const LstmGates<W>& z, W before, W candidate) {
  const W t = squash<hard>(candidate);
  return {{z.g * gate_slope<hard>(z.i), before * gate_slope<hard>(z.f),
           z.i * squash_slope<hard>(z.g), t * gate_slope<hard>(z.o)},
          z.o * squash_slope<hard>(t),
          z.f};
}

/// Gradients of the sums from those of the output o t(c~) and of c~; `dc` becomes that of the
/// cell before.
template <class W>
__device__ inline LstmGates<W> lstm_cell_backward(const LstmSlopes<W>& by, W doutput, W& dc) {
  const W dcell = dc + doutput * by.output;
  dc = dcell * by.before;
  return {dcell * by.sums.i, dcell * by.sums.f, dcell * by.sums.g, doutput * by.sums.o};
}

}  // namespace bs::cuda::device
