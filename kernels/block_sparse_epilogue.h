#pragma once
/** @file What is done with the sums of a block-sparse product before they are stored: the epilogues
 *  of GemmOperation, with the tensors they name. */
#include <bs/kernels/gemm_epilogue.h>
#include <bs/lib/layout.h>
#include <bs/lib/tensor.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace bs {

/** @brief Options of sdd, dsd and dds.
 *  @code
 *  using namespace bs::epilogue;
 *  const Value t = accumulator() + row("bias", Element::f16);
 *  dds(x, w, {.b = true}, {.epilogue = GemmEpilogue(gelu(t)).store("t", t, Element::f16),
 *                          .tensors = {{"bias", bias}, {"t", before}}});
 *  @endcode */
struct ProductOptions {
  /** Applied once to each finished sum, also to those over nothing. For sdd only to the blocks that
   * the layout has; what is not there is in no reduction either. */
  std::optional<GemmEpilogue> epilogue = {};
  /** What the epilogue names. Leading axes broadcast to those of the result, as in NumPy; `row` and
   *  `column` vectors broadcast to all heads of an sdd too.
   *  - `row`: [..., n], one number a column of op(a) op(b). `column`: [..., m].
   *  - `tensor`: the result's shape, which for sdd is that of its values.
   *  - What is stored: exactly the result's shape, contiguous.
   *  - Reductions over rows: [..., m], over columns: [..., n]; f32 (f64 for operands of f64),
   *    contiguous. Each matrix of the result has its own, and so has each head of an sdd. Over
   *    nothing a sum is 0 and a maximum -infinity. */
  std::map<std::string, Tensor> tensors = {};
  std::map<std::string, double> scalars = {};
};

/** @brief An epilogue that was checked, as the twins take it. */
struct BlockSparseEpilogue {
  GemmEpilogue expression;
  /** [batch, m, n] each, repeated ones with stride 0, the result first; undefined: not read. For
   *  sdd vectors are [batch * heads, m, n] and tensors [batch, nnz * block, block]. */
  std::vector<Tensor> operands;
  std::vector<double> scalars;
  /** [batch, m] or [batch, n] each, contiguous; for sdd [batch * heads, ...]. */
  std::vector<Tensor> reductions = {};
};

/** @brief The epilogue of a product whose dense result is `c`; none where the options have none.
 *  @throws Error naming `op` for names, shapes, dtypes or devices that do not fit. */
std::optional<BlockSparseEpilogue> resolve_epilogue(const char* op, const ProductOptions& options,
                                                    const Tensor& c);
/** @brief The same where the result is the `values` of `layout`. */
std::optional<BlockSparseEpilogue> resolve_epilogue(const char* op, const ProductOptions& options,
                                                    const Tensor& values, const Layout& layout);
/** @brief Writes the reductions of a result that has no element: zeros and -infinities. */
void reduce_nothing(const BlockSparseEpilogue& epilogue);

}  // namespace bs
