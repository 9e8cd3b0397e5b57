#include <bs/nn/embedding.h>

#include <bs/autograd/embedding.h>
#include <bs/nn/init.h>

namespace bs::nn {

Embedding::Embedding(const Options& options) : padding_index_(options.padding_index) {
  const auto [rows, width, padding_index, dtype, device] = options;
  BS_CHECK(is_extent(rows) && is_extent(width), "embedding: a table of {} rows of {}", rows, width);
  BS_CHECK(padding_index >= -1 && padding_index < rows, "embedding: padding index {} of {} rows",
           padding_index, rows);
  register_parameter("weight", weight, Tensor::empty({rows, width}, dtype, device));
  init::normal(weight.data(), 0, 1);
  if (padding_index >= 0) init::zeros(weight.data().select(0, padding_index));
}

Variable Embedding::forward(const Tensor& indices) const {
  return embedding(weight, indices, padding_index_);
}

}  // namespace bs::nn
