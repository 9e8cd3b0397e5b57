#pragma once
/** @file What kernels on wgmma are asked for: whether they can, and what they need beside operands.
 */
#include <bs/kernels/cuda/attention/ragged_layout.h>
#include <bs/kernels/cuda/attention/sparse_attention_bits.h>
#include <bs/kernels/cuda/attention/sparse_attention_plan.h>
#include <bs/kernels/cuda/attention/sparse_attention_warpgroup.h>

#include <optional>

namespace bs::cuda {

/** @brief A problem of attention as these kernels see it. Where they can run it holds what is made
 * for them: the one layout of ragged sequences, and a mask in bits. */
class AttentionWarpgroups {
 public:
  /** @param[in] rules of the problem, as the portable kernels have them */
  AttentionWarpgroups(unsigned rules, const Tensor& q, const Tensor& k, const Tensor& v,
                      const Layout& layout, const SparseAttentionOptions& options, Stream stream);

  bool run() const { return runs_; }
  const AttentionTraits& traits() const { return traits_; }
  /** @brief Whether tiles of `side` keys may have keys that a query of theirs does not see. */
  bool hides(int block, int side, const SparseAttentionOptions& options) const {
    return block < side || traits_.banded || options.causal || padded_.defined() || ragged_ ||
           (traits_.rules & (device::rule_bits | device::rule_bias)) != 0;
  }
  AttentionGrid grid(const Tensor& q, const Tensor& k, const Layout& layout) const;

 private:
  AttentionTraits traits_;
  Tensor padded_;
  AttentionMask mask_;
  std::optional<Kept<RaggedLayout>> ragged_;
  bool runs_ = false, cut_ = false;  ///< cut: keys beyond a sequence's end must be hidden
};

}  // namespace bs::cuda
