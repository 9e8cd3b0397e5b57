#pragma once
/** @file Gradients of attention on Hopper's tensor cores (wgmma): text and launch. */
#include <bs/kernels/cuda/attention/sparse_attention_backward_plan.h>
#include <bs/kernels/cuda/attention/sparse_attention_warpgroup.h>
#include <bs/kernels/sparse_attention.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/dtype.h>

#include <compare>
#include <vector>

namespace bs::cuda {

/** @brief What a kernel is emitted from. */
struct AttentionBackwardKernel {
  enum class Pass { key_gradient, query_gradient };
  Pass pass = Pass::key_gradient;
  DType dtype = f16;
  int dim = 0, block = 0, stages = 0;
  int value_dim = 0;    ///< 0: the kernel of queries, which knows no values
  bool banded = false;  ///< see WarpgroupForward
  unsigned rules = 0;   ///< of device::warpgroup_attention_rules; those of queries have none
  bool paired = false;  ///< see AttentionBackwardPlan
  int strip = 0;        ///< likewise; 0: the kernel of queries
  auto operator<=>(const AttentionBackwardKernel&) const =
      default;  // NOLINT(modernize-use-nullptr): its bug

  constexpr int shared_bytes() const {
    return pass == Pass::key_gradient
               ? attention_key_gradient_bytes(dim, value_dim, block, strip, stages, rules, paired)
               : attention_query_gradient_bytes(dim, stages);
  }
};
inline constexpr int attention_backward_threads = 384;

/** @brief Likewise, of the one that finds two numbers for each query. */
struct AttentionNumbersKernel {
  DType dtype = f16;
  int lanes = 16;  ///< threads of a query, with 8 elements each
  auto operator<=>(const AttentionNumbersKernel&) const =
      default;  // NOLINT(modernize-use-nullptr): its bug
};

jit::Source attention_backward_source(const AttentionBackwardKernel& kernel);
jit::Source attention_numbers_warpgroup_source(const AttentionNumbersKernel& kernel);
/** @brief All kernels that a GPU with 227 KB of shared memory a CTA can be asked for. */
std::vector<AttentionBackwardKernel> all_attention_backward_kernels();

/** @brief Arguments as in sparse_attention_backward, with rows that begin at multiples of 16 bytes.
 *  log_sums and means are as in AttentionBackwardArguments, and are filled in. */
struct AttentionBackwardCall {
  const Tensor &q, &k, &v;
  const SparseAttentionResult& forward;
  const Tensor& dout;
  const AttentionGrid& grid;
  const SparseAttentionGradients& gradients;
  const Tensor &log_sums, &means;
  const SparseAttentionOptions& options;
  const AttentionTraits& traits;
  Stream stream;
};

/** @brief Computes the gradients if the kernels can.
 *  @return an i32 that is not zero where something met is not finite, and the gradients may have
 *  numbers from what is hidden; undefined if the kernels cannot, and nothing was done */
Tensor sparse_attention_warpgroup_backward(const AttentionBackwardCall& call);

}  // namespace bs::cuda
