#pragma once
/** @file A block-sparse matrix whose values the tape can follow. */
#include <bs/autograd/variable.h>
#include <bs/lib/sparse_tensor.h>

namespace bs {

/** @brief A Layout, which is constant, and values [..., nnz, block, block] as a Variable. To the
 *  tape a sparse matrix is the dense tensor of its blocks. */
struct SparseVariable {
  LayoutPtr layout;
  Variable values;

  /** @brief The same matrix, unknown to the tape. */
  SparseTensor data() const { return {layout, values.data()}; }
};

}  // namespace bs
