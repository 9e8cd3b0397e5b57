#pragma once
/** @file The gated recurrent unit as a layer and a cell. kernels/gru.h has the equations. */
#include <bs/autograd/gru.h>
#include <bs/nn/recurrent.h>

namespace bs::nn {

struct GRUOptions {
  int64_t input = 0;   ///< features of x
  int64_t hidden = 0;  ///< cells of a layer and direction
  int layers = 1;
  bool bias = true;
  bool batch_first = false;        ///< x and y are [batch, steps, ...], else [steps, batch, ...]
  bool bidirectional = false;      ///< features of y: both directions', forward first
  double dropout = 0;              ///< of the inputs of all layers but the first
  Generator* generator = nullptr;  ///< drawn from; null: the default generator
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief Layers of GRU over whole sequences; the order of gates is r, z, n. */
class GRU : public Recurrent {
 public:
  using Options = GRUOptions;
  explicit GRU(const Options& options);
  const Options& options() const { return options_; }

 private:
  std::vector<RecurrentStates> run(const Variable& x,
                                   std::span<const RecurrentDirectionVariables> directions,
                                   const Tensor& lengths) const override;
  Options options_;
};

struct GRUCellOptions {
  int64_t input = 0;
  int64_t hidden = 0;
  bool bias = true;
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief One step of a GRU. */
class GRUCell : public RecurrentCell {
 public:
  using Options = GRUCellOptions;
  explicit GRUCell(const Options& options);

 private:
  std::vector<RecurrentStates> run(const Variable& x,
                                   const RecurrentDirectionVariables& step) const override;
};

}  // namespace bs::nn
