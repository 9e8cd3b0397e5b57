#pragma once
/** @file Attention of few queries to many keys, as a model asks for that makes token after token.
 */
#include <bs/kernels/cuda/attention/decode_attention_plan.h>
#include <bs/kernels/cuda/attention/sparse_attention_call.h>
#include <bs/lib/cuda/jit.h>

#include <vector>

namespace bs::cuda {

/** @brief Keys and values, [batch, kv_heads, rows, width], and which rows are those of tokens. */
struct DecodeMemory {
  Tensor keys, values;
  Tensor table = {};  ///< the page of tokens i * page and on; undefined: row i is token i
  int page = 1;
};

/** @brief The kernel for a call; `dim` is 0 where there is none. */
DecodeKernel decode_kernel_for(const AttentionCall& call, Device device);
jit::Source decode_source(const DecodeKernel& kernel);
/** @brief The kernels of plain problems on a GPU with `shared_bytes` for a CTA. */
std::vector<DecodeKernel> all_decode_kernels(int shared_bytes = 232448);

/** @brief out and lse of a call that `kernel` is for. Rows begin at multiples of 16 bytes. */
void launch_decode(const DecodeKernel& kernel, const AttentionCall& call, const Tensor& q,
                   const DecodeMemory& memory, const Layout& layout,
                   const SparseAttentionResult& to, Stream stream);

}  // namespace bs::cuda
