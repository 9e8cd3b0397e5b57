#include <bs/kernels/cuda/block_sparse/block_sparse_candidates.h>
#include <bs/lib/check.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

namespace bs::cuda {

namespace {

struct Wished {
  const char* name;
  PlanWish wish;
};
constexpr Wished wishes[] = {
    {"planned", {}},
    {"dense", {.dense = true}},
    {"blocks", {.dense = false}},
    {"mma", {.portable = true}},
    {"columns-256", {.dense = false, .cols = 256}},
    {"columns-128", {.dense = false, .cols = 128}},
    {"columns-64", {.dense = false, .cols = 64}},
    {"wide", {.dense = false, .form = SddForm{}}},
    {"narrow", {.dense = false, .form = SddForm{.narrow = true}}},
    {"gathered", {.dense = false, .form = SddForm{.gathered = true}}},
    {"gathered-narrow", {.dense = false, .form = SddForm{.narrow = true, .gathered = true}}},
};

bool is_dense(Path path) { return path == Path::dense || path == Path::blocks; }

/// What both have in common.
bool fulfils(Path path, const PlanWish& wish) {
  return (!wish.dense || *wish.dense == is_dense(path)) && (!wish.portable || path == Path::tiled);
}
bool fulfils(const DsdPlan& plan, const PlanWish& wish) {
  return fulfils(plan.path, wish) &&
         (wish.cols == 0 || (plan.path == Path::warpgroup && plan.cols == wish.cols));
}
bool fulfils(const SddPlan& plan, const PlanWish& wish) {
  return fulfils(plan.path, wish) &&
         (!wish.form ||
          (plan.path == Path::warpgroup && plan.form == *wish.form && std::isfinite(plan.time)));
}

// Lists follow from the rest.
bool same(const DsdPlan& a, const DsdPlan& b) {
  return a.path == b.path && a.turns == b.turns && a.strips == b.strips && a.large == b.large &&
         a.cols == b.cols && a.split.pieces.empty() == b.split.pieces.empty();
}
bool same(const SddPlan& a, const SddPlan& b) {
  return a.path == b.path && a.turns_a == b.turns_a && a.turns_b == b.turns_b &&
         a.transposed == b.transposed && a.form == b.form && a.cols == b.cols;
}

/// @param[in] make the plan of a wish
template <class Plan, class Make>
std::optional<Plan> candidate(std::string_view name, const Make& make) {
  const auto* const found =
      std::ranges::find_if(wishes, [&](const Wished& wished) { return name == wished.name; });
  if (found == std::end(wishes)) return {};
  constexpr bool is_dsd = std::is_same_v<Plan, DsdPlan>;
  if (is_dsd ? found->wish.form.has_value() : found->wish.cols > 0) return {};  // of the other one
  Plan plan = make(found->wish);
  if (!fulfils(plan, found->wish)) return {};
  return plan;
}

template <class Plan, class Make>
std::vector<Candidate<Plan>> candidates(bool alone, const Make& make) {
  std::vector<Candidate<Plan>> all;
  for (const auto& [name, wish] : wishes) {
    std::optional<Plan> plan = candidate<Plan>(name, make);
    if (plan && std::ranges::none_of(all, [&](const auto& c) { return same(c.plan, *plan); }))
      all.push_back({name, std::move(*plan)});
    if (alone) break;
  }
  return all;
}

std::string line_of(const char* product, const Layout& l, const Settings& s, Factors factors) {
  return format("{} layout {} block {} heads {} rows {} cols {} nnz {} settings {}{}{} factors {}",
                product, l.hash(), l.block(), l.heads(), l.rows(), l.cols(), l.nnz(),
                int{s.portable_products}, int{s.gathered_products}, int{s.finite_operands},
                static_cast<int>(factors));
}
std::string text(const Reach& reach) {
  return format("{}{}", int{reach.copy_engine}, int{reach.vectors});
}

}  // namespace

std::optional<DsdPlan> dsd_candidate(std::string_view name, const Layout& layout,
                                     const DsdShape& shape, const Gpu& gpu,
                                     const Settings& settings) {
  return candidate<DsdPlan>(
      name, [&](const PlanWish& wish) { return plan_dsd(layout, shape, gpu, settings, wish); });
}

std::optional<SddPlan> sdd_candidate(std::string_view name, const Layout& layout,
                                     const SddShape& shape, const Gpu& gpu,
                                     const Settings& settings) {
  return candidate<SddPlan>(
      name, [&](const PlanWish& wish) { return plan_sdd(layout, shape, gpu, settings, wish); });
}

std::vector<Candidate<DsdPlan>> dsd_candidates(const Layout& layout, const DsdShape& shape,
                                               const Gpu& gpu, const Settings& settings) {
  return candidates<DsdPlan>(shape.epilogue || layout.nnz() == 0, [&](const PlanWish& wish) {
    return plan_dsd(layout, shape, gpu, settings, wish);
  });
}

std::vector<Candidate<SddPlan>> sdd_candidates(const Layout& layout, const SddShape& shape,
                                               const Gpu& gpu, const Settings& settings) {
  const bool alone = shape.epilogue || layout.nnz() == 0 || shape.k == 0;
  return candidates<SddPlan>(
      alone, [&](const PlanWish& wish) { return plan_sdd(layout, shape, gpu, settings, wish); });
}

std::string line_of(const Layout& layout, const DsdShape& x, const Settings& settings) {
  return line_of("dsd", layout, settings, x.factors) +
         format(" n {} batch {} terms {} lying {}{}{}{}{} reach {} {}", x.n, x.batch, x.terms,
                int{x.transposed}, int{x.sums_heads}, int{x.b_along_k}, int{x.c_by_columns},
                int{x.turnable}, text(x.lying), text(x.turned));
}

std::string line_of(const Layout& layout, const SddShape& x, const Settings& settings) {
  return line_of("sdd", layout, settings, x.factors) +
         format(" k {} batch {} terms {} lying {}{}{} turnable {} {} reach {} {} {}", x.k, x.batch,
                x.terms, int{x.a_along_k}, int{x.b_along_k}, int{x.dense_blocks}, x.a_turnable,
                x.b_turnable, text(x.lying), text(x.a_turned), text(x.b_turned));
}

}  // namespace bs::cuda
