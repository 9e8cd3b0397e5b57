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
  using Base::p, Base::store, Base::team;
  using typename Base::Keys, typename Base::Place, typename Base::Scores;

  /// Goes on to the next step that any of the warpgroup's keys see; gives the others back.
  __device__ bool seek(RingPlace<Ring::stages>& at, int last) const {
    while (true) {
      team.full[at.stage].wait(at.parity);
      const int query = team.steps[at.stage].query[0];
      if (query < 0) return false;
      // Bounded on both sides, steps that nobody sees could fill the ring while one is held.
      if (Ring::block < 128 || Ring::banded || !p.problem.reach.causal() || query + 63 >= last - 63)
        return true;
      release(at.stage);
      at.advance();
    }
  }

  __device__ void run_item(int item, RingPlace<Ring::stages>& at, unsigned& turn) const {
    const float scale = Scores::scale(p.problem.scale, p.terms);
    const Keys keys = keys_of(Place(p, item));
    const int last = keys.first + 63;
    float dk[Ring::dim / 2], dv[Ring::value_dim / 2], s[32], dp[32];
    unsigned weights[4][4];
    typename Scores::Elements elements;
    leave_staging();
    int leaving = -1;  // stage that products under way read
    bool started = false;
    // Products are waited for in the order they are asked for: scores, dk of the step before,
    // the gradients of weights, dv.
    if (seek(at, last)) {
      ask_scores(s, at.stage);
      warpgroup_commit();
      elements.look_up(p.terms, team.steps[at.stage], keys.first);
      ask_weight_gradients(dp, at.stage);
#pragma unroll 1
      while (true) {
        const int now = at.stage;
        const float* numbers = team.numbers[now][0] + Base::thread_of_all() % 4 * 2;
        warpgroup_wait<2>();
        warpgroup_pin(s);
        const unsigned seen = keys.seen(team.steps[now], p.problem.reach);
        const Scores scores{p.terms, keys, team.steps[now], scale, numbers, elements};
        scores.weigh(s);
        if (!keys.whole(seen))
          keys.hide(s, Scores::hidden(), team.steps[now], p.problem.reach, seen);
        if constexpr (Steps::masked) elements.seen.hide(s, Scores::hidden());
        warpgroup_wait<1>();
        started = leaving >= 0;
        if (started) release(leaving);
        leaving = now;
        scores.pack_weights(weights, s);
        ask_dv(dv, weights, now, started);
        warpgroup_wait<1>();
        warpgroup_pin(dp);
        scores.differentiate(dp, s);
        if (!keys.whole(seen)) keys.hide(dp, 0, team.steps[now], p.problem.reach, seen);
        if constexpr (Steps::masked) elements.seen.hide(dp, 0, true);
        warpgroup_wait<0>();
        leave(dp, weights, turn);
        at.advance();
        const bool more = seek(at, last);
        if (!more) break;
        ask_scores(s, at.stage);
        ask_dk(dk, weights, now, started);
        elements.look_up(p.terms, team.steps[at.stage], keys.first);
        ask_weight_gradients(dp, at.stage);
        store(team.steps[now], turn, keys.first);
      }
      ask_dk(dk, weights, leaving, started);
      store(team.steps[leaving], turn, keys.first);
      warpgroup_wait<0>();
    }
    warpgroup_pin(dk);
    warpgroup_pin(dv);
    if (leaving >= 0) release(leaving);
    release(at.stage);  // the one that says the end
    at.advance();
    if (threadIdx.x % 32 == 0) team.free.arrive();
    const Place place(p, item);
    const Keys stored{keys.first, leaving < 0 ? ~0u : keys.padding};
    if (leaving >= 0 && not_finite(dk) + not_finite(dv) != 0) *p.problem.odd = 1;
    store_rows(p.dk, p.dk_rows, dk, p.problem.scale, stored, place);
    store_rows(p.dv, p.dv_rows, dv, Steps::drops ? p.terms.dropout.kept : 1, stored, place);
  }
};

template <class Config>
struct WarpgroupKeyGradient : AttentionKeyRing<Config> {
  using Ring = AttentionKeyRing<Config>;

  __device__ static void run(const WarpgroupKeyGradientParams& p) {
    Ring::run(p, [&](typename Ring::Team& team, unsigned kept, unsigned staging, int group) {
      const AttentionKeyGradients<Ring> gradients{{p, team, kept, staging, group}};
      unsigned turn = 0;  // of the two buffers that gradients of scores leave through
      gradients.run(
          [&](int item, RingPlace<Ring::stages>& at) { gradients.run_item(item, at, turn); });
    });
  }
};

}  // namespace bs::cuda::device
