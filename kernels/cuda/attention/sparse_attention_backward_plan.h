#pragma once
/** @file Which kernels compute the gradients of attention: a pure function of the problem. */
#include <bs/kernels/cuda/attention/sparse_attention_plan.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <cstdint>
#include <span>

namespace bs::cuda {

struct AttentionBackwardProblem {
  int element = 2;                                            ///< bytes
  int capability = 0, shared_bytes = 0, multiprocessors = 0;  ///< of the GPU; a CTA's most
  int block = 0, head_dim = 0, value_dim = 0;
  AttentionTraits traits = {};
  int64_t kv_heads = 0;     ///< over the batch
  int64_t head_blocks = 0;  ///< kept by all heads that share one of k and v, of the fullest one
  bool together = false;    ///< all heads go in one launch, and head_blocks is of them all
  bool alike = false;       ///< see attention_columns_alike
};

struct AttentionBackwardPlan {
  bool warpgroup = false;      ///< else the portable kernels
  int dim = 0, value_dim = 0;  ///< head_dim and value_dim are padded with zeros to these
  int key_stages = 0, query_stages = 0;
  bool key_banded = false, query_banded = false;  ///< see WarpgroupForward
  bool paired = false;  ///< two warpgroups share 64 keys: one has dv and the other dk
  int strip = 0;        ///< keys that a team of warpgroups meets the same queries with
  unsigned rules = 0;   ///< that the kernel of keys and values knows
  int64_t kv_heads = 0,
          heads = 0;  ///< of k and v, over the batch: all, and those that a launch takes
};

/** @brief Teams that share a CTA of the kernel of keys and values, each with strips of its own. */
constexpr int attention_key_teams(int strip, bool paired) { return strip == 128 || paired ? 1 : 2; }

/** @brief Bytes of shared memory of the kernel of keys and values, for `stages` a team. */
constexpr int attention_key_gradient_bytes(int dim, int value_dim, int block, int strip, int stages,
                                           unsigned rules, bool paired) {
  const int teams = attention_key_teams(strip, paired);
  const int entries = 64 / std::min(block, 64), cols = std::max(strip / block, 1);  // of a step
  const int blocks = entries * cols, owners = strip == 128 && block < 64 ? 1 : 0;
  const int step = std::max(24, 4 * (entries + blocks + owners));
  const int more = ((rules & device::rule_dropout) != 0 ? 32 : 0) +
                   ((rules & (device::rule_bias | device::rule_table)) != 0 ? 24 : 0) +
                   ((rules & device::rule_bits) != 0 ? 4 * blocks : 0);
  return 2 * (paired ? 64 : 128) * (dim + value_dim) + teams * stages * 2 * 64 * (dim + value_dim) +
         2 * 2 * 8192 + teams * (stages * (16 + 512 + step + more) + (paired ? 112 : 48));
}
/** @brief Likewise, of the kernel of queries. */
constexpr int attention_query_gradient_bytes(int dim, int stages) {
  return stages * ((2 + dim / 64) * 8192 + 32) + 2 * 64 * dim * 2 + 64 + 1024;
}

/** @brief Whether a warpgroup that has both gradients of its keys has registers for these rules:
 * else it spills. */
constexpr bool attention_key_rules_fit(int dim, int value_dim, int block, unsigned rules) {
  using namespace device;
  const auto has = [&](unsigned all) { return (rules & all) == all; };
  const bool wide = dim > 64 && value_dim > 64, narrow = dim <= 64 && value_dim <= 64;
  if (has(rule_dropout | rule_bits)) return false;
  if (wide && (has(rule_softcap | rule_dropout) || has(rule_softcap | rule_bits | rule_slopes)))
    return false;
  const unsigned added = rules & (rule_bias | rule_table);
  const unsigned others = rules & (rule_softcap | rule_slopes | rule_dropout | rule_bits);
  if (added == 0) return true;
  if (added == (rule_bias | rule_table)) return narrow && others == 0;
  if (narrow) return true;
  if (added == rule_bias) return others == 0;
  return block > 16 && (others & ~unsigned{rule_dropout}) == 0;
}

/** @brief Gradients of scores that a launch may leave in memory, unless one head has more. Launches
 * of a quarter of it take up to a quarter more time, by their ends; those of twice as much no less.
 */
inline constexpr int64_t attention_values_bytes = int64_t{1} << 30;

/** @brief Whether the columns of blocks below 64 in 128 keys have so many rows in common that two
 * warpgroups meet them together: else each passes over what the other one keeps.
 *  @param[in] of_64,of_128 entries of all strips of so many keys */
constexpr bool attention_columns_alike(int64_t of_64, int64_t of_128) {
  return 100 * 2 * of_128 <= 115 * of_64;
}

/** @brief As many stages as fit, and at least two; and as many heads a launch as the gradients of
 * their scores leave room for, in launches of about the same size. */
constexpr AttentionBackwardPlan attention_backward_plan(const AttentionBackwardProblem& p) {
  AttentionBackwardPlan plan{};
  plan.kv_heads = p.kv_heads;
  const auto padded = [](int dim) { return std::max(64, (dim + 63) / 64 * 64); };
  plan.dim = padded(p.head_dim);
  plan.value_dim = padded(p.value_dim);
  const int widest = std::max(plan.dim, plan.value_dim);
  const bool fits = p.element == 2 && p.capability == 90 && widest <= 256 && p.head_dim % 8 == 0 &&
                    p.value_dim % 8 == 0 && p.block >= 16 && p.traits.known();
  if (!fits) return plan;
  plan.rules = p.traits.rules & device::warpgroup_attention_rules &
               ~unsigned{device::rule_sinks};  // which are in lse
  if (widest > 192 && (plan.rules & (device::rule_bias | device::rule_table)) != 0)
    return plan;  // would spill, as in the forward
  plan.paired =
      widest > 128 || !attention_key_rules_fit(plan.dim, plan.value_dim, p.block, plan.rules);
  plan.query_banded = p.traits.banded;
  // With distances, a bias, or small blocks and dropout, a key after the other is what the
  // registers have room for.
  constexpr unsigned distances = device::rule_slopes | device::rule_table | device::rule_bias;
  const bool crowded =
      (plan.rules & distances) != 0 || ((plan.rules & device::rule_dropout) != 0 && p.block < 64);
  plan.key_banded = p.traits.banded || (crowded && !plan.paired);
  // Two columns of blocks of 64 that share what they bring take .87 to 1.00 of the time of two
  // teams. Narrow heads take 1.01 to 1.07. With rules the kernel would spill, and with two bounds
  // that of blocks of 32.
  const bool shares = widest > 64 && plan.rules == 0 &&
                      (p.block == 64 || (p.block < 64 && p.alike && !p.traits.banded));
  const bool wide = p.block == 128 || shares;
  plan.strip = wide && !plan.paired ? 128 : 64;
  // A warpgroup may pass over a stage while it keeps another: with the first two of three.
  const int least = plan.strip == 128 ? 3 : 2;
  plan.key_stages = 4;
  while (plan.key_stages >= least &&
         attention_key_gradient_bytes(plan.dim, plan.value_dim, p.block, plan.strip,
                                      plan.key_stages, plan.rules, plan.paired) > p.shared_bytes)
    --plan.key_stages;
  plan.query_stages = 5;
  while (plan.query_stages > 1 &&
         attention_query_gradient_bytes(plan.dim, plan.query_stages) > p.shared_bytes)
    --plan.query_stages;
  const int64_t head_bytes = p.head_blocks * p.block * p.block * p.element;
  // Coordinates of the copy engine are 31 bits.
  const int64_t most_heads = std::min(attention_values_bytes / std::max<int64_t>(head_bytes, 1),
                                      INT32_MAX / std::max<int64_t>(p.head_blocks * p.block, 1));
  const int64_t all = std::max<int64_t>(p.kv_heads, 1);
  const int64_t at_once = p.together ? all : std::clamp<int64_t>(most_heads, 1, all);
  const int64_t launches = ceil_div(p.kv_heads, at_once);
  plan.heads = launches == 0 ? 0 : ceil_div(p.kv_heads, launches);
  plan.warpgroup = plan.key_stages >= least && plan.query_stages > 1 &&
                   p.head_blocks * p.block <= INT32_MAX && head_bytes <= 4 * attention_values_bytes;
  return plan;
}

/** @brief The strips of all heads of a layout, as BlockSparseStrips has them. */
struct AttentionStrips {
  std::span<const int32_t> offsets, order;  ///< of each head the longest come first in `order`
  int strips = 0;                           ///< of a head

