#pragma once
/** @file Which block-sparse products are sooner done as dense ones, and which copies there is room
 *  for: pure functions. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_plan.h>

#include <cstdint>
#include <limits>
#include <utility>

namespace bs::cuda {

/** @brief The shape without copies of a dense operand that are larger than a sixteenth of the
 *  memory, or a quarter of what is free. One that dsd's products share counts once for each. */
DsdShape without_large_copies(const Layout& layout, DsdShape shape, const Gpu& gpu);
SddShape without_large_copies(SddShape shape, const Gpu& gpu);

/** @brief The time of what is not done. */
inline constexpr double never = std::numeric_limits<double>::infinity();
/** @brief What dsd takes by way of a dense copy of the sparse matrix; never, where it is not
 * known to gain: but for single matrices of 16 bits and f32 on Hopper, and where a dense matrix and
 * the copies of f32 that its product takes are a sixteenth of the memory at most, and a quarter of
 * what is free. */
double dense_dsd_time(const Layout& layout, const DsdShape& shape, const Gpu& gpu);
/** @brief The same of sdd, which stores the blocks of a dense product (Path::blocks), or picks them
 * out of all of one (Path::dense). */
std::pair<Path, double> dense_sdd_time(const Layout& layout, const SddShape& shape, const Gpu& gpu);
/** @brief Whether it can, without an epilogue; and how sdd can, else Path::tiled. */
bool dense_dsd_possible(const Layout& layout, const DsdShape& shape, const Gpu& gpu);
Path dense_sdd_possible(const Layout& layout, const SddShape& shape, const Gpu& gpu);

}  // namespace bs::cuda
