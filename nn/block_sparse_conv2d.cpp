#include <bs/nn/block_sparse_conv2d.h>

#include <bs/kernels/copy.h>
#include <bs/nn/block_sparse_linear.h>

namespace bs::nn {

BlockSparseConv2d::BlockSparseConv2d(const Options& o)
    : layout_(o.layout), kernel_(o.kernel), walk_(o.walk) {
  // A pixel's row of inputs goes through a block-sparse linear layer, which has its values.
  const BlockSparseLinear start(
      {.layout = o.layout, .bias = o.bias, .dtype = o.dtype, .device = o.device});
  register_parameter("weight", weight, start.weight.data());
  register_parameter("bias", bias, o.bias ? start.bias.data() : Tensor());
}

void BlockSparseConv2d::update_layout(const LayoutPtr& layout) {
  const Tensor values = relayout(weight.data(), layout_, layout);
  weight.zero_grad();
  weight.set_data(values);
  layout_ = layout;
}

}  // namespace bs::nn

namespace bs::optim {

void carry_state(const Optimizer& from, Optimizer& to,
                 const std::map<std::string, LayoutChange>& changed) {
  const auto before = from.state(), after = to.state();
  BS_CHECK(before.size() == after.size(), "carry_state: {} tensors of state, then {}",
           before.size(), after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    BS_CHECK(before[i].name == after[i].name, "carry_state: state of {}, then of {}",
             before[i].name, after[i].name);
    Tensor value = before[i].tensor;
    const std::string parameter = before[i].name.substr(0, before[i].name.rfind('.'));
    const auto change = changed.find(parameter);
    if (change != changed.end()) value = relayout(value, change->second.from, change->second.to);
    copy(value, after[i].tensor);
  }
  to.set_steps(from.steps());
}

}  // namespace bs::optim
