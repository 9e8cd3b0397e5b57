#pragma once
/** @file What the recurrent layers with one state, kernels/gru.h and kernels/rnn.h, share.
 *
 *  T steps, B sequences, I inputs, H cells, G gates a cell. A sequence shorter than T keeps its
 *  state unchanged in the steps beyond its length, in either direction. */
#include <bs/kernels/dispatch.h>
#include <bs/lib/operation.h>

#include <functional>
#include <span>
#include <vector>

namespace bs {

/** @brief The parameters of one direction, or their gradients. */
struct RecurrentWeights {
  Tensor ih;            ///< [G H, I]
  Tensor hh;            ///< [G H, H]
  Tensor bias_ih = {};  ///< [G H], or undefined
  Tensor bias_hh = {};  ///< [G H], or undefined
};

/** @brief One direction of a layer. */
struct RecurrentDirection {
  RecurrentWeights weights;
  Tensor h0 = {};        ///< [B, H], or undefined: zeros
  bool reverse = false;  ///< from the last step to the first
};

/** @brief The states of one direction, and what backward needs. */
struct RecurrentResult {
  Tensor y;          ///< [T, B, H]: h after each step
  Tensor h_n;        ///< [B, H]: h in the end; views, as is y
  Tensor hidden;     ///< h with the initial state, [T + 1, B, H], in order of steps
  Tensor gates;      ///< [T, B, G H], activated
  Tensor candidate;  ///< [T, B, H] of a GRU: W_hn h' + b_hn
};

/** @brief Gradients that arrive at the results of one direction; undefined ones are zero. */
struct RecurrentUpstream {
  Tensor y, h_n;
};
/** @brief Gradients of one direction. */
struct RecurrentGrads {
  RecurrentWeights weights;
  Tensor h0;
};
/** @brief Which gradients are wanted; that of the initial state comes in any case. */
struct RecurrentWants {
  bool x = true, weights = true;
};
/** @brief Of all directions, and x. */
struct RecurrentBackward {
  Tensor x;
  std::vector<RecurrentGrads> directions;
};

/** @brief The steps of one direction as the twins see them. Step t lies between the slots t and
 *  t + 1 of h. It reads the first and writes the second, or in reverse the other way round. */
struct RecurrentSteps {
  Tensor gates;      ///< [T, B, G H]; in: the input's part of the sums; out: activated
  Tensor candidate;  ///< [T, B, H], of a GRU
  Tensor h;          ///< [T + 1, B, H], the first slot set
  Tensor hh;         ///< [G H, H], contiguous
  Tensor bias;       ///< [G H], what the recurrent product is added to; or undefined
  Tensor lengths;    ///< [B] i64 on the device, or undefined
  bool reverse = false;

  int64_t steps() const { return gates.size(0); }
  int64_t batch() const { return gates.size(1); }
  int64_t cells() const { return h.size(2); }
  int64_t before(int64_t t) const { return reverse ? t + 1 : t; }
  int64_t after(int64_t t) const { return reverse ? t : t + 1; }
  /// The step that is done as number `n`.
  int64_t step(int64_t n) const { return reverse ? steps() - 1 - n : n; }
};
/** @brief The same for backward. */
struct RecurrentBackwardSteps {
  RecurrentSteps forward;  ///< as the forward left them
  Tensor dy;               ///< [T, B, H], or undefined
  Tensor dh;               ///< [B, H] in the type of sums; in: of h_n; out: of h0
  Tensor dgates;           ///< [T, B, G H], out: of the input's part of the sums
  Tensor drecurrent;       ///< of the recurrent part, where that is another; else undefined
};

namespace detail {

/** @brief A kind of layer: its name, its gates, and the twins of its steps. */
struct RecurrentKind {
  const char* op;
  int64_t gates;
  bool splits;  ///< whether the last gate weighs its recurrent part, as a GRU's does
  std::function<void(Device, std::span<const RecurrentSteps>)> forward;
  std::function<void(Device, std::span<const RecurrentBackwardSteps>)> backward;
};

/** @brief The recurrent products of the steps, forward or backward. */
Work work_of(std::span<const RecurrentSteps> directions);
Work work_of(std::span<const RecurrentBackwardSteps> directions);

std::vector<RecurrentResult> recurrent(const RecurrentKind& kind, const Tensor& x,
                                       std::span<const RecurrentDirection> directions,
                                       const Tensor& lengths);
RecurrentBackward recurrent_backward(const RecurrentKind& kind, const Tensor& x,
                                     std::span<const RecurrentDirection> directions,
                                     const Tensor& lengths,
                                     std::span<const RecurrentResult> results,
                                     std::span<const RecurrentUpstream> upstream,
                                     RecurrentWants wants);

}  // namespace detail

}  // namespace bs
