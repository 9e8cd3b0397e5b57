#pragma once
/** @file Residual networks for small grey images (He et al., 2015; wide ones: Zagoruyko, Komodakis,
 *  2016). */
#include <bs/examples/image_classifier/options.h>
#include <bs/nn/batch_norm.h>
#include <bs/nn/block_sparse_conv2d.h>
#include <bs/nn/conv2d.h>
#include <bs/nn/linear.h>

#include <memory>
#include <string>
#include <vector>

namespace bs::example {

/** @brief A 3 x 3 convolution whose weight is dense or, in a sparse model, of blocks. */
struct Convolution {
  Convolution(int64_t in, int64_t out, int64_t stride, const Options& options);
  Variable forward(const Variable& x) const {
    return dense ? dense->forward(x) : sparse->forward(x);
  }
  nn::Module& module() const {
    return dense ? static_cast<nn::Module&>(*dense) : static_cast<nn::Module&>(*sparse);
  }

  std::unique_ptr<nn::Conv2d> dense;
  std::unique_ptr<nn::BlockSparseConv2d> sparse;
};

/** @brief conv, norm, ReLU, conv, norm, sum with what came in, ReLU. Where the extents change, the
 *  sum is with a 1 x 1 convolution of it. */
struct BasicBlock : nn::Module {
  BasicBlock(int64_t in, int64_t out, int64_t stride, const Options& options);
  Variable forward(const Variable& x) const;

  Convolution conv1, conv2;
  nn::BatchNorm2d bn1, bn2;
  std::unique_ptr<nn::Conv2d> shortcut;  ///< null where x itself is added
};

/** @brief Three stages of blocks, of 1, 2 and 4 times the width, and a linear classifier. */
struct ResNet : nn::Module {
  ResNet(int64_t classes, const Options& options);
  /** @brief Logits [n, classes] of images [n, 1, size, size]. */
  Variable forward(const Variable& images) const;

  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  std::vector<std::unique_ptr<BasicBlock>> blocks;
  std::vector<std::string> block_names;
  nn::Linear fc;
};

}  // namespace bs::example
