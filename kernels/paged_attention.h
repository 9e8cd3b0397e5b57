#pragma once
/** @file Attention to keys and values that lie in pages, as those of a cache that forks share. */
#include <bs/kernels/sparse_attention.h>

#include <vector>

namespace bs {

/** @brief Keys and values of tokens, in pages of memory that may hold those of others too. */
struct PagedKeys {
  Tensor keys = {};                 ///< [batch, kv_heads, pages, page, head_dim]
  Tensor values = {};               ///< [batch, kv_heads, pages, page, value_dim]
  std::vector<int64_t> table = {};  ///< number i is the page of tokens i * page and on
  int64_t length = 0;               ///< tokens
};

/** @brief What sparse_attention gives for the keys and values of the tokens in their order.
 *
 *  The CPU reads pages where they lie if they hold whole blocks, or parts of blocks that are
 * multiples of 32 tokens. CUDA does for up to 16 queries without dropout, in f16 and bf16, and in
 * f32 for heads up to 128 wide. Otherwise the pages of the table are copied behind each other
 * first. There is no backward: caches are read, not learnt.
 *  @param[in] q [batch, heads, queries, head_dim]
 *  @throws Error as sparse_attention does, and for a table that does not fit the pages; ragged
 *  sequences are not taken */
SparseAttentionResult paged_attention(const Tensor& q, const PagedKeys& pages,
                                      const LayoutPtr& layout,
                                      const SparseAttentionOptions& options = {});

namespace detail {
/** @brief A tensor of the shape that the keys, or the values, have in their order. */
Tensor shape_of_pages(const PagedKeys& pages, const Tensor& memory);
/** @brief The keys, or the values, in their order: a copy. `table` is on their device. */
Tensor gathered_pages(const PagedKeys& pages, const Tensor& memory, const Tensor& table);
}  // namespace detail

/// Pages are dense; options as the twins of sparse_attention take them.
BS_BACKENDS(void paged_attention(const Tensor& q, const PagedKeys& pages, const Layout& layout,
                                 const Tensor& out, const Tensor& lse,
                                 const SparseAttentionOptions& options, Stream stream))

}  // namespace bs
