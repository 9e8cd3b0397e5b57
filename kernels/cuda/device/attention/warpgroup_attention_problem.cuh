#pragma once
// What a launch of fused attention on wgmma tells its kernel: plain data, the same to the host's
// compiler, which fills it, as to the device's.
#include <bs/lib/philox.h>
#include <bs/kernels/cuda/device/attention/attention_problem.cuh>
#include <bs/kernels/cuda/device/ptx/tensor_map.cuh>

namespace bs::cuda::device {

/// The key tiles of each tile of queries. A record is `pieces` first keys, then for each warpgroup
/// a word of which bit r * pieces + p says whether its block row r holds piece p.
struct AttentionTiles {
  const int* records;
  const int* items;  ///< [heads * tiles, 4]: tile of queries, its first record and how many it has,
                     ///< and nothing; of each head those with the most work first
  int heads, tiles;  ///< 1, those of a batch entry, or those of all
  int ahead;  ///< of each head so many tiles have far more work than the others: they go first
};

/// Query i sees key j where first <= j - i <= last; `far` stands for no bound.
struct AttentionReach {
  static constexpr int far = 1 << 30;
  int first = -far, last = far;

  /// Kernels that are not `banded` know of two: everything, and up to the diagonal.
  constexpr bool causal() const { return last < far; }
  /// Whether none of `size` queries from one on sees any of as many keys.
  constexpr bool hides(int query, int key, int size) const {
    return key - query > last + size - 1 || key - query < first - size + 1;
  }
};

/// Where 128 rows of ragged sequences lie, which begin at multiples of 128 among the layout's rows:
/// row i is row i - shift of memory, and from `end` on there are none of the sequence.
struct AttentionPlace {
  int shift, end;
};
struct AttentionPlaces {
  const AttentionPlace* places;  ///< null: rows lie where the layout has them
  int rows;                      ///< that there are then

  constexpr AttentionPlace of(int row) const {
    return places ? places[row / 128] : AttentionPlace{0, rows};
  }
  /// Whether 64 rows from `first` on are rows of one sequence, or the copy engine leaves out
  /// others.
  constexpr bool whole(int first) const { return !places || first + 64 <= of(first).end; }
};

/// Rules that kernels on wgmma may be compiled to know. Windows are among their bounds.
inline constexpr unsigned warpgroup_attention_rules =
    rule_softcap | rule_slopes | rule_sinks | rule_dropout | rule_bits | rule_bias | rule_table;

/// Whether kernels of these rules look for the greatest score of a row once only. What others add
/// to scores may grow by much from tile to tile.
constexpr bool attention_is_lazy(unsigned rules) { return (rules & ~unsigned{rule_sinks}) == 0; }

/// What dropout draws from, as AttentionScores has it. Counters number the rows of lse.
struct AttentionDropout {
  PhiloxKeys<> keys;
  unsigned long long offset;
  const unsigned long long* shift;
  unsigned limit;
  float kept;         ///< factor of the weights that are not dropped
  int rows;           ///< of a head
  const int* begins;  ///< of ragged sequences, the first row of each 128 rows' own; or null

  /// Where the sequence of row or key `at` begins.
  constexpr int begin(int at) const { return begins ? begins[at / 128] : 0; }
};

/// Which elements of blocks are seen: bit c % 8 of byte c / 8 of a row is that of column c.
struct AttentionBits {
  const int* numbers;         ///< [heads, rows, cols]: place of a block's bits, -1 none, -2 all are
                              ///< seen; null: blocks have the places of their own numbers
  const unsigned char* bits;  ///< [places, block, block / 8]
  int rows, cols;             ///< of blocks
  int batch_heads, head_heads;  ///< heads of these that one of a batch entry, and of q, counts for

  /// The head for head `of` among `heads` of each batch entry.
  constexpr int head(int of, int heads) const {
    return of / heads * batch_heads + of % heads * head_heads;
  }
};

/// What these rules look at.
struct AttentionTerms {
  float inner, outer;  ///< capped scores, for powers of two, are outer * tanh(inner * product)
  const float *slopes, *sinks;  ///< [heads]
  int origin;                   ///< key j lies j - i - origin beyond query i
  AttentionDropout dropout;
  AttentionBits bits;
  const float* table;  ///< [heads or 1, 2 table_reach + 1]
  int table_reach, table_head;
  AttentionRows<const void> bias;  ///< [batch, heads, queries, keys]; pairs of keys are words
  int last_query, last_key;        ///< that there are
};

struct WarpgroupAttentionParams {
  TensorMapWords q, k, v, out;
  AttentionTiles list;
  AttentionRows<void> out_rows;  ///< for rows that the copy engine must not write
  float* lse;                    ///< [batch, heads, lse_head]
  long long lse_head;
  const unsigned char* seen;  ///< [batch, keys], 0 for padding, or null
  int* next;                  ///< three zeros: items handed out, CTAs that are done, and whether
                              ///< a result is not finite
  int* odd;                   ///< gets the last of these
  int items;
  int heads, group;         ///< heads of q, and how many of them share one of k and v
  int batch_heads, window;  ///< heads of all batches, and how many of them are under way at a time
  AttentionPlaces places;   ///< of queries and keys alike
  int keys, value_dim;      ///< keys: in the layout
  float scale;              ///< of scores, for powers of two; where they are capped, of tanh
  AttentionReach reach;
  AttentionTerms terms;
};

}  // namespace bs::cuda::device
