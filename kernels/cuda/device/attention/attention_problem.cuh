#pragma once
// What a launch of fused attention tells its kernels: plain data, and the same to the host's
// compiler, which fills it with `void` for the element's type, as to the device's.

namespace bs::cuda::device {

/// One order of a layout: line l of head h holds the blocks [offsets[h * lines + l], ... + 1),
/// whose places along the line, ascending, are `at`.
struct BlockLines {
  const int* offsets;
  const int* at;
  int heads, lines;
};

/// A tensor [batch, heads, sequence, head_dim] whose rows are dense and begin at multiples of 16
/// bytes.
template <class T>
struct AttentionRows {
  T* data;
  long long batch, head, row;

  constexpr T* at(int b, int h) const { return data + b * batch + h * head; }
};

/// What kernels may be compiled to know beside scale, diagonal and padding. Each costs something.
enum AttentionRule : unsigned {
  rule_window = 1,  ///< a bound before the query too
  rule_softcap = 2,
  rule_bias = 4,
  rule_mask = 8,     ///< of elements
  rule_table = 16,   ///< of relative positions
  rule_slopes = 32,  ///< of distance
  rule_dropout = 64,
  rule_ragged = 128,
  rule_bits = 256,  ///< a packed mask
  all_attention_rules = 511,
  rule_sinks = 512  ///< of kernels on wgmma; the others look whether there are any
};

/// Sizes and rules common to all kernels. A query's place is its row of the layout.
struct AttentionProblem {
  int heads, group;  ///< heads of q, and how many of them share one of k and v
  int queries, keys, head_dim, value_dim;
  int block, layout_heads;
  int first_query;    ///< place of query 0
  int first, last;    ///< place i sees key j where first <= j - i <= last
  bool heavy_end;     ///< whether late queries meet more keys than early ones
  int tiles;          ///< of each head
  int last_sequence;  ///< of the batch
  double scale;
  const unsigned char* seen;  ///< [batch, keys], 0 for padding, or null
};

/// What rules beyond the problem's own look at.
template <class T, class Sum>
struct AttentionScores {
  double softcap;
  AttentionRows<const T> bias;              ///< [batch, heads, queries, keys]
  AttentionRows<const unsigned char> mask;  ///< the same
  const int*
      mask_numbers;  ///< [mask_heads, mask_rows, mask_cols]: place in the bits, -1 none, -2 all
  const unsigned char* mask_bits;  ///< [places, block, block / 8]
  int mask_heads, mask_rows, mask_cols;
  const Sum* table;               ///< [heads or 1, 2 reach + 1]
  int reach, table_head, origin;  ///< key j lies j - i - origin beyond place i
  const Sum* slopes;              ///< [heads]
  const Sum* sinks;               ///< [heads], or null
  unsigned long long seed, random_offset;
  const unsigned long long* random_shift;  ///< added to it, if any: see RandomState
  unsigned limit;                          ///< random words below it drop a weight
  double kept;                             ///< factor of the other weights
  const int* query_starts;                 ///< [sequences + 1] of a ragged batch
  const int* key_starts;
};

template <class T, class Sum>
struct AttentionForwardArguments {
  AttentionProblem problem;
  AttentionScores<T, Sum> scores;
  BlockLines rows;
  AttentionRows<const T> q, k, v;
  AttentionRows<T> out;
  Sum* lse;  ///< [batch, heads, queries]
};

template <class T, class Sum>
struct AttentionBackwardArguments {
  AttentionProblem problem;
  AttentionScores<T, Sum> scores;
  BlockLines rows, columns;
  AttentionRows<const T> q, k, v, out, dout;
  AttentionRows<T> dq, dk, dv;
  const Sum* lse;
  Sum* log_sums;  ///< [batch, heads, queries], lse in powers of two; +infinity where no key is seen
  Sum* means;     ///< [batch, heads, queries], dout . out
  int height;     ///< of the layout
  AttentionRows<Sum> dbias = {};  ///< [bias_batches, bias_heads, queries, keys]
  int bias_batches = 0, bias_heads = 0;
  Sum* diagonals = nullptr;  ///< [table_heads, diagonals], see kernels/sparse_attention.h
  int table_heads = 0;
};

}  // namespace bs::cuda::device
