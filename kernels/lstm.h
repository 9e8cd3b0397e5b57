#pragma once
/** @file Long short-term memory (Hochreiter, Schmidhuber, 1997; Gers, Schmidhuber, Cummins, 2000),
 *  a layer over whole sequences.
 *
 *  T steps, B sequences, I inputs, H cells, R outputs (H, or fewer with a projection). A step is
 *
 *      i f g o = W_ih x + b_ih + W_hh h' + b_hh      rows of the weights in this order of gates
 *      c~ = s(f) c' + s(i) t(g)                      h', c': the state before the step
 *      h~ = s(o) t(c~), or W_hr (s(o) t(c~)) with a projection (Sak, Senior, Beaufays, 2014)
 *      c = k_c c' + (1 - k_c) c~                     zoneout (Krueger et al., 2017), else k = 0
 *      h = k_h h' + (1 - k_h) h~
 *
 *  with s the sigmoid and t the tanh, or their hard forms s(z) = clamp(1/2 + z/8, 0, 1) and
 *  t(z) = clamp(z, -1, 1), whose derivatives are 0 where the result is at a bound.
 *
 *  A sequence shorter than T keeps its state unchanged in the steps beyond its length, in either
 *  direction. c is a running sum: for 16-bit types it is stored in f32, as are its gradients. */
#include <bs/kernels/dispatch.h>
#include <bs/lib/layout.h>
#include <bs/lib/random.h>

#include <span>
#include <vector>

namespace bs {

/** @brief The parameters of one direction, or their gradients. */
struct LSTMWeights {
  Tensor ih;              ///< [4 H, I]; undefined where LSTMDirection::input takes its place
  Tensor hh;              ///< [4 H, R]; with a layout its blocks [nnz, block, block]
  Tensor bias_ih = {};    ///< [4 H], or undefined
  Tensor bias_hh = {};    ///< [4 H], or undefined
  Tensor hr = {};         ///< [R, H], or undefined: no projection
  LayoutPtr layout = {};  ///< of hh where that is block-sparse
};

/** @brief What a step computes, beyond its weights. */
struct LSTMRule {
  bool hard = false;          ///< hard activations
  double zoneout_hidden = 0;  ///< k_h is 1 with this probability, else 0
  double zoneout_cell = 0;    ///< k_c likewise
  bool expected = false;      ///< k is that probability itself: zoneout outside of training
  RandomState state = {};     ///< what k is drawn from

