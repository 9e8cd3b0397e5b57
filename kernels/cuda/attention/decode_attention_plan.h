#pragma once
/** @file How attention of few queries to many keys runs: pure functions of the problem and the GPU.
 */
#include <bs/lib/dtype.h>
#include <bs/lib/integers.h>
#include <bs/kernels/cuda/device/attention/attention_problem.cuh>

#include <algorithm>
#include <compare>
#include <cstdint>

namespace bs::cuda {

/** @brief Rows of a tile, a query of a head each: those of one instruction of the tensor cores. */
constexpr int decode_rows = 16;

/** @brief What the choice depends on. */
struct DecodeCase {
  DType dtype = bf16;
  int64_t queries = 1;
  int64_t head_dim = 0, value_dim = 0;
  unsigned rules = 0;    ///< device::AttentionRule bits
  int shared_bytes = 0;  ///< that a CTA can have
};

/** @brief A kernel of device/attention/decode_attention.cuh. */
struct DecodeKernel {
  DType dtype = bf16;
  int dim = 0;                ///< head_dim and value_dim, padded with zeros
  int warps = 4, stages = 0;  ///< of a CTA, and of a warp
  int ctas = 1;               ///< that a multiprocessor holds
  unsigned rules = 0;
  auto operator<=>(const DecodeKernel&) const = default;  // NOLINT(modernize-use-nullptr): its bug

  constexpr int threads() const { return 32 * warps; }
  constexpr int line() const { return dim * static_cast<int>(size_of(dtype)) + 16; }
  constexpr int stage_bytes() const { return 32 * line() + 64; }
  constexpr int shared_bytes() const {
    return decode_rows * line() + warps * stages * stage_bytes() + 16;
  }
};

/** @brief The kernel that has most bytes on their way. `dim` is 0 for problems that are not few
 *  queries, whose dtype or rules it does not know, or whose rows are too wide for the GPU. */
constexpr DecodeKernel decode_kernel(const DecodeCase& c) {
  constexpr unsigned unknown = device::rule_dropout | device::rule_ragged;
  constexpr int most_stages = 4, reserved = 1024;  // bytes that each CTA takes beside its own
  const auto widest = static_cast<int>(std::max(c.head_dim, c.value_dim));
  const bool halves = (c.dtype == f16 || c.dtype == bf16) && widest <= 256;
  const bool floats = c.dtype == f32 && widest <= 128;  // wider rows would spill
  if ((!halves && !floats) || c.queries > decode_rows || (c.rules & unknown) != 0) return {};
  DecodeKernel best;
  for (const int ctas : {2, 1})
    for (const int warps : {4, 2}) {
      DecodeKernel k{c.dtype, static_cast<int>(round_up(widest, 32)), warps, 0, ctas, c.rules};
      const int room = (c.shared_bytes + reserved) / ctas - reserved - k.shared_bytes();
      k.stages = std::min(room / (warps * k.stage_bytes()), most_stages);
      const auto on_their_way = [](const DecodeKernel& of) {
        return of.ctas * of.warps * (of.stages - 1);
      };
      if (k.stages > 1 && on_their_way(k) > on_their_way(best)) best = k;
    }
  return best.stages > 1 ? best : DecodeKernel{};
}

/** @brief Heads of a tile, at most. Those with rows of blocks of their own share no keys.
 *  @param[in] group heads of q that share keys */
constexpr int decode_heads(int64_t queries, int group, bool one_layout) {
  return one_layout ? std::min(group, decode_rows / static_cast<int>(queries)) : 1;
}

/** @brief Parts that the keys of each tile are cut into, a CTA each, so that the last one ends
 *  soonest: CTAs end in waves, and begin and end in the time of 128 keys, of which a part has no
 *  fewer.
 *  @param[in] ctas that the GPU holds */
constexpr int decode_parts(int64_t ctas, int64_t tiles, int64_t keys) {
  constexpr int64_t least = 128, most_waves = 4;
  const auto cost = [&](int64_t parts) {
    return ceil_div(tiles * parts, ctas) * (ceil_div(keys, parts) + least);
  };
  int64_t best = 1;
  for (int64_t waves = 1; waves <= most_waves; ++waves) {
    const int64_t parts =
        std::clamp<int64_t>(waves * ctas / tiles, 1, std::max<int64_t>(keys / least, 1));
    if (cost(parts) < cost(best)) best = parts;
  }
  return static_cast<int>(best);
}

}  // namespace bs::cuda
