#pragma once
/** @file The fully connected layer whose weight is block-sparse. */
#include <bs/autograd/block_sparse_linear.h>
#include <bs/nn/module.h>

namespace bs::nn {

struct BlockSparseLinearOptions {
  LayoutPtr layout = {};  ///< of one head, [out / block, in / block]
  bool bias = true;
  Activation activation = Activation::none;
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief y = f(x W^T + b) for x [..., in], where of W [out, in] only the blocks of a layout
 *  exist; one kernel.
 *
 *  Starts with values in +-1 / sqrt(inputs), weight and bias, where each block row counts the
 *  inputs that its own blocks see. Outputs of a row without blocks are f(b); b is 0 there. */
class BlockSparseLinear : public Module {
 public:
  using Options = BlockSparseLinearOptions;
  /** @throws Error without a layout, or for a layout of several heads. */
  explicit BlockSparseLinear(const Options& options);
  Variable forward(const Variable& x) const;

  const LayoutPtr& layout() const { return layout_; }
  /** @brief Layout and weight together, for the functions on sparse matrices. */
  SparseVariable matrix() const { return {layout_, weight}; }

  Variable weight;  ///< [nnz, block, block], in the layout's block order
  Variable bias;    ///< [out], or undefined

 private:
  LayoutPtr layout_;
  Activation activation_;
};

}  // namespace bs::nn
