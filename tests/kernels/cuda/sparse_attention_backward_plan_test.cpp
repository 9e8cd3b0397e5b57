#include <bs/kernels/cuda/attention/sparse_attention_backward_plan.h>
#include <bs/kernels/cuda/attention/sparse_attention_stored_scores.h>
#include <bs/kernels/cuda/attention/sparse_attention_warpgroup_backward.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_strips.h>
#include <bs/lib/integers.h>
#include <bs/lib/patterns.h>
#include <bs/tests/support/kernel_sweep.h>
#include <doctest/doctest.h>
#include <bs/kernels/cuda/device/attention/warpgroup_backward_problem.cuh>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

using namespace bs;
using namespace bs::cuda;

namespace {

AttentionBackwardProblem on_hopper(int block, int head_dim, int value_dim = 0) {
  return {.capability = 90,
          .shared_bytes = 227 << 10,
          .block = block,
          .head_dim = head_dim,
          .value_dim = value_dim > 0 ? value_dim : head_dim,
          .kv_heads = 32,
          .head_blocks = 640};
}

/// Kernels of keys and values with every set of rules that they know and the plan asks for; of wide
/// heads those whose values are as wide.
std::vector<AttentionBackwardKernel> kernels_with_rules() {
  std::vector<AttentionBackwardKernel> all;
  for (const AttentionBackwardKernel& k : all_attention_backward_kernels())
    for (unsigned rules = 1; rules < device::rule_sinks; ++rules) {
      if (k.pass != AttentionBackwardKernel::Pass::key_gradient) break;
      if (k.block < 64 && k.strip == 128) break;  // knows none
      if (k.paired && k.value_dim != k.dim) break;
      if ((rules & ~device::warpgroup_attention_rules) != 0) continue;
      AttentionBackwardProblem p = on_hopper(k.block, k.dim, k.value_dim);
      p.traits = {k.banded, rules};
      const AttentionBackwardPlan plan = attention_backward_plan(p);
      if (!plan.warpgroup || plan.key_banded != k.banded) continue;
      all.push_back(k);
      all.back().rules = rules;
      all.back().paired = plan.paired;
      all.back().strip = plan.strip;
      all.back().stages = plan.key_stages;
    }
  return all;
}

/// A ring of stages, one producer and consumers that each want some of the steps. A consumer keeps
/// the last stage that it used until the next one is under way. It passes over `most` steps that it
/// does not want, and gives back what it keeps before it passes over more.
class Ring {
 public:
  Ring(int stages, std::vector<std::vector<bool>> wanted, int most)
      : wanted_(std::move(wanted)), most_(most), owed_(static_cast<size_t>(stages), 0) {
    for (size_t c = 0; c < wanted_.size(); ++c) consumers_.push_back({});
  }

  /// Whether all steps are done, whoever is given a turn when.
  bool ends(unsigned seed) {
    std::mt19937 generator(seed);
    const size_t steps = wanted_[0].size();
    int idle = 0;
    while (idle < 1000) {
      const size_t who = generator() % (consumers_.size() + 1);
      idle = (who == consumers_.size() ? produce(steps) : consume(who)) ? 0 : idle + 1;
      if (std::all_of(consumers_.begin(), consumers_.end(),
                      [&](const Consumer& c) { return c.step == steps; }))
        return true;
    }
    return false;
  }

 private:
  struct Consumer {
    size_t step = 0;
    int kept = -1;   ///< stage
    int passed = 0;  ///< steps since
  };

  bool produce(size_t steps) {
    int& owed = owed_[filled_ % owed_.size()];
    if (filled_ == steps || owed != 0) return false;
    owed = static_cast<int>(consumers_.size());
    ++filled_;
    return true;
  }

  bool consume(size_t who) {
    Consumer& c = consumers_[who];
    if (c.step == filled_ || c.step == wanted_[who].size()) return false;
    const auto stage = static_cast<int>(c.step % owed_.size());
    if (wanted_[who][c.step]) {
      give_back(c);
      c.kept = stage;
      c.passed = 0;
    } else {
      if (c.passed++ == most_) give_back(c);
      --owed_[static_cast<size_t>(stage)];
    }
    if (++c.step == wanted_[who].size()) give_back(c);
    return true;
  }
  void give_back(Consumer& c) {
    if (c.kept >= 0) --owed_[static_cast<size_t>(c.kept)];
    c.kept = -1;
  }

  std::vector<std::vector<bool>> wanted_;
  int most_;
  std::vector<int> owed_;  ///< consumers that have a stage still
  std::vector<Consumer> consumers_;
  size_t filled_ = 0;
};

}  // namespace

