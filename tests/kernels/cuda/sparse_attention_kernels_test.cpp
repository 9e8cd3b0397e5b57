#include <bs/kernels/cuda/attention/decode_attention.h>
#include <bs/kernels/cuda/attention/sparse_attention_kernels.h>
#include <bs/kernels/cuda/attention/sparse_attention_warpgroup.h>
#include <bs/tests/support/kernel_sweep.h>
#include <doctest/doctest.h>
#include <bs/kernels/cuda/device/attention/attention_problem.cuh>

using namespace bs;
using namespace bs::cuda;

namespace {

const std::vector<int> large = {80, 90, 100};  ///< GPUs with 163 KB for a CTA and more
const std::vector<int> small = {86, 120};      ///< with 99 KB

/// Every rule by itself, pairs that meet often, and all at once.
std::vector<AttentionKernel> kernels_with_rules(int shared_bytes) {
  using namespace bs::cuda::device;
  std::vector<AttentionKernel> all;
  for (const AttentionKernel& k : all_attention_kernels(shared_bytes)) {
    if (k.whole && k.rules == 0) continue;
    for (const unsigned rules :
         {unsigned{rule_window}, unsigned{rule_softcap}, unsigned{rule_bias}, unsigned{rule_mask},
          unsigned{rule_table}, unsigned{rule_slopes}, unsigned{rule_dropout},
          unsigned{rule_ragged}, unsigned{rule_bits}, rule_table | rule_dropout,
          rule_window | rule_softcap, rule_bits | rule_window, unsigned{all_attention_rules}}) {
      all.push_back(k);
      all.back().rules = rules;
    }
  }
  return all;
}

/// Every set of rules that kernels on wgmma know.
std::vector<WarpgroupForward> warpgroup_kernels_with_rules() {
  std::vector<WarpgroupForward> all;
  for (const WarpgroupForward& k : all_warpgroup_forward_kernels())
    for (unsigned rules = 1; rules <= device::warpgroup_attention_rules; ++rules) {
      if ((rules & ~device::warpgroup_attention_rules) != 0) continue;
      const WarpgroupForward with = warpgroup_forward(
          {k.dtype, k.dim, k.value_dim, k.block, 90, 227 * 1024, {k.banded, rules}});
      if (with.dim > 0) all.push_back(with);
    }
  return all;
}

/// Plain, each rule that such kernels know, and all of them.
std::vector<DecodeKernel> decode_kernels_with_rules(int shared_bytes) {
  using namespace bs::cuda::device;
  constexpr unsigned known = all_attention_rules & ~(rule_dropout | rule_ragged);
  std::vector<DecodeKernel> all;
  for (DecodeKernel k : all_decode_kernels(shared_bytes))
    for (const unsigned rules : {0U, unsigned{rule_window}, unsigned{rule_softcap},
                                 unsigned{rule_mask}, unsigned{rule_table}, known}) {
      k.rules = rules;
      all.push_back(k);
    }
  return all;
}

}  // namespace

TEST_CASE("sparse_attention: the kernels compile and keep to registers") {
  test::check_kernels(all_attention_kernels(), attention_source, 139, large);
  test::check_kernels(std::vector<DType>{f16, bf16, f32, f64}, attention_numbers_source, 3, large);
  test::check_kernels(all_warpgroup_forward_kernels(), warpgroup_forward_source, 23, {90});
}

TEST_CASE("sparse_attention: kernels for little shared memory compile and keep to registers") {
  test::check_kernels(all_attention_kernels(101376), attention_source, 89, small);
}

TEST_CASE("sparse_attention: kernels with more rules compile and keep to registers") {
  test::check_kernels(kernels_with_rules(232448), attention_source, 421, large);
  test::check_kernels(kernels_with_rules(101376), attention_source, 397, small);
  test::check_kernels(warpgroup_kernels_with_rules(), warpgroup_forward_source, 2003, {90});
}

TEST_CASE("sparse_attention: kernels for gradients of biases compile and keep to registers") {
  std::vector<AttentionScoreKernel> all;
  for (const bool diagonals : {false, true})
    for (const DType dtype : {f16, bf16, f32, f64})
      for (const int dim : {64, 128, 256})
        for (const unsigned rules : {0U, unsigned{device::all_attention_rules}})
          all.push_back({diagonals, dtype, dim, rules});
  test::check_kernels(all, attention_score_source, 23, large);
  test::check_kernels(all, attention_score_source, 31, small);
}

TEST_CASE("sparse_attention: kernels for few queries compile and keep to registers") {
  test::check_kernels(decode_kernels_with_rules(232448), decode_source, 31, large);
  test::check_kernels(decode_kernels_with_rules(101376), decode_source, 17, small);
}
