#pragma once
// Gradients of keys and values of attention on wgmma, as warpgroup_backward.cuh has them, where
// registers have no room for both: two warpgroups share 64 keys. One makes weights, gives them to
// the other, and has the gradient of values. The other makes gradients of scores with them, and has
// the gradient of keys. So each does two of the four products.
#include <bs/kernels/cuda/device/attention/warpgroup_backward_products.cuh>

namespace bs::cuda::device {

/// What both of a pair do.
template <class Ring>
struct AttentionKeyPartner : AttentionKeyWarpgroup<Ring> {
  using Base = AttentionKeyWarpgroup<Ring>;
  using Base::group, Base::staging, Base::team, Base::thread;

  /// Whether there is another step.
  __device__ bool next(const RingPlace<Ring::stages>& at) const {
    team.full[at.stage].wait(at.parity);
    return team.steps[at.stage].query[0] >= 0;
  }
  /// Gives back what an item had, after its last step.
  __device__ void end(RingPlace<Ring::stages>& at) const {
    this->release(at.stage);  // the one that says the end
    at.advance();
    if (threadIdx.x % 32 == 0) team.free.arrive();
  }
  /// Where a thread's numbers i to i + 3 go: a thread gives them to the one of its own number, in
  /// the staging of the first warpgroup.
  __device__ unsigned hand(int i) const {
    return staging - group * Ring::staging_bytes + (i * 32 + thread()) * 16;
  }
  /// Of the thread's warp and the other warpgroup's.
  __device__ Barrier& given() const { return team.given[thread() / 32]; }
  __device__ Barrier& taken() const { return team.taken[thread() / 32]; }
  __device__ static void arrive(Barrier& barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier.arrive();
  }
};

/// The one that has the gradient of values.
template <class Ring>
struct AttentionValuePartner : AttentionKeyPartner<Ring> {
  using Base = AttentionKeyPartner<Ring>;
  using Steps = typename Ring::Steps;
  using Base::p, Base::team, Base::thread;
  using typename Base::Keys, typename Base::Scores;

  /// @param[in,out] times weights were given
  __device__ void run_item(const AttentionTarget& target, RingPlace<Ring::stages>& at,
                           unsigned& times) const {
    const float scale = Scores::scale(p.problem, p.terms);
    const Keys keys = this->keys_of(target);
    float dv[Ring::value_dim / 2], s[32];
    unsigned weights[4][4];
    typename Scores::Elements elements;
    this->leave_staging();
    bool started = false;
    if (this->next(at)) {
      this->ask_scores(s, at.stage);
      int now;
#pragma unroll 1
      while (true) {
        now = at.stage;
        elements.look_up(p.terms, team.steps[now], keys.first);
        warpgroup_wait<0>();
        warpgroup_pin(s);
        const unsigned seen = keys.seen(team.steps[now], p.problem.reach);
        const float* numbers = team.numbers[now][0] + thread() % 4 * 2;
        const Scores scores{p.terms, keys, team.steps[now], scale, numbers, elements};
        scores.weigh(s);
        if (!keys.whole(seen))
          keys.hide(s, Scores::hidden(), team.steps[now], p.problem.reach, seen);
        if constexpr (Steps::masked) elements.seen.hide(s, Scores::hidden());
        this->taken().wait(times & 1 ^ 1);
        scores.pack_weights(weights, s, [&](int i, float4 by) { store_shared(this->hand(i), by); });
        this->arrive(this->given());
        ++times;
        this->ask_dv(dv, weights, now, started);
        started = true;
        at.advance();
        if (!this->next(at)) break;
        this->ask_scores(s, at.stage);
        warpgroup_wait<1>();
        this->release(now);
      }
      warpgroup_wait<0>();
      this->release(now);
    }
    warpgroup_pin(dv);
    this->end(at);
    const Keys stored{keys.first, started ? keys.padding : ~0u};
    if (started && not_finite(dv) != 0) *p.problem.odd = 1;
    this->taken().wait(times & 1 ^ 1);
    this->store_rows(p.dv, p.dv_rows, dv, Steps::drops ? p.terms.dropout.kept : 1, stored,
                     this->head_of(target));
  }
};

/// The one that has the gradient of keys.
template <class Ring>
struct AttentionScorePartner : AttentionKeyPartner<Ring> {
  using Base = AttentionKeyPartner<Ring>;
  using Base::p, Base::team, Base::thread;
  using typename Base::Keys;

  /// Makes gradients of products of those of weights.
  /// @param[in] means of a lane's queries
  __device__ void differentiate(float (&dp)[32], const float* means) const {
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
      const float2 mean = *reinterpret_cast<const float2*>(means + i * 2);
      const float4 four = load_shared(this->hand(i));
      const float by[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float& x = dp[i + j];
        if constexpr (Ring::Steps::drops) x = by[j] < 0 ? 0 : x * p.terms.dropout.kept;
        x = fabsf(by[j]) * (x - (j % 2 ? mean.y : mean.x));
        if (by[j] == 0) x = 0;
      }
    }
  }

  /// @param[in,out] times weights were taken
  /// @param[in,out] turn of the two buffers that gradients of scores leave through
  __device__ void run_item(const AttentionTarget& target, RingPlace<Ring::stages>& at,
                           unsigned& times, unsigned& turn) const {
    const Keys keys = this->keys_of(target);
    float dk[Ring::dim / 2], dp[32];
    unsigned ds[4][4];
    this->leave_staging();
    bool started = false;
    if (this->next(at)) {
      this->ask_weight_gradients(dp, at.stage);
      int now;
#pragma unroll 1
      while (true) {
        now = at.stage;
        warpgroup_wait<0>();
        warpgroup_pin(dp);
        this->given().wait(times & 1);  // any earlier, ptxas would serialise the products
        differentiate(dp, team.numbers[now][1] + thread() % 4 * 2);
        this->arrive(this->taken());
        ++times;
        this->leave(dp, ds, this->staging + this->scores_at() + turn);
        this->ask_dk(dk, ds, now, started);
        started = true;
        this->store(team.steps[now], turn, keys.first);
        at.advance();
        if (!this->next(at)) break;
        this->ask_weight_gradients(dp, at.stage);
        warpgroup_wait<1>();
        this->release(now);
      }
      warpgroup_wait<0>();
      this->release(now);
    }
    warpgroup_pin(dk);
    this->end(at);
    const Keys stored{keys.first, started ? keys.padding : ~0u};
    if (started && not_finite(dk) != 0) *p.problem.odd = 1;
    this->store_rows(p.dk, p.dk_rows, dk, p.problem.scale, stored, this->head_of(target));
  }
};

template <class Config>
struct WarpgroupKeyGradientPair : AttentionKeyRing<Config> {
  using Ring = AttentionKeyRing<Config>;

  __device__ static void run(const WarpgroupKeyGradientParams& p) {
    Ring::run(p, [&](typename Ring::Team& team, unsigned kept, unsigned staging, int group) {
      unsigned times = 0, turn = 0;
      if (group == 0) {
        take_registers<240>();
        const AttentionValuePartner<Ring> values{{{p, team, kept, staging, group}}};
        values.run([&](const AttentionTarget& target, RingPlace<Ring::stages>& at) {
          values.run_item(target, at, times);
        });
      } else {
        take_registers<224>();
        const AttentionScorePartner<Ring> scores{{{p, team, kept, staging, group}}};
        scores.run([&](const AttentionTarget& target, RingPlace<Ring::stages>& at) {
          scores.run_item(target, at, times, turn);
        });
      }
    });
  }
};

}  // namespace bs::cuda::device
