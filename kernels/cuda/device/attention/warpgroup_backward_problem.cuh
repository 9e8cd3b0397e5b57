#pragma once
// What a launch of the backward kernels of attention on wgmma tells them: plain data, and the same
// to the host's compiler, which fills it, as to the device's.
#include <bs/kernels/cuda/device/attention/attention_problem.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_attention_problem.cuh>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_problem.cuh>

namespace bs::cuda::device {

/// Where the gradients of the scores lie: block `number` of head h of batch entry b is value
/// b * batch + h * head + number - first of the memory, [block, block] with keys along the lines.
struct AttentionValues {
  long long batch, head, first;

  constexpr int at(int b, int h, int number) const {
    return static_cast<int>(b * batch + h * head + number - first);
  }
};

/// What both passes know.
struct WarpgroupAttention {
  int heads, group;   ///< heads of q, and how many of them share one of k and v
  int kv_heads;       ///< of k and v
  int queries, keys;  ///< rows and columns of the layout, or where they end
  int head_dim;
  int layout_heads;  ///< 1, those of a batch entry, or those of all
  int numbers;       ///< of queries that a head has in log_sums and means: those of whole blocks
  AttentionPlaces places;  ///< of queries and keys alike
  AttentionReach reach;
  float scale, log2_scale;  ///< of products; log2_scale for powers of two
  AttentionValues values;
  int first_head,
      head_count;    ///< of this launch, in (batch entry, head) order: the pass' own heads
  int long_strips;   ///< of a head, those that all heads have taken before any other strip
  int short_strips;  ///< likewise, those that are taken behind all others, the longest first
  int* next;         ///< two zeros: items taken, workers that found no more
  int* odd;          ///< becomes 1 where a gradient is not finite

  /// The layout's head of head h of q.
  constexpr int layout_head(int b, int h) const { return (b * heads + h) % layout_heads; }
};

/// What item `item` of a launch is: a head of its, and how many of that head's strips are longer.
struct AttentionItem {
  int head, rank;

  constexpr AttentionItem(int item, const WarpgroupAttention& a, int strips) : head(0), rank(0) {
    if (item >= a.head_count * (strips - a.short_strips)) {  // all heads in turns
      rank = item / a.head_count;
      head = item % a.head_count;
      return;
    }
    const int before = a.head_count * a.long_strips;
    const bool others = item >= before;
    if (others) item -= before;
    const int of_head = others ? strips - a.long_strips - a.short_strips : a.long_strips;
    head = item / of_head;
    rank = item % of_head + (others ? a.long_strips : 0);
  }
};

/// dk and dv, and the gradients of the scores. Maps are of [batch, heads, rows, head_dim].
struct WarpgroupKeyGradientParams {
  TensorMapWords q, dout, k, v;
  TensorMapWords ds;                       ///< [values * block, block]
  TensorMapWords q_row, dout_row, ds_row;  ///< in boxes of 64 rows, for small blocks side by side
  TensorMapWords dk, dv;
  AttentionRows<void> dk_rows, dv_rows;  ///< the same, for sequences that end within a strip
  StripList list;                        ///< strips of block columns
  WarpgroupAttention problem;
  const float *log_sums, *means;  ///< as in AttentionBackwardArguments, but [batch, heads, numbers]
  const unsigned char* seen;      ///< [batch, keys], 0 for padding, or null
  AttentionTerms terms;
};

/// dq of the gradients of the scores.
struct WarpgroupQueryGradientParams {
  TensorMapWords ds, k, dq;
  TensorMapWords k_row;  ///< in boxes of 64 rows, for small blocks side by side
  AttentionRows<void> dq_rows;
  const void* blocks;  ///< the gradients of the scores, for small blocks
  StripList list;      ///< strips of block rows
  WarpgroupAttention problem;
};

/// Rows and columns of the tiles that sums over diagonals are made of.
inline constexpr int stored_side = 16;

/// The gradient of a bias, or sums of those of scores over diagonals. Each of `batches` times
/// `heads` counts for all heads of q that agree with it by these numbers.
struct StoredScoresParams {
  WarpgroupAttention problem;  ///< whose heads are those of q
  const void* blocks;          ///< the gradients of the scores
  BlockLines rows;
  int columns;  ///< of blocks
  int batches, heads;
  AttentionRows<float> bias;       ///< its gradient, [batches, heads, queries, keys]
  float* diagonals;                ///< [heads, distances], as kernels/sparse_attention.h has them
  float* tile_sums;                ///< [heads, tile_diagonals, 2 stored_side - 1]
  int tile_diagonals, first_tile;  ///< how many there are; the one of tiles on the main diagonal
};

}  // namespace bs::cuda::device