TEST_CASE("sparse_attention_backward: what runs is decided before a launch") {
  CHECK(attention_backward_plan(on_hopper(128, 128)).warpgroup);
  CHECK(attention_backward_plan(on_hopper(16, 8)).warpgroup);
  CHECK_FALSE(attention_backward_plan(on_hopper(8, 64)).warpgroup);
  CHECK_FALSE(attention_backward_plan(on_hopper(64, 264)).warpgroup);
  CHECK_FALSE(attention_backward_plan(on_hopper(64, 64, 264)).warpgroup);
  CHECK_FALSE(attention_backward_plan(on_hopper(64, 64, 60)).warpgroup);
  CHECK(attention_backward_plan(on_hopper(64, 40, 72)).dim == 64);
  CHECK(attention_backward_plan(on_hopper(64, 40, 72)).value_dim == 128);
  CHECK_FALSE(attention_backward_plan(on_hopper(64, 60)).warpgroup);
  for (const int capability : {80, 86, 100, 120}) {
    AttentionBackwardProblem p = on_hopper(64, 64);
    p.capability = capability;
    CHECK_FALSE(attention_backward_plan(p).warpgroup);
  }
  for (unsigned rule = 1; rule <= device::rule_sinks; rule *= 2) {
    AttentionBackwardProblem p = on_hopper(64, 64);
    p.traits.rules = rule;
    const unsigned known = device::warpgroup_attention_rules | device::rule_window;
    CHECK(attention_backward_plan(p).warpgroup == ((rule & known) != 0));
  }
  AttentionBackwardProblem capped = on_hopper(64, 64);
  CHECK(attention_backward_plan(capped).rules == 0);
  capped.traits.rules = device::rule_softcap | device::rule_sinks | device::rule_window;
  CHECK(attention_backward_plan(capped).rules == device::rule_softcap);
  CHECK_FALSE(attention_backward_plan(capped).key_banded);
  capped.traits.banded = true;
  CHECK(attention_backward_plan(capped).key_banded);
  CHECK(attention_backward_plan(capped).query_banded);
  AttentionBackwardProblem sloped = on_hopper(64, 64);
  sloped.traits.rules = device::rule_slopes;
  CHECK(attention_backward_plan(sloped).key_banded);
  CHECK_FALSE(attention_backward_plan(sloped).query_banded);
  AttentionBackwardProblem wide = on_hopper(64, 64);
  wide.element = 4;
  CHECK_FALSE(attention_backward_plan(wide).warpgroup);
}

TEST_CASE("sparse_attention_backward: options that leave no registers take two warpgroups") {
  for (const int block : {16, 32, 64, 128}) {
    AttentionBackwardProblem dropped = on_hopper(block, 128);
    dropped.traits.rules = device::rule_dropout;
    CHECK(attention_backward_plan(dropped).warpgroup);
    CHECK(attention_backward_plan(dropped).rules == dropped.traits.rules);
    CHECK(attention_backward_plan(dropped).key_banded == (block < 64));
    CHECK_FALSE(attention_backward_plan(dropped).paired);
    dropped.traits.rules |= device::rule_softcap;  // which one warpgroup has no registers for
    CHECK(attention_backward_plan(dropped).paired);
    CHECK_FALSE(attention_backward_plan(dropped).key_banded);
    dropped.head_dim = dropped.value_dim = 64;
    CHECK_FALSE(attention_backward_plan(dropped).paired);
    dropped.traits.rules |= device::rule_bits;  // nor for a bit of both for each score
    CHECK(attention_backward_plan(dropped).paired);
    CHECK(attention_backward_plan(dropped).warpgroup);
  }
  for (const unsigned added : {unsigned{device::rule_bias}, unsigned{device::rule_table}}) {
    AttentionBackwardProblem p = on_hopper(64, 128);
    p.traits.rules = added;
    CHECK(attention_backward_plan(p).warpgroup);
    CHECK(attention_backward_plan(p).key_banded);
    p.traits.rules = added | device::rule_softcap;
    CHECK(attention_backward_plan(p).paired);
    p.head_dim = p.value_dim = 64;
    CHECK_FALSE(attention_backward_plan(p).paired);
  }
}

TEST_CASE("sparse_attention_backward: two columns of blocks of 64 meet the same queries") {
  const auto strip = [](AttentionBackwardProblem p) { return attention_backward_plan(p).strip; };
  for (const int head_dim : {64, 128, 256}) {
    CHECK(strip(on_hopper(128, head_dim)) == (head_dim == 256 ? 64 : 128));
    CHECK(strip(on_hopper(64, head_dim)) == (head_dim == 128 ? 128 : 64));
    for (const int block : {16, 32}) CHECK(strip(on_hopper(block, head_dim)) == 64);
  }
  CHECK(strip(on_hopper(64, 64, 128)) == 128);
  AttentionBackwardProblem capped = on_hopper(64, 128);
  capped.traits.rules = device::rule_softcap;
  CHECK(strip(capped) == 64);
  capped.traits = {.banded = true};
  CHECK(strip(capped) == 128);
}

