#pragma once
/** @file What runs for a block-sparse product: one pure function each, of the product, its layout
 *  and the GPU. Hosts execute what they return. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_sdd_gather.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_strips.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tiles.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_work_split.h>
#include <bs/kernels/cuda/gpu/gpu.h>
#include <bs/kernels/settings.h>
#include <bs/lib/layout.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace bs::cuda {

/** @brief Which kernels compute a product. */
enum class Path {
  dense,      ///< a dense product, to or from a dense copy of the sparse matrix
  blocks,     ///< sdd: a dense product that stores the blocks there are
  warpgroup,  ///< wgmma on 16 bits
  tf32,       ///< wgmma on f32
  tiled,      ///< mma.sync
};

/** @brief What a plan should be like; the planner decides what is left open. */
struct PlanWish {
  std::optional<bool> dense = {};    ///< by way of a dense product, where there can be one
  bool portable = false;             ///< mma.sync
  int cols = 0;                      ///< of dsd's tiles on 16 bits
  std::optional<SddForm> form = {};  ///< of sdd's on 16 bits
};

/** @brief What kernels can do with operands as they lie. */
struct Reach {
  bool copy_engine = true;  ///< the copy engine addresses all operands and the result
  bool vectors = true;      ///< lines fall into whole vectors of 16 bytes
  bool operator==(const Reach&) const = default;
};

/** @brief C = op(S) B, whatever its layout. */
struct DsdShape {
  Factors factors = Factors::half;
  bool transposed = false;    ///< op(S) = S^T
  int64_t n = 0;              ///< columns of C
  int64_t batch = 1;          ///< C there are; heads are their last axis,
  int64_t terms = 1;          ///< products summed into each; or the last axis of these
  bool sums_heads = false;    ///< which of the two
  bool b_along_k = false;     ///< neighbours of B along the depth are side by side
  bool c_by_columns = false;  ///< those of C along its rows are
  bool turnable = false;      ///< B can be copied to lines of columns, where lines are of the depth
  bool epilogue = false;
  bool dense_epilogue = true;     ///< a dense product could have the epilogue, and be repeated
  Reach lying = {}, turned = {};  ///< with B as it lies; with such a copy
  bool operator==(const DsdShape&) const = default;
};

/** @brief How a product is computed. */
struct DsdPlan {
  Path path = Path::tiled;
  bool turns = false;         ///< B is copied to lines of columns first
  StripShape strips = {};     ///< of the paths on wgmma
  bool large = false;         ///< tf32_tile()'s
  int cols = 0;               ///< of a tile
  bool vectors = false;       ///< of mma.sync: operands are read in vectors of 16 bytes
  device::WorkOrder order{};  ///< of the items of wgmma
  WorkPieces split = {};      ///< of the items, where some are cut
};
DsdPlan plan_dsd(const Layout& layout, const DsdShape& shape, const Gpu& gpu,
                 const Settings& settings, const PlanWish& wish = {});
/** @brief The shape whose plan serves this one: of as many columns, or where those are many, of
 * some more. */
DsdShape planned_shape(const Layout& layout, DsdShape shape, const Gpu& gpu,
                       const Settings& settings);
/** @brief The order of a plan for so many columns. */
device::WorkOrder order_of_columns(const device::WorkOrder& order, int64_t planned,
                                   int64_t columns);

/** @brief The blocks of A B, whatever the layout. */
struct SddShape {
  Factors factors = Factors::half;
  int64_t k = 0;
  int64_t batch = 1;       ///< S there are
  int64_t terms = 1;       ///< products summed into each
  bool a_along_k = false;  ///< neighbours of A along the depth are side by side
  bool b_along_k = false;
  /// Elements of a copy of A, or B, to lines of the depth, where lines are of rows or columns; 0:
  /// there can be none.
  int64_t a_turnable = 0, b_turnable = 0;
  bool epilogue = false;
  bool dense_blocks = true;  ///< a dense product could store the blocks alone
  Reach lying = {}, a_turned = {}, b_turned = {};
  bool operator==(const SddShape&) const = default;
};

/** @brief How a product is computed. */
struct SddPlan {
  Path path = Path::tiled;
  bool turns_a = false, turns_b = false;  ///< copied to lines of the depth first
  bool transposed = false;                ///< strips of B's columns
  StripShape strips = {};                 ///< of the paths on wgmma, where rows are not gathered
  SddForm form = {};
  int cols = 0;          ///< of mma.sync's tiles
  bool vectors = false;  ///< and whether operands are read in vectors of 16 bytes
  std::vector<device::SddRange> ranges = {};  ///< the items of one S
  int together = 1;                           ///< ranges of an item
  GatheredStrips gathered = {};               ///< strips of the items, where rows are gathered
  WorkPieces split = {};                      ///< of the items of all S, where some are cut
  double time = 0;                            ///< expected, nanoseconds; 0: not estimated
  int items() const { return static_cast<int>(ranges.size()) / together; }
};
SddPlan plan_sdd(const Layout& layout, const SddShape& shape, const Gpu& gpu,
                 const Settings& settings, const PlanWish& wish = {});
/** @brief The shape whose plan serves this one: of as many steps of the depth, or where items are
 *  too many to be cut, of some more. */
SddShape planned_shape(const Layout& layout, SddShape shape, const Gpu& gpu);

}  // namespace bs::cuda