  int64_t heads() const { return strips == 0 ? 0 : static_cast<int64_t>(order.size()) / strips; }
  /** @brief Of the strip of a head that so many others are longer than. */
  int64_t length(int64_t head, int64_t rank) const {
    const auto s = static_cast<size_t>(order[static_cast<size_t>(head * strips + rank)]);
    return int64_t{offsets[s + 1]} - offsets[s];
  }
};

/** @brief How many strips of each head are so long, half as long again as the mean, that they are
 * to be under way before the others: of the head that has most of them. Others keep close to those
 * of their head, which read the same rows. */
inline int attention_long_strips(const AttentionStrips& of) {
  const auto all = static_cast<int64_t>(of.order.size());
  int most = 0;
  for (int64_t head = 0; head < of.heads(); ++head) {
    int count = 0;
    while (count < of.strips && 2 * of.length(head, count) * all > 3 * int64_t{of.offsets.back()})
      ++count;
    most = std::max(most, count);
  }
  return most;
}

/** @brief How many strips of each head are taken behind all others, so that CTAs which end apart
 * come to their ends together: such as are half as long as the longest of the others at most, and
 * as many as have work for all `workers` while that one lasts. By a model of 132 CTAs this takes
 * .95 to .99 of the time of causal and sliding patterns.
 *  @param[in] long_strips that go ahead of the others
 *  @param[in] heads of a launch */
inline int attention_short_strips(const AttentionStrips& of, int long_strips, int64_t heads,
                                  int64_t workers) {
  if (of.heads() == 0 || long_strips >= of.strips) return 0;
  int least = of.strips - long_strips;
  for (int64_t head = 0; head < of.heads(); ++head) {
    const int64_t longest = of.length(head, long_strips);
    int count = 0;
    for (int64_t work = 0; count < least && heads * work < workers * longest; ++count) {
      const int64_t length = of.length(head, of.strips - 1 - count);
      if (2 * length > longest) break;
      work += length;
    }
    least = std::min(least, count);
  }
  return least;
}

}  // namespace bs::cuda
