#pragma once
/** @file Long short-term memory as a layer, a cell, and a stream. kernels/lstm.h has the equations,
 *  docs/lstm.md the options. Parameters have PyTorch's names, shapes, order of gates (i, f, g, o)
 *  and initial values, so that weights move both ways. */
#include <bs/autograd/lstm.h>
#include <bs/lib/random.h>
#include <bs/nn/kronecker_linear.h>
#include <bs/nn/lstm_composed.h>
#include <bs/nn/module.h>

#include <memory>
#include <optional>

namespace bs::nn {

struct LSTMOptions {
  int64_t input = 0;   ///< features of x
  int64_t hidden = 0;  ///< cells of a layer and direction
  int layers = 1;
  bool bias = true;
  bool batch_first = false;    ///< x and y are [batch, steps, ...], else [steps, batch, ...]
  bool bidirectional = false;  ///< features of y: both directions', forward first
  int64_t projection = 0;      ///< outputs of a direction; 0: its cells, without a projection
  double dropout = 0;          ///< of the inputs of all layers but the first
  double rw_dropout = 0;       ///< of the recurrent weights (DropConnect): one mask a forward
  double zoneout_hidden = 0;   ///< chance that a hidden state stays what it was
  double zoneout_cell = 0;     ///< the same for a cell
  bool hard = false;           ///< hard sigmoid and hard tanh
  /** Normalises W_ih x, W_hh h and, on its way to tanh, c (Ba, Kiros, Hinton, 2016). */
  bool layer_norm = false;
  /** Rounds as integer hardware would: products in block floating point, all else in bf16. */
  bool quantize = false;
  /** W_ih of each layer is a Kronecker product of so many factors; 0: it is dense. */
  int input_factors = 0;
  std::optional<double> forget_bias = {};  ///< starts bias_ih of f there, and bias_hh of f at 0
  LayoutPtr recurrent = {};                ///< the blocks that W_hh has; none: it is dense
  Generator* generator = nullptr;          ///< drawn from; null: the default generator
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief The state after (or before) a step. Undefined ones stand for zeros. */
struct LSTMState {
  Variable h;  ///< [layers * directions, batch, outputs]
  Variable c;  ///< [layers * directions, batch, hidden]; f32 for 16-bit types
};

/** @brief Layers of LSTM over whole sequences. */
class LSTM : public Module {
 public:
  using Options = LSTMOptions;
  struct Output {
    Variable y;     ///< h of the last layer after each step; zeros beyond a sequence's length
    Variable h, c;  ///< the last states, as in LSTMState
    /** All states, one entry a layer and direction, time first, at no cost. Beyond a sequence's
     *  length they stay what they were. */
    std::vector<LSTMStates> states;

    LSTMState state() const { return {h, c}; }
    /** @brief All hidden states, copied together: [layers * directions, steps, batch, outputs]. */
    Variable all_h() const;
    /** @brief All cells: [layers * directions, steps, batch, hidden]. */
    Variable all_c() const;
  };

  /** @throws Error when extents or probabilities make no sense, or options exclude each other. */
  explicit LSTM(const Options& options);

  /** @param[in] x [steps, batch, input], see batch_first, or one sequence [steps, input], whose
   *    results lack the batch
   *  @param[in] state before the first step; in reverse, before the last
   *  @param[in] lengths [batch] i64 in host memory, each up to `steps`; undefined: all of them.
   *    Longest first is fastest on the CPU
   *  @throws Error when they do not fit each other or the layer. */
  Output forward(const Variable& x, const LSTMState& state = {}, const Tensor& lengths = {}) const;

  const Options& options() const { return options_; }
  int directions() const { return options_.bidirectional ? 2 : 1; }
  /** @brief Features of one direction's h. */
  int64_t outputs() const {
    return options_.projection > 0 ? options_.projection : options_.hidden;
  }

  /** One entry a layer and direction. Registered as weight_ih_l0, weight_hh_l0, bias_ih_l0,
   *  bias_hh_l0, weight_hr_l0, then with the suffix _reverse, then of l1. */
  std::vector<LSTMWeightVariables> weights;
  /** With layer_norm: norm_ih_l0, norm_hh_l0, norm_c_l0 (ones) and norm_c_bias_l0 (zeros). */
  std::vector<LSTMNorms> norms;
  /** With input_factors: what stands for weight_ih_l0, registered as input_l0, and so on. */
  std::vector<std::unique_ptr<KroneckerLinear>> inputs;

 private:
  void make_norms(const std::string& suffix);
  void make_weights(const std::string& suffix, int64_t input);
  void make_input(const std::string& suffix, int64_t input);
  Generator& generator() const;
  bool composed() const { return options_.layer_norm || options_.quantize; }
  /** Whether this layer and the next run as one operation: nothing lies between them. */
  bool paired(int layer) const;
  std::vector<LSTMDirectionVariables> parts(int layer, const LSTMState& state) const;
  /** Gives the parts of a layer W_ih x by the input's factors. */
  void multiply_input(const Variable& x, int layer, const Tensor& lengths,
                      std::vector<LSTMDirectionVariables>& parts) const;
  std::vector<LSTMStates> layer(const Variable& x, int layer, const LSTMState& state,
                                const Tensor& lengths) const;

  Options options_;
};

struct LSTMCellOptions {
  int64_t input = 0;
  int64_t hidden = 0;
  bool bias = true;
  bool hard = false;
  std::optional<double> forget_bias = {};
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief One step of an LSTM. */
class LSTMCell : public Module {
 public:
  using Options = LSTMCellOptions;
  explicit LSTMCell(const Options& options);
  /** @param[in] x [batch, input] or [input]
   *  @param[in] state h and c [batch, hidden] or [hidden]; undefined ones are zeros
   *  @return the state after the step */
  LSTMState forward(const Variable& x, const LSTMState& state = {}) const;

  LSTMWeightVariables weights;  ///< weight_ih, weight_hh, bias_ih, bias_hh

 private:
  Options options_;
};

/** @brief Runs an LSTM over a sequence that arrives piece by piece. The outputs are those of the
 *  whole sequence, bit for bit where products are cut the same way. Nothing is recorded. */
class LSTMStream {
 public:
  /** @param[in] lstm kept by reference. @throws Error when it is bidirectional. */
  explicit LSTMStream(const LSTM& lstm);
  /** @brief y of the steps given, which follow those given before. */
  Tensor forward(const Tensor& x);
  /** @brief The state between the pieces; set_state continues from another. */
  const LSTMState& state() const { return state_; }
  void set_state(const LSTMState& state) { state_ = state; }
  void reset() { state_ = {}; }

 private:
  const LSTM& lstm_;
  LSTMState state_;
};

}  // namespace bs::nn
