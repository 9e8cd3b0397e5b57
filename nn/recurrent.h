#pragma once
/** @file What the recurrent layers with one state, nn/gru.h and nn/rnn.h, share. */
#include <bs/autograd/recurrent.h>
#include <bs/lib/random.h>
#include <bs/nn/module.h>

namespace bs::nn {

/** @brief Layers over whole sequences. Parameters have PyTorch's names, shapes, order of gates and
 *  initial values, so that weights move both ways. */
class Recurrent : public Module {
 public:
  struct Output {
    Variable y;  ///< h of the last layer after each step; zeros beyond a sequence's length
    Variable h;  ///< the last states, [layers * directions, batch, hidden]
  };

  /** @param[in] x [steps, batch, input], with batch_first [batch, steps, input], or one sequence
   *    [steps, input], whose results lack the batch
   *  @param[in] h0 [layers * directions, batch, hidden] before the first step, in reverse before
   *    the last; undefined: zeros
   *  @param[in] lengths [batch] i64 in host memory, each up to `steps`; undefined: all of them.
   *    Longest first is fastest on the CPU
   *  @throws Error when they do not fit each other or the layer. */
  Output forward(const Variable& x, const Variable& h0 = {}, const Tensor& lengths = {}) const;

  int directions() const { return shape_.bidirectional ? 2 : 1; }

  /** One entry a layer and direction. Registered as weight_ih_l0, weight_hh_l0, bias_ih_l0,
   *  bias_hh_l0, then with the suffix _reverse, then of l1. */
  std::vector<RecurrentWeightVariables> weights;

 protected:
  struct Extents {
    const char* name;
    int64_t gates, input, hidden;
    int layers;
    bool bias, batch_first, bidirectional;
    double dropout;
    Generator* generator;
    DType dtype;
    Device device;
  };
  /** @throws Error when extents or the dropout make no sense. */
  explicit Recurrent(const Extents& extents);
  /** @brief All directions of one layer over x [steps, batch, features]. */
  virtual std::vector<RecurrentStates> run(const Variable& x,
                                           std::span<const RecurrentDirectionVariables> directions,
                                           const Tensor& lengths) const = 0;

 private:
  std::vector<RecurrentDirectionVariables> parts(int layer, const Variable& h0) const;
  Extents shape_;
};

/** @brief One step of such a layer. */
class RecurrentCell : public Module {
 public:
  /** @param[in] x [batch, input] or [input]
   *  @param[in] h [batch, hidden] or [hidden]; undefined: zeros
   *  @return h after the step */
  Variable forward(const Variable& x, const Variable& h = {}) const;

  RecurrentWeightVariables weights;  ///< weight_ih, weight_hh, bias_ih, bias_hh

 protected:
  struct Extents {
    const char* name;
    int64_t gates, input, hidden;
    bool bias;
    DType dtype;
    Device device;
  };
  explicit RecurrentCell(const Extents& extents);
  virtual std::vector<RecurrentStates> run(const Variable& x,
                                           const RecurrentDirectionVariables& step) const = 0;

 private:
  const char* name_;
  int64_t input_;
};

}  // namespace bs::nn
