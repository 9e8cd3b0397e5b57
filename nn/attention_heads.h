#pragma once
/** @file What attention layers do with heads, between their projections and the scores. */
#include <bs/autograd/variable.h>

#include <cstdint>
#include <vector>

namespace bs::nn::detail {

/** @brief Queries, keys and values, [batch, heads, sequence, head_dim]. */
struct AttentionHeads {
  Variable q, k, v;
};

/** @brief [batch, sequence, heads * head_dim] as [batch, heads, sequence, head_dim], a view. */
Variable split_heads(const Variable& x, int64_t head_dim);
/** @brief The way back. */
Variable join_heads(const Variable& x);

/** @brief Turns queries and keys by the places of their tokens, from `first` on.
 *  @param[in] query_starts,key_starts of ragged sequences, each of which begins at place `first`;
 * empty: one sequence */
void turn(AttentionHeads& heads, double base, int64_t first,
          const std::vector<int64_t>& query_starts = {},
          const std::vector<int64_t>& key_starts = {});

}  // namespace bs::nn::detail