TEST_CASE(
    "sparse_attention_backward: columns of small blocks that are alike meet the same queries") {
  for (const int block : {16, 32})
    for (const int head_dim : {64, 128, 256}) {
      AttentionBackwardProblem p = on_hopper(block, head_dim);
      p.alike = true;
      const AttentionBackwardPlan plan = attention_backward_plan(p);
      CHECK(plan.strip == (head_dim == 128 ? 128 : 64));
      CHECK(plan.key_stages == (head_dim == 256 ? 2 : 4));
      p.traits.banded = true;
      CHECK(attention_backward_plan(p).strip == 64);
      p.traits = {.rules = device::rule_softcap};
      CHECK(attention_backward_plan(p).strip == 64);
    }
  CHECK(attention_columns_alike(0, 0));
  CHECK(attention_columns_alike(200, 115));  // which takes 1.15 of the steps
  CHECK_FALSE(attention_columns_alike(200, 116));
}

TEST_CASE("sparse_attention_backward: two warpgroups share the keys of wide heads") {
  for (const int block : {16, 32, 64, 128}) {
    CHECK_FALSE(attention_backward_plan(on_hopper(block, 128)).paired);
    for (const auto& [head_dim, value_dim] :
         {std::pair{136, 64}, {64, 192}, {192, 128}, {256, 256}}) {
      const AttentionBackwardPlan plan =
          attention_backward_plan(on_hopper(block, head_dim, value_dim));
      CHECK(plan.warpgroup);
      CHECK(plan.paired);
      CHECK(plan.dim == round_up(head_dim, 64));
      CHECK(plan.value_dim == round_up(value_dim, 64));
    }
    for (const unsigned added : {unsigned{device::rule_bias}, unsigned{device::rule_table}})
      for (const int head_dim : {192, 256}) {
        AttentionBackwardProblem p = on_hopper(block, head_dim);
        p.traits.rules = added;
        CHECK(attention_backward_plan(p).warpgroup == (head_dim == 192));
      }
  }
}

TEST_CASE("sparse_attention_backward: kernels fit the memory that there is, or others run") {
  for (const int kilobytes : {48, 99, 163, 227})
    for (const int block : {16, 32, 64, 128})
      for (const int head_dim : {8, 64, 72, 128, 192, 256}) {
        AttentionBackwardProblem p = on_hopper(block, head_dim, head_dim == 64 ? 128 : head_dim);
        p.shared_bytes = kilobytes << 10;
        if (head_dim % 16 == 8)
          p.traits.rules = head_dim == 8 ? device::rule_dropout : device::rule_bits;
        if (head_dim > 128) p.traits.rules = device::rule_dropout | device::rule_bits;
        p.alike = kilobytes != 163;
        const AttentionBackwardPlan plan = attention_backward_plan(p);
        if (kilobytes == 227) CHECK(plan.warpgroup);
        if (!plan.warpgroup) continue;
        CHECK(plan.dim >= head_dim);
        CHECK(plan.key_stages >= (plan.strip == 128 ? 3 : 2));
        CHECK(plan.query_stages >= 2);
        CHECK(attention_key_gradient_bytes(plan.dim, plan.value_dim, block, plan.strip,
                                           plan.key_stages, plan.rules,
                                           plan.paired) <= p.shared_bytes);
        CHECK(attention_query_gradient_bytes(plan.dim, plan.query_stages) <= p.shared_bytes);
      }
}

TEST_CASE("sparse_attention_backward: launches share the heads, within the memory for gradients") {
  for (const int64_t blocks : {0, 1, 640, 4096, 100000})
    for (const int64_t heads : {1, 2, 7, 32, 1000}) {
      AttentionBackwardProblem p = on_hopper(128, 128);
      p.head_blocks = blocks;
      p.kv_heads = heads;
      const AttentionBackwardPlan plan = attention_backward_plan(p);
      const int64_t head_bytes = blocks * 128 * 128 * 2;
      if (!plan.warpgroup) {
        CHECK(head_bytes > attention_values_bytes);
        continue;
      }
      CHECK(plan.heads >= 1);
      CHECK(plan.heads <= heads);
      CHECK((plan.heads == 1 || plan.heads * head_bytes <= attention_values_bytes));
    }
}

