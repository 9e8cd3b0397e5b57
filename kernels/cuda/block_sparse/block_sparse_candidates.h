#pragma once
/** @file Plans of one product among which a GPU may choose: the planner's own, and others by name.
 */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_plan.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bs::cuda {

/** @brief A plan by the name of what was wished for. */
template <class Plan>
struct Candidate {
  const char* name = nullptr;
  Plan plan = {};
};

/** @brief The plan of that name; none where the product has no such. */
std::optional<DsdPlan> dsd_candidate(std::string_view name, const Layout& layout,
                                     const DsdShape& shape, const Gpu& gpu,
                                     const Settings& settings);
std::optional<SddPlan> sdd_candidate(std::string_view name, const Layout& layout,
                                     const SddShape& shape, const Gpu& gpu,
                                     const Settings& settings);
/** @brief All that differ. The planner's own is first; it is the only one of a product with an
 *  epilogue, which cannot be computed again and again. */
std::vector<Candidate<DsdPlan>> dsd_candidates(const Layout& layout, const DsdShape& shape,
                                               const Gpu& gpu, const Settings& settings);
std::vector<Candidate<SddPlan>> sdd_candidates(const Layout& layout, const SddShape& shape,
                                               const Gpu& gpu, const Settings& settings);

/** @brief A line that is another one for every other product, layout or settings. */
std::string line_of(const Layout& layout, const DsdShape& shape, const Settings& settings);
std::string line_of(const Layout& layout, const SddShape& shape, const Settings& settings);

}  // namespace bs::cuda
