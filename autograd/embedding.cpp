#include <bs/autograd/embedding.h>

#include <bs/autograd/recorded.h>
#include <bs/autograd/where.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/embedding.h>
#include <bs/kernels/where.h>
#include <bs/lib/check.h>

namespace bs {

namespace {

/// The gradient for a table; recorded, it looks rows up in what reaches it.
struct Add {
  SavedTensor indices;
  int64_t rows, padding;

  Tensor operator()(const Tensor& dy) const {
    return embedding_backward(dy, indices, rows, padding);
  }
  Variable operator()(const Variable& dy) const;
};

/// Rows of a table, and zeros for the padding.
struct LookUp {
  SavedTensor indices;
  int64_t padding;

  Tensor operator()(const Tensor& table) const {
    return without_padding(embedding(table, indices));
  }
  Variable operator()(const Variable& table) const {
    return without_padding(embedding(table, indices.get()));
  }
  template <class T>
  T without_padding(const T& rows) const {
    return padding < 0 ? rows : where(ne(indices.get(), padding).unsqueeze(-1), rows, 0);
  }
};

Variable Add::operator()(const Variable& dy) const {
  return record_linear("embedding_backward", dy, (*this)(dy.data()), LookUp{indices, padding});
}

}  // namespace

Variable embedding(const Variable& weight, const Tensor& indices, int64_t padding_index) {
  const Tensor y = embedding(weight.data(), indices);
  BS_CHECK(padding_index >= -1 && padding_index < weight.size(0),
           "embedding: a padding_index of {} among {} rows", padding_index, weight.size(0));
  return record_linear("embedding", weight, y,
                       Add{SavedTensor(indices), weight.size(0), padding_index});
}

}  // namespace bs
