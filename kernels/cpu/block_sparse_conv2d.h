#pragma once
/** @file The blocks of a convolution's weight in the order in which the CPU walks them. */
#include <bs/kernels/block_sparse_conv2d.h>
#include <bs/kernels/cpu/conv2d.h>

#include <vector>

namespace bs::cpu {

/** @brief A unit of the depth: a block of the source's channels at a tap of a phase. */
struct ConvBlockUnit {
  int32_t tap = 0, in = 0;
};

/** @brief A stored block, and the unit that it is multiplied with. */
struct ConvBlockUse {
  int32_t unit = 0, in = 0;
  int32_t number = 0;  ///< in the order of values
};

/** @brief The blocks that the pixels of a phase see. Units that no block needs are left out. */
struct ConvPhaseBlocks {
  std::vector<ConvBlockUnit> units;  ///< by tap, then channels
  std::vector<int32_t> offsets;      ///< into uses, for each block of the result's channels
  std::vector<ConvBlockUse> uses;    ///< by units
};

/** @brief O(blocks + columns). */
ConvPhaseBlocks forward_blocks(const Conv2dProblem& d, const Layout& layout);
/** @brief One a phase; each block is in one of them. */
std::vector<ConvPhaseBlocks> backward_blocks(const Conv2dProblem& d, const ConvGather& g,
                                             const Layout& layout);

}  // namespace bs::cpu
