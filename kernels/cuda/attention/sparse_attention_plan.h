#pragma once
/** @file Which kernel computes fused attention: pure functions of the problem and the GPU. */
#include <bs/kernels/cuda/attention/sparse_attention_tiles.h>
#include <bs/lib/dtype.h>
#include <bs/kernels/cuda/device/attention/warpgroup_attention_problem.cuh>

#include <algorithm>
#include <compare>

namespace bs::cuda {

/** @brief What a problem has beside scale, diagonal and padding. */
struct AttentionTraits {
  bool banded = false;  ///< see WarpgroupForward
  unsigned rules = 0;   ///< device::AttentionRule bits
  bool pinned = false;  ///< sequences begin at tiles of 128 queries, or the device lists such

  /** @brief Whether kernels on wgmma know all of it. */
  constexpr bool known() const {
    return (rules & ~(device::warpgroup_attention_rules | device::rule_window)) == 0;
  }
};

/** @brief The rules of a problem as kernels on wgmma have them: a mask of bytes becomes bits, where
 * there are none yet. What is ragged is the layout's to say. */
constexpr unsigned attention_warpgroup_rules(unsigned rules) {
  rules &= ~unsigned{device::rule_ragged};
  const bool packs = (rules & device::rule_mask) != 0 && (rules & device::rule_bits) == 0;
  return packs ? rules ^ (device::rule_mask | device::rule_bits) : rules;
}

/** @brief What the choice depends on. */
struct AttentionCase {
  DType dtype = bf16;
  int head_dim = 0, value_dim = 0;
  int block = 0;
  int capability = 0;    ///< of the GPU, major * 10 + minor
  int shared_bytes = 0;  ///< that a CTA can have there
  AttentionTraits traits = {};
};

/** @brief A kernel of warpgroup_forward.cuh. */
struct WarpgroupForward {
  DType dtype = bf16;
  int dim = 0, value_dim = 0;  ///< head_dim and value_dim, padded with zeros
  int block = 0;               ///< 128 stands for all larger than a tile
  int groups = 2, cols = 128;
  int slots = 0;         ///< tiles of keys or values in shared memory
  int query_places = 1;  ///< for queries of a warpgroup and their results
  bool turns = false;    ///< warpgroups ask for products in turn
  bool banded = false;   ///< queries see keys within any bounds, and lengths end anywhere
  unsigned rules = 0;    ///< of device::warpgroup_attention_rules
  auto operator<=>(const WarpgroupForward&) const =
      default;  // NOLINT(modernize-use-nullptr): its bug

  constexpr int threads() const { return (groups + 1) * 128; }
  constexpr int pieces() const { return block < cols ? cols / block : 1; }
  /** @brief How few tiles keep warpgroups from waiting for each other for ever. */
  constexpr int least_slots() const { return turns ? 5 : 6; }
  constexpr int shared_bytes() const {
    const int tile = 4 * (1 + pieces() + groups);
    const int widest = dim > value_dim ? dim : value_dim;
    return groups * query_places * (64 * widest * 2 + 24) +
           slots * (cols * widest * 2 + 16 + tile) + 2 * 24 + 8 + 1024;
  }
};

/** @brief The kernel for the forward pass on wgmma; `dim` is 0 where it cannot run, and the
 * portable kernel does. */
constexpr WarpgroupForward warpgroup_forward(const AttentionCase& c) {
  const int widest = std::max(c.head_dim, c.value_dim);
  const bool fits = (c.dtype == f16 || c.dtype == bf16) && c.capability == 90 && c.block >= 16 &&
                    c.head_dim % 8 == 0 && c.value_dim % 8 == 0 && widest <= 256 &&
                    c.traits.known();
  if (!fits) return {};
  const auto padded = [](int dim) { return std::max(64, (dim + 63) / 64 * 64); };
  WarpgroupForward k{.dtype = c.dtype,
                     .dim = padded(c.head_dim),
                     .value_dim = padded(c.value_dim),
                     .block = c.block,
                     .banded = c.traits.banded,
                     .rules = c.traits.rules & device::warpgroup_attention_rules};
  const auto has = [&](unsigned rules) { return (k.rules & rules) != 0; };
  if (widest > 192 && has(device::rule_bias | device::rule_table)) return {};  // would spill
  // Registers of wide values, of biases, or of two among bounds, dropout, a mask and a table leave
  // room for half a tile.
  const int crowd =
      k.banded + has(device::rule_dropout) + has(device::rule_bits) + has(device::rule_table);
  if (widest > 128 || has(device::rule_bias) || (k.value_dim > 64 && crowd > 1)) k.cols = 64;
  if (widest > 192) k.groups = 1;  // nor is there memory for the queries of two
  // With 32 sums a thread there are registers for a third warpgroup, which hides what the other two
  // wait for better than turns do.
  if (widest <= 64 && k.rules == 0 && !k.banded && !c.traits.pinned) k.groups = 3;
  k.turns = c.block == 128 && k.cols == 128 && k.groups == 2;
  k.slots = k.least_slots();
  k.query_places = 2;  // the next queries come while results leave, where there is room
  if (k.shared_bytes() > c.shared_bytes) k.query_places = 1;
  k.slots = 12;
  while (k.slots > k.least_slots() && k.shared_bytes() > c.shared_bytes) --k.slots;
  return k.shared_bytes() <= c.shared_bytes ? k : WarpgroupForward{};
}

}  // namespace bs::cuda
