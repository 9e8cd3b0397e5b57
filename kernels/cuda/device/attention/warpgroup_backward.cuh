#pragma once
// Gradients of keys and values of attention on wgmma, and those of the scores, which go to memory
// for dq (warpgroup_query_gradient.cuh): no sum is ever added to by two CTAs, so that all have a
// fixed order.
//
// A team, one or two warpgroups with 64 keys each and a warp that copies for them, keeps a strip of
// keys and values and meets the queries that its union of block columns lists, 64 a step. Scores
// stand transposed, keys by queries: so weights and gradients of scores are left operands of the
// products with dout and q where they are, in registers.
#include <bs/kernels/cuda/device/attention/warpgroup_backward_products.cuh>

namespace bs::cuda::device {

/// A warpgroup that has both gradients of its keys.
template <class Ring>
struct AttentionKeyGradients : AttentionKeyWarpgroup<Ring> {
  using Base = AttentionKeyWarpgroup<Ring>;
  using Steps = typename Ring::Steps;
  using Base::ask_dk, Base::ask_dv, Base::ask_scores, Base::ask_weight_gradients;
  using Base::keys_of, Base::leave, Base::leave_staging, Base::release, Base::store_rows;
  using Base::p, Base::staging, Base::store, Base::team;
  using typename Base::Keys, typename Base::Scores;

  /// Whether the warpgroup's keys see the queries of a step.
  __device__ bool sees(const typename Ring::Step& step, const Keys& keys) const {
    if (!keys.any(step)) return false;
    // Keys of a warpgroup see all steps but in large blocks on the diagonal.
    if (Ring::block < 64 || Ring::banded || !p.problem.reach.causal()) return true;
    return step.query[0] + 63 >= keys.first;
  }
  /// Goes on to the next step that they see, past `most` others at most, which it gives back. After
  /// more of them, a stage that is kept would be the one that all wait for.
  __device__ bool seek(RingPlace<Ring::stages>& at, const Keys& keys, int most) const {
    while (true) {
      team.full[at.stage].wait(at.parity);
      const typename Ring::Step& step = team.steps[at.stage];
      if (step.query[0] < 0) return false;
      if (sees(step, keys)) return true;
      if (most-- == 0) return false;
      release(at.stage);
      at.advance();
    }
  }

  __device__ void run_item(const AttentionTarget& target, RingPlace<Ring::stages>& at,
                           unsigned& turn) const {
    const float scale = Scores::scale(p.problem, p.terms);
    const Keys keys = keys_of(target);
    float dk[Ring::dim / 2], dv[Ring::value_dim / 2], s[32], dp[32];
    unsigned weights[4][4];
    typename Scores::Elements elements;
    leave_staging();
    const unsigned staged = staging + Base::scores_at();
    bool started = false;
    // Products are waited for in the order they are asked for: scores, dk of the step before,
    // the gradients of weights, dv.
#pragma unroll 1
    while (seek(at, keys, 1 << 30)) {
      int leaving = -1;  // stage that products under way read
      ask_scores(s, at.stage);
      warpgroup_commit();
      elements.look_up(p.terms, team.steps[at.stage], keys.first);
      ask_weight_gradients(dp, at.stage);
#pragma unroll 1
      while (true) {
        const int now = at.stage;
        const float* numbers = team.numbers[now][0] + Base::thread_of_all() % 4 * 2;
        const unsigned seen = keys.seen(team.steps[now], p.problem.reach);
        warpgroup_wait<2>();
        warpgroup_pin(s);
        const Scores scores{p.terms, keys, team.steps[now], scale, numbers, elements};
        scores.weigh(s);
        if (!keys.whole(seen))
          keys.hide(s, Scores::hidden(), team.steps[now], p.problem.reach, seen);
        if constexpr (Steps::masked) elements.seen.hide(s, Scores::hidden());
        warpgroup_wait<1>();
        scores.pack_weights(weights, s);
        ask_dv(dv, weights, now, started);
        if (leaving >= 0) release(leaving);
        leaving = now;
        warpgroup_wait<1>();
        warpgroup_pin(dp);
        scores.differentiate(dp, s);
        if (!keys.whole(seen)) keys.hide(dp, 0, team.steps[now], p.problem.reach, seen);
        if constexpr (Steps::masked) elements.seen.hide(dp, 0, true);
        warpgroup_wait<0>();
        leave(dp, weights, staged + turn);
        at.advance();
        const bool more = seek(at, keys, Ring::stages - 2);
        if (!more) break;
        ask_scores(s, at.stage);
        ask_dk(dk, weights, now, started);
        started = true;
        elements.look_up(p.terms, team.steps[at.stage], keys.first);
        ask_weight_gradients(dp, at.stage);
        store(team.steps[now], turn, keys.first);
      }
      ask_dk(dk, weights, leaving, started);
      started = true;
      store(team.steps[leaving], turn, keys.first);
      warpgroup_wait<0>();
      release(leaving);
    }
    warpgroup_pin(dk);
    warpgroup_pin(dv);
    release(at.stage);  // the one that says the end
    at.advance();
    if (threadIdx.x % 32 == 0) team.free.arrive();
    const AttentionHeadAt head = Base::head_of(target);
    const Keys stored{keys.first, started ? keys.padding : ~0u};
    if (started && not_finite(dk) + not_finite(dv) != 0) *p.problem.odd = 1;
    store_rows(p.dk, p.dk_rows, dk, p.problem.scale, stored, head);
    store_rows(p.dv, p.dv_rows, dv, Steps::drops ? p.terms.dropout.kept : 1, stored, head);
  }
};

template <class Config>
struct WarpgroupKeyGradient : AttentionKeyRing<Config> {
  using Ring = AttentionKeyRing<Config>;

  __device__ static void run(const WarpgroupKeyGradientParams& p) {
    Ring::run(p, [&](typename Ring::Team& team, unsigned kept, unsigned staging, int group) {
      const AttentionKeyGradients<Ring> gradients{{p, team, kept, staging, group}};
      unsigned turn = 0;  // of the two buffers that gradients of scores leave through
      gradients.run([&](const AttentionTarget& target, RingPlace<Ring::stages>& at) {
        gradients.run_item(target, at, turn);
      });
    });
  }
};

}  // namespace bs::cuda::device
