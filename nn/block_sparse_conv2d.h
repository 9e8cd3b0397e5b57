#pragma once
/** @file The convolution whose weight is block-sparse, as a layer. */
#include <bs/autograd/block_sparse_conv2d.h>
#include <bs/nn/module.h>
#include <bs/nn/optim/optimizer.h>

#include <map>

namespace bs::nn {

struct BlockSparseConv2dOptions {
  LayoutPtr layout = {};  ///< from conv2d_layout
  Extent2 kernel = {1, 1};
  bs::Conv2dOptions walk = {};  ///< stride, padding, dilation
  bool bias = true;
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief block_sparse_conv2d of x [N, in, H, W].
 *
 *  Starts with values in +-1 / sqrt(inputs), weight and bias, where each block row counts the
 *  inputs that its own blocks see. */
class BlockSparseConv2d : public Module {
 public:
  using Options = nn::BlockSparseConv2dOptions;
  /** @throws Error without a layout, or for a layout of several heads. */
  explicit BlockSparseConv2d(const Options& options);
  Variable forward(const Variable& x) const {
    return block_sparse_conv2d(x, {layout_, weight}, kernel_, bias, walk_);
  }

  const LayoutPtr& layout() const { return layout_; }
  /** @brief Prunes and grows: blocks that both layouts have keep their weights, new ones start as
   *  zeros. Gradients are forgotten. An optimiser is made anew, with the state of the old one:
   *  @code
   *  const LayoutPtr before = conv.layout();
   *  conv.update_layout(pruned);
   *  optim::AdamW next(model, options);
   *  optim::carry_state(last, next, {{"conv.weight", {before, pruned}}});
   *  @endcode
   *  @throws Error for a layout of another size */
  void update_layout(const LayoutPtr& layout);

  Variable weight;  ///< [nnz, block, block], in the layout's block order
  Variable bias;    ///< [out], or undefined

 private:
  LayoutPtr layout_;
  Extent2 kernel_;
  bs::Conv2dOptions walk_;
};

}  // namespace bs::nn

namespace bs::optim {

/** @brief A weight's layouts before and after a change. */
struct LayoutChange {
  LayoutPtr from, to;
};
/** @brief Copies steps and state from one optimiser to another for the same parameters, of which
 *  those named have changed their layout.
 *  @throws Error when the state has other names or shapes */
void carry_state(const Optimizer& from, Optimizer& to,
                 const std::map<std::string, LayoutChange>& changed);

}  // namespace bs::optim