TEST_CASE("sparse_attention_backward: every strip of every head is an item once") {
  for (const int heads : {1, 3, 32})
    for (const int strips : {1, 2, 64})
      for (const int longer : {0, 1, strips / 2, strips})
        for (const int shorter : {0, 1, strips / 4, strips - longer}) {
          if (longer + shorter > strips) continue;
          device::WarpgroupAttention problem{};
          problem.head_count = heads;
          problem.long_strips = longer;
          problem.short_strips = shorter;
          const auto part = [&](int rank) {
            return rank < longer ? 0 : rank < strips - shorter ? 1 : 2;
          };
          std::set<std::pair<int, int>> seen;
          int before = 0, rank = 0;
          for (int item = 0; item < heads * strips; ++item) {
            const device::AttentionItem of(item, problem, strips);
            CHECK(of.head >= 0);
            CHECK(of.head < heads);
            CHECK(of.rank >= 0);
            CHECK(of.rank < strips);
            CHECK(part(of.rank) >= before);
            if (before == 2) CHECK(of.rank >= rank);
            before = part(of.rank);
            rank = of.rank;
            seen.insert({of.head, of.rank});
          }
          CHECK(seen.size() == static_cast<size_t>(heads) * static_cast<size_t>(strips));
        }
}

TEST_CASE("sparse_attention_backward: long strips are those far beyond the mean") {
  const auto of = [](const LayoutPtr& layout) {
    const Kept<Strips> strips = strips_of(*layout, {.transposed = true, .side = 1});
    return attention_long_strips({strips->offsets, strips->order, strips->count});
  };
  CHECK(of(patterns::dense({.rows = 8, .cols = 8, .block = 64})) == 0);
  CHECK(of(Layout::from_blocks(1, 4, 4, 64, {})) == 0);
  CHECK(of(Layout::from_blocks(1, 4, 4, 64, {{0, 0, 2}, {0, 1, 2}, {0, 2, 2}, {0, 0, 0}})) == 1);
  CHECK(of(patterns::dense({.rows = 16, .cols = 16, .block = 64}, {.causal = true})) == 4);
  CHECK(attention_long_strips({}) == 0);
}

TEST_CASE("sparse_attention_backward: short strips fill the time in which CTAs end apart") {
  const auto of = [](const LayoutPtr& layout, int longer, int64_t heads, int64_t workers) {
    const Kept<Strips> strips = strips_of(*layout, {.transposed = true, .side = 1});
    return attention_short_strips({strips->offsets, strips->order, strips->count}, longer, heads,
                                  workers);
  };
  const LayoutPtr causal = patterns::dense({.rows = 16, .cols = 16, .block = 64}, {.causal = true});
  CHECK(of(causal, 0, 1, 1000) == 8);  // of 1 to 8 blocks, where the longest has 16
  CHECK(of(causal, 0, 4, 4) == 6);     // of 21 blocks
  CHECK(of(causal, 4, 1, 1000) == 6);  // where the longest of the others has 12
  CHECK(of(causal, 16, 1, 1000) == 0);
  CHECK(of(patterns::dense({.rows = 8, .cols = 8, .block = 64}), 0, 1, 1000) == 0);
  CHECK(of(Layout::from_blocks(1, 4, 4, 64, {}), 0, 1, 1000) == 0);
  // Of two heads the one that has fewer of them counts.
  CHECK(
      of(Layout::from_blocks(2, 2, 2, 64, {{0, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 0, 0}, {1, 0, 1}}),
         0, 1, 1000) == 0);
  CHECK(attention_short_strips({}, 0, 1, 1000) == 0);
}

TEST_CASE("sparse_attention_backward: rings of stages come to their end") {
  std::mt19937 generator(5);
  bool careless_ends = true;
  for (unsigned round = 0; round < 300; ++round) {
    const size_t steps = generator() % 40;
    std::vector<std::vector<bool>> wanted(2, std::vector<bool>(steps));
    const auto share = static_cast<unsigned>(generator() % 9);
    for (auto& of : wanted)
      for (size_t i = 0; i < steps; ++i) of[i] = generator() % 8 < share;
    for (const int stages : {2, 3, 5}) {
      CHECK(Ring(stages, wanted, 0).ends(round));  // the query pass
      careless_ends = careless_ends && Ring(stages, wanted, stages - 1).ends(round);
    }
    for (const int stages : {3, 4}) CHECK(Ring(stages, wanted, stages - 2).ends(round));
  }
  CHECK_FALSE(careless_ends);  // the model would show it
}

TEST_CASE("sparse_attention_backward: the kernels compile and keep to registers") {
  test::check_kernels(all_attention_backward_kernels(), attention_backward_source, 13, {90});
  test::check_kernels(kernels_with_rules(), attention_backward_source, 503, {90});
  std::vector<AttentionNumbersKernel> numbers;
  for (const DType dtype : {f16, bf16})
    for (const int lanes : {8, 16, 32}) numbers.push_back({dtype, lanes});
  test::check_kernels(numbers, attention_numbers_warpgroup_source, 1, {90});
  test::check_kernels(all_stored_scores_kernels(), stored_scores_source, 3, {90});
}