  bool zoneout() const { return zoneout_hidden > 0 || zoneout_cell > 0; }
};

/** @brief One direction of a layer. */
struct LSTMDirection {
  LSTMWeights weights;
  Tensor h0 = {};  ///< [B, R], or undefined: zeros
  Tensor c0 = {};  ///< [B, H] of x's dtype or of c's, or undefined: zeros
  LSTMRule rule = {};
  bool reverse = false;  ///< from the last step to the first
  /** W_ih x, [T, B, 4 H], computed otherwise than by a matrix; undefined: weights.ih times x. Of x
   *  the extents T and B alone count then. */
  Tensor input = {};
  double dropout = 0;        ///< of what a layer over another one reads; see lstm_layers
  RandomState dropped = {};  ///< what that is drawn from, as dropout of the whole would
};

/** @brief The states of one direction, and what backward needs. */
struct LSTMResult {
  Tensor y;              ///< [T, B, R]: h after each step
  Tensor c;              ///< [T, B, H]: c after each step; f32 for 16-bit types
  Tensor h_n;            ///< [B, R]: h in the end; views, as are the above
  Tensor c_n;            ///< [B, H]
  Tensor hidden, cells;  ///< h and c with the initial state, [T + 1, B, ...], in order of steps
  Tensor gates;          ///< [T, B, 4 H] s(i) s(f) t(g) s(o)
  Tensor outputs;        ///< [T, B, H] s(o) t(c~), kept for a projection's gradient
  Tensor read = {};      ///< [T, B, R] of the layer below, after dropout; undefined without
};

/** @brief All steps of one or more directions over the same x; they are independent, and run side
 *  by side where the device can.
 *  @param[in] x [T, B, I], floating, any strides; all tensors share its dtype and device
 *  @param[in] lengths [B] i64 in host memory, each from 0 to T; undefined: all T
 *  @return the states of each direction. The input's product is one GEMM over all steps.
 *  @throws Error when shapes, dtypes or devices do not fit, or a zoneout is outside [0, 1]. */
std::vector<LSTMResult> lstm(const Tensor& x, std::span<const LSTMDirection> directions,
                             const Tensor& lengths = {});

/** @brief Which steps of [T, B, ...] sequences of these lengths have: boolean [T, B, 1].
 *  @param[in] lengths [B] i64, on any device
 *  @param[in] like a tensor [T, B, ...] on the device wanted */
Tensor steps_within(const Tensor& lengths, const Tensor& like);

/** @brief Gradients that arrive at the results of one direction; undefined ones are zero. */
struct LSTMUpstream {
  Tensor y, h_n, c, c_n;
};
/** @brief Gradients of one direction. */
struct LSTMGrads {
  LSTMWeights weights;
  Tensor h0, c0;
  Tensor input = {};  ///< where the forward had one; zeros beyond a sequence's length
};
/** @brief Which gradients are wanted; those of the initial state come in any case. */
struct LSTMWants {
  bool x = true, weights = true;
};
/** @brief Of all directions, and x. */
struct LSTMBackward {
  Tensor x;  ///< undefined where no direction's weights.ih read x
  std::vector<LSTMGrads> directions;
};
/** @brief The vector-Jacobian product of lstm. Gradients of weights and of x are one GEMM each over
 *  all steps.
 *  @param[in] results what lstm returned for the same arguments
 *  @param[in] upstream one a direction */
LSTMBackward lstm_backward(const Tensor& x, std::span<const LSTMDirection> directions,
                           const Tensor& lengths, std::span<const LSTMResult> results,
                           std::span<const LSTMUpstream> upstream, LSTMWants wants = {});

/** @name Layers over each other
 *  The first reads x, the others y of the one before, with their dropout of it. All run forward in
 *  time and have the same cells and outputs. The results are those of one call of lstm a layer. If
 *  the upstream of an inner layer's y is undefined, its gradient comes from the layer above alone.
 *  None has an `input`.
 *
 *  Where a layer leaves a part of the device idle, layers run as a wavefront. The sequence is cut
 *  into pieces of `chunk` steps; a layer's piece runs beside the next piece of the layer below.
 *  @param[in] chunk 0: what suits the device. With dropout the next multiple of 4 is taken. Random
 *    zoneout is drawn for whole sequences and runs layer after layer in any case.
 *  @{ */
std::vector<LSTMResult> lstm_layers(const Tensor& x, std::span<const LSTMDirection> layers,
                                    const Tensor& lengths = {}, int64_t chunk = 0);
LSTMBackward lstm_layers_backward(const Tensor& x, std::span<const LSTMDirection> layers,
                                  const Tensor& lengths, std::span<const LSTMResult> results,
                                  std::span<const LSTMUpstream> upstream, LSTMWants wants = {},
                                  int64_t chunk = 0);
/** @} */

/** @brief The steps of one direction as the twins see them. Step t lies between the slots t and
 *  t + 1 of h and c [T + 1, B, ...]. It reads the first and writes the second, or in reverse the
 *  other way round. */
struct LSTMSteps {
  Tensor gates;    ///< [T, B, 4 H]; in: the input's part of the sums; out: activated
  Tensor h;        ///< [T + 1, B, R], the first slot set
  Tensor c;        ///< [T + 1, B, H] in the type of sums, the first slot set
  Tensor outputs;  ///< [T, B, H] where there is a projection
  Tensor hh, hr;   ///< contiguous
  LayoutPtr layout;
  Tensor lengths;  ///< [B] i64 on the device, or undefined
  LSTMRule rule;
  bool reverse = false;

  int64_t steps() const { return gates.size(0); }
  int64_t batch() const { return gates.size(1); }
  int64_t cells() const { return c.size(2); }
  int64_t width() const { return h.size(2); }
  int64_t before(int64_t t) const { return reverse ? t + 1 : t; }
  int64_t after(int64_t t) const { return reverse ? t : t + 1; }
  /// The step that is done as number `n`.
  int64_t step(int64_t n) const { return reverse ? steps() - 1 - n : n; }
};
/** @brief The same for backward. */
struct LSTMBackwardSteps {
  LSTMSteps forward;  ///< as the forward left them
  Tensor dy;          ///< [T, B, R], or undefined
  Tensor dcells;      ///< [T, B, H] in the type of sums, or undefined
  Tensor dh, dc;      ///< [B, R], [B, H] in the type of sums; in: of h_n, c_n; out: of h0, c0
  Tensor dgates;      ///< [T, B, 4 H], out: of the sums i f g o
  Tensor dhidden;     ///< [T, B, R], out, where there is a projection: of h~
};

/** No extent is 0. Directions have the same extents, dtype and lengths; each has its own weights,
 *  layout, projection and rule. A negative length is that of a sequence that ended before these
 *  steps. lstm_chunk gives the chunk of lstm_layers; all of the steps where layers are to run one
 *  after the other. */
BS_BACKENDS(void lstm(std::span<const LSTMSteps> directions, Stream stream);
            void lstm_backward(std::span<const LSTMBackwardSteps> directions, Stream stream);
            void lstm_chunk(const LSTMSteps& layer, bool backward, int64_t& chunk, Stream stream))

}  // namespace bs
