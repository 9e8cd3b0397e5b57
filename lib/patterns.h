#pragma once
/** @file Patterns from the literature, as Layouts. Any other pattern: Layout::from_mask.
 *
 *  All counts are in blocks. `causal` keeps a block only where column <= row (blocks on the
 * diagonal are kept whole: masking inside of them is the kernel's business). Time and memory grow
 * with the blocks kept, never with the dense matrix. Random choices come from a counter-based
 * generator in integers: one seed gives one pattern on every machine. */
#include <bs/lib/layout.h>

#include <cstdint>
#include <span>
#include <vector>

namespace bs::patterns {

/** @brief Extents of a pattern. */
struct Size {
  int heads = 1;
  int rows = 0;    ///< block rows; of the queries, in attention
  int cols = -1;   ///< block columns; -1: as many as rows
  int block = 32;  ///< elements a side of a block
};

/** @brief A run of blocks [begin, end). */
struct BlockRange {
  int begin = 0, end = 0;
};

struct DenseOptions {
  bool causal = false;
};
/** @brief Every block; with `causal`, the lower triangle. Rectangular unless causal. */
LayoutPtr dense(const Size& size, const DenseOptions& options = {});

struct FixedOptions {
  int local_blocks = 4;     ///< L: rows attend to their own window of L blocks
  int global_blocks = 1;    ///< G: the last G blocks of each window are seen from everywhere
  int global_patterns = 1;  ///< P: head h takes the (1 + h mod P)-th group of G from a window's end
  bool horizontal = false;  ///< global blocks also see everything; not with `causal`
  bool causal = false;
};
/** @brief The fixed pattern of Child et al. 2019, "Generating Long Sequences with Sparse
 *  Transformers", section 4.3, in DeepSpeed's form (`FixedSparsityConfig`). A last window shorter
 *  than L takes its globals from its end where their usual place is outside.
 *  @throws Error unless G divides L, 1 <= P <= L / G, and the pattern is square. */
LayoutPtr fixed(const Size& size, const FixedOptions& options = {});

struct StridedOptions {
  int stride = 4;  ///< l: rows see the l blocks up to their own, and every l-th block before
  /** Even heads take the first part only and odd heads the second, as in the factorised attention
   * of section 5.2 of the paper; otherwise each head takes both. */
  bool alternate_heads = false;
  bool causal = true;
};
/** @brief The strided pattern of Child et al. 2019, section 4.3. Without `causal` both parts extend
 *  to the right alike. @throws Error unless stride >= 1 and the pattern is square. */
LayoutPtr strided(const Size& size, const StridedOptions& options = {});

struct VariableOptions {
  std::vector<int> windows = {4};              ///< sizes of local windows; the last one repeats
  std::vector<BlockRange> globals = {{0, 1}};  ///< columns seen by all rows; clipped to the pattern
  int random_blocks = 0;                       ///< more columns in each row, drawn at random
  uint64_t seed = 0;
  bool different_per_head = false;  ///< heads draw their own random columns
  bool horizontal = false;          ///< global blocks also see everything; not with `causal`
  bool causal = false;
};
/** @brief Windows of varied sizes, with global and random columns: DeepSpeed's
 *  `VariableSparsityConfig`, but causal patterns draw random columns up to the diagonal only.
 *  @throws Error for an empty window or range, or more random blocks than columns. */
LayoutPtr variable(const Size& size, const VariableOptions& options = {});

struct BigBirdOptions {
  int random_blocks = 1;  ///< drawn from the row (causal: up to the diagonal; all of a short row)
  int window_blocks = 3;  ///< w: w / 2 blocks on each side of the diagonal, and the diagonal
  int global_blocks = 1;  ///< the first rows and columns are kept whole
  uint64_t seed = 0;
  bool different_per_head = false;  ///< heads draw their own random columns
  bool causal = false;
};
/** @brief Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences", the ITC variant; as
 *  DeepSpeed's `BigBirdSparsityConfig`. @throws Error when a count exceeds the columns. */
LayoutPtr bigbird(const Size& size, const BigBirdOptions& options = {});

struct LongformerOptions {
  int window_blocks = 3;                       ///< as in BigBirdOptions
  std::vector<BlockRange> globals = {{0, 1}};  ///< rows and columns kept whole
  bool causal = false;
};
/** @brief Beltagy et al. 2020, "Longformer: The Long-Document Transformer", in blocks; as
 *  DeepSpeed's `BSLongformerSparsityConfig`. @throws Error for an empty range or too wide a window.
 */
LayoutPtr longformer(const Size& size, const LongformerOptions& options = {});

struct SlidingWindowOptions {
  int window_blocks = 3;  ///< as in BigBirdOptions: causal rows see w / 2 blocks and their own
  bool causal = true;
};
/** @brief A band around the diagonal; as DeepSpeed's `LocalSlidingWindowSparsityConfig`. */
LayoutPtr sliding_window(const Size& size, const SlidingWindowOptions& options = {});

struct RandomOptions {
  double density = 0.1;  ///< of the blocks that may be kept, in [0, 1]
  uint64_t seed = 0;
  bool different_per_head = true;
  bool causal = false;
};
/** @brief Exactly round(density * candidates) blocks a head, every choice equally likely.
 *  Rectangular unless causal. */
LayoutPtr random(const Size& size, const RandomOptions& options = {});

/** @brief The block diagonal of a mixture of experts (Gale et al. 2022, "MegaBlocks"). Expert e
 *  owns `width` columns and ceil(tokens[e] / block) block rows: its tokens, padded to blocks.
 *  @param[in] tokens tokens routed to each expert, >= 0
 *  @param[in] width columns of one expert, in elements, a multiple of `block`
 *  @return one head of [sum of padded tokens, experts * width] */
LayoutPtr moe(std::span<const int64_t> tokens, int64_t width, int block);

struct DocumentOptions {
  bool causal = false;
};
/** @brief Documents packed one behind the other in a sequence: a row keeps the columns that hold
 *  tokens of its documents. Where two documents share a block it is kept for both. What they must
 * not see of each other is for a mask to hide.
 *  @param[in] starts [documents + 1] the first token of each document, ascending from 0, and the
 *  number of all tokens (`cu_seqlens`)
 *  @return one head, square, of ceil(tokens / block) rows */
LayoutPtr documents(std::span<const int64_t> starts, int block,
                    const DocumentOptions& options = {});

/** @brief The heads of all layouts, one after the other: heads of different patterns.
 *  @throws Error unless extents and block agree. */
LayoutPtr stack_heads(std::span<const LayoutPtr> layouts);

}  // namespace bs::patterns
