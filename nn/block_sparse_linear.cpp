#include <bs/nn/block_sparse_linear.h>
#include <bs/nn/init.h>

#include <cmath>

namespace bs::nn {

namespace {
/// Blocks of one block row lie together, and so do its outputs: each row gets its own bound.
void init_rows(const Layout& layout, const Tensor& weight, const Variable& bias) {
  const int32_t* offsets = layout.view(Device::cpu()).row_offsets;
  const int64_t block = layout.block();
  for (int row = 0; row < layout.rows(); ++row) {
    const int64_t first = offsets[row], last = offsets[row + 1];
    const auto inputs = static_cast<double>((last - first) * block);
    const double bound = last > first ? 1 / std::sqrt(inputs) : 0;
    if (last > first) init::uniform(weight.slice(0, first, last), -bound, bound);
    if (!bias.defined()) continue;
    const Tensor outputs = bias.data().slice(0, row * block, (row + 1) * block);
    if (last > first) {
      init::uniform(outputs, -bound, bound);
    } else {
      init::zeros(outputs);
    }
  }
}
}  // namespace

BlockSparseLinear::BlockSparseLinear(const Options& options)
    : layout_(options.layout), activation_(options.activation) {
  BS_CHECK(layout_ != nullptr, "block_sparse_linear: no layout");
  BS_CHECK(layout_->heads() == 1, "block_sparse_linear: a layout of {} heads; a matrix has one",
           layout_->heads());
  const int64_t block = layout_->block();
  const Shape values{layout_->nnz(), block, block};
  register_parameter("weight", weight, Tensor::empty(values, options.dtype, options.device));
  register_parameter(
      "bias", bias,
      options.bias ? Tensor::empty({layout_->height()}, options.dtype, options.device) : Tensor());
  init_rows(*layout_, weight.data(), bias);
}

Variable BlockSparseLinear::forward(const Variable& x) const {
  return block_sparse_linear(x, matrix(), bias, activation_);
}

}  // namespace bs::nn
