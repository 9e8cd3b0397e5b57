#include <bs/kernels/cuda/attention/sparse_attention_plan.h>
#include <bs/kernels/sparse_attention.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::cuda;

TEST_CASE("sparse_attention: which kernel the forward pass takes") {
  constexpr int h200 = 227 * 1024;
  const auto runs = [](const AttentionCase& c) { return warpgroup_forward(c).dim; };
  CHECK(runs({bf16, 128, 128, 64, 90, h200}) == 128);
  CHECK(runs({f16, 72, 72, 16, 90, h200}) == 128);
  CHECK(runs({f16, 64, 64, 16, 90, h200}) == 64);
  CHECK(runs({bf16, 8, 8, 128, 90, h200}) == 64);
  CHECK(runs({bf16, 136, 136, 64, 90, h200}) == 192);
  CHECK(runs({bf16, 200, 64, 64, 90, h200}) == 256);
  CHECK(runs({bf16, 128, 128, 8, 90, h200}) == 0);    // blocks of 8
  CHECK(runs({f32, 128, 128, 64, 90, h200}) == 0);    // not of 16 bits
  CHECK(runs({bf16, 264, 64, 64, 90, h200}) == 0);    // wider than the kernel
  CHECK(runs({bf16, 64, 264, 64, 90, h200}) == 0);    // likewise
  CHECK(runs({bf16, 64, 60, 64, 90, h200}) == 0);     // rows that begin at no multiple of 16 bytes
  CHECK(runs({bf16, 128, 128, 64, 80, h200}) == 0);   // not Hopper
  CHECK(runs({bf16, 128, 128, 64, 100, h200}) == 0);  // after Hopper
  CHECK(runs({bf16, 128, 128, 64, 90, 163 * 1024}) == 0);
}

TEST_CASE("sparse_attention: how the forward pass cuts wide keys and values") {
  const auto kernel = [](int head_dim, int value_dim) {
    return warpgroup_forward({bf16, head_dim, value_dim, 128, 90, 227 * 1024});
  };
  CHECK(kernel(64, 128).value_dim == 128);
  CHECK(kernel(128, 64).value_dim == 64);
  CHECK(kernel(128, 64).cols == 128);
  for (const int value_dim : {64, 128, 192}) {
    CHECK(kernel(192, value_dim).cols == 64);
    CHECK(kernel(192, value_dim).groups == 2);
    CHECK(kernel(256, value_dim).groups == 1);
    CHECK_FALSE(kernel(192, value_dim).turns);
  }
  const auto masked = [](int value_dim, bool banded) {
    const AttentionTraits traits{banded, device::rule_bits};
    return warpgroup_forward({bf16, 128, value_dim, 128, 90, 227 * 1024, traits});
  };
  CHECK(masked(128, true).cols == 64);
  CHECK(masked(128, false).cols == 128);
  CHECK(masked(64, true).cols == 128);
  const auto biased = [](int dim) {
    const AttentionTraits traits{.rules = device::rule_bias};
    return warpgroup_forward({bf16, dim, dim, 64, 90, 227 * 1024, traits});
  };
  CHECK(biased(64).cols == 64);
  CHECK(biased(192).cols == 64);
  CHECK(biased(256).dim == 0);
}

TEST_CASE("sparse_attention: the next queries come while results leave, where there is room") {
  const auto places = [](int dim, int block) {
    return warpgroup_forward({bf16, dim, dim, block, 90, 227 * 1024}).query_places;
  };
  CHECK(places(64, 16) == 2);
  CHECK(places(128, 128) == 2);
  CHECK(places(128, 64) == 1);  // a ring of less than six tiles may stop for good
  CHECK(places(256, 128) == 1);
}

TEST_CASE("sparse_attention: narrow heads have three warpgroups where tiles may lie anywhere") {
  const auto groups = [](int head_dim, int value_dim, const AttentionTraits& traits) {
    return warpgroup_forward({bf16, head_dim, value_dim, 128, 90, 227 * 1024, traits}).groups;
  };
  CHECK(groups(64, 64, {}) == 3);
  CHECK(groups(40, 64, {}) == 3);
  CHECK(groups(64, 128, {}) == 2);
  CHECK(groups(64, 64, {.banded = true}) == 2);
  CHECK(groups(64, 64, {.rules = device::rule_sinks}) == 2);
  CHECK(groups(64, 64, {.pinned = true}) == 2);
}

TEST_CASE("sparse_attention: which head_dims the GPU takes") {
  for (const int64_t dim : {8, 72, 256}) CHECK(refused_head_dim(dim) == nullptr);
  for (const int64_t dim : {4, 12, 257, 264}) CHECK(refused_head_dim(dim) != nullptr);
}

TEST_CASE("sparse_attention: which terms of scores the kernels on wgmma know") {
  using namespace bs::cuda::device;
  const auto kernel = [](unsigned rules) {
    return warpgroup_forward({bf16, 128, 128, 64, 90, 227 * 1024, {.rules = rules}});
  };
  CHECK(kernel(0).rules == 0);
  CHECK(kernel(rule_sinks).rules == rule_sinks);
  CHECK(kernel(rule_sinks | rule_window).rules == rule_sinks);  // a window is one of the bounds
  CHECK(kernel(rule_window) == kernel(0));
  for (unsigned rule = 1; rule <= rule_sinks; rule *= 2) {
    const bool known = (rule & (warpgroup_attention_rules | rule_window)) != 0;
    CHECK((kernel(rule).dim == 128) == known);
    CHECK((kernel(rule | rule_sinks).dim == 128) == known);
  }
}

TEST_CASE("sparse_attention: a mask of bytes becomes one of bits, unless there are bits") {
  using namespace bs::cuda::device;
  CHECK(attention_warpgroup_rules(0) == 0);
  CHECK(attention_warpgroup_rules(rule_ragged | rule_window) == rule_window);
  CHECK(attention_warpgroup_rules(rule_bits | rule_dropout) == (rule_bits | rule_dropout));
  CHECK(attention_warpgroup_rules(rule_mask | rule_softcap) == (rule_bits | rule_softcap));
  const AttentionTraits both{.rules = attention_warpgroup_rules(rule_mask | rule_bits)};
  CHECK_FALSE(both.known());
}

TEST_CASE("sparse_attention: what the plan asks of shared memory is there") {
  for (const DType dtype : {f16, bf16})
    for (int head_dim = 8; head_dim <= 256; head_dim += 8)
      for (const int value_dim : {8, 64, 72, 128, 136, 192, 200, 256})
        for (const int block : {16, 32, 64, 128})
          for (const int bytes : {99 * 1024, 163 * 1024, 227 * 1024}) {
            const WarpgroupForward k =
                warpgroup_forward({dtype, head_dim, value_dim, block, 90, bytes});
            CHECK((k.dim > 0 || bytes < 227 * 1024));
            if (k.dim == 0) continue;
            CHECK(k.shared_bytes() <= bytes);
            CHECK(k.dim >= head_dim);
            CHECK(k.value_dim >= value_dim);
            CHECK(k.threads() <= 512);
            CHECK((k.block == block || (block > 128 && k.block == 128)));
          }
}
