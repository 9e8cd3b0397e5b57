#pragma once
// What a launch of attention for decoding tells its kernel, beside what any attention is told.
#include <bs/kernels/cuda/device/attention/attention_problem.cuh>

namespace bs::cuda::device {

/// Where keys and values of tokens lie: those of token i in row table[i / page] * page + i % page.
/// Without a table, in row i.
struct KeyPages {
  const int* table;
  int page;

  constexpr int row(int token) const {
    return table ? table[token / page] * page + token % page : token;
  }
};

/// A tile is what a CTA has of the queries: those in one row of blocks, of `heads` heads at most
/// that share keys. `parts` CTAs have the same tile, and a part of its keys each.
template <class T, class Sum>
struct DecodeArguments {
  AttentionForwardArguments<T, Sum> forward;
  KeyPages pages;
  int heads, parts;
  Sum* sums;  ///< [tiles, parts] of what a part found, see DecodeTile; null for a single part
  int* done;  ///< [tiles] parts that are done; zeros before and after; null for a single part
};

}  // namespace bs::cuda::device
