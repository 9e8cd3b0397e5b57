#pragma once
// What CTAs that compute gradients of keys and values of attention on wgmma keep in shared memory,
// and the warps that fill it: strips of keys and values, and a ring of stages, each with 64 of the
// queries that the strip meets.
#include <bs/kernels/cuda/device/attention/warpgroup_backward_items.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_backward_keys.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_backward_scores.cuh>
#include <bs/kernels/cuda/device/block_sparse/block_sparse_strips.cuh>
#include <bs/kernels/cuda/device/ptx/launch_order.cuh>

namespace bs::cuda::device {

/// What two warpgroups that share their keys say to each other, warp by warp.
template <bool paired>
struct AttentionHandover {
  Barrier given[4], taken[4];  ///< the weights of a step

  __device__ void init() {
    for (int warp = 0; warp < 4; ++warp) {
      given[warp].init(1);
      taken[warp].init(1);
    }
  }
};
template <>
struct AttentionHandover<false> {};

template <class Config>
struct AttentionKeyRing {
  using T = typename Config::Element;
  using Mma = Config;  ///< the products
  static constexpr int dim = Config::dim, block = Config::block, stages = Config::stages;
  static constexpr int value_dim = Config::value_dim;
  static constexpr int pieces = dim / 64, value_pieces = value_dim / 64;  // of 64 columns
  static constexpr int groups = 2;  // warpgroups that multiply
  static constexpr bool banded = Config::banded, paired = Config::paired;
  using Steps = AttentionKeySteps<block, Config::strip, banded, Config::rules>;
  using Step = typename Steps::Step;
  using Keys = typename Steps::Keys;
  using Scores = AttentionStepScores<T, Steps, Config::rules>;
  static constexpr int strip = Steps::strip, side = Steps::side;
  static constexpr int team_groups = paired ? groups : strip / 64, teams = groups / team_groups;
  static constexpr int entries = Steps::entries, halves = block / side, cols = Steps::cols;
  using Handover = AttentionHandover<paired>;
  static constexpr int line = 2 * side;  // bytes of a line of gradients of scores
  static constexpr unsigned key_bytes = strip * dim * 2;
  static constexpr unsigned kept_bytes = key_bytes + strip * value_dim * 2;
  static constexpr unsigned query_bytes = 64 * dim * 2;
  static constexpr unsigned stage_bytes = query_bytes + 64 * value_dim * 2;
  static constexpr unsigned team_bytes = kept_bytes + stages * stage_bytes;
  static constexpr unsigned piece_bytes = 64 * 64 * 2, staging_bytes = 2 * piece_bytes;
  static constexpr int threads = (groups + 1) * warpgroup_size;

  struct Team : Handover {
    Barrier full[stages], empty[stages], kept, free;
    alignas(16) float numbers[stages][2][64];  ///< log_sums and means of the queries
    Step steps[stages];
    AttentionTarget target;
  };
  static constexpr unsigned shared_bytes =
      teams * team_bytes + groups * staging_bytes + teams * sizeof(Team);

  /// Which keys an item has.
  struct Place {
    int number, batch, head;  ///< head of k and v, and its number over the batch
    int layout_strip, strip;  ///< of the lists, and of these keys

    __device__ Place(const WarpgroupKeyGradientParams& p, int item) {
      const WarpgroupAttention& a = p.problem;
      const AttentionItem of(item / Steps::parts, a, p.list.strips);
      number = a.first_head + of.head;
      const AttentionHeadAt at(number, a.kv_heads);
      batch = at.batch;
      head = at.head;
      const int layout_head = a.layout_head(batch, head * a.group);
      layout_strip = p.list.order[layout_head * p.list.strips + of.rank] % p.list.strips;
      strip = layout_strip * Steps::parts + item % Steps::parts;
    }
    __device__ int key() const { return strip * AttentionKeyRing::strip; }
  };

  /// What the lanes know of a step: lane q has block q, lane e entry e.
  struct Ahead {
    int row = -1, number = -1;

    __device__ Ahead(const StripList& list, int from, int end) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      if (lane < entries && from + lane < end) row = __ldg(list.cols + from + lane);
      if (lane < entries * cols && from + lane / cols < end)
        number = __ldg(list.blocks + static_cast<long long>(from) * cols + lane);
    }
  };

  /// What rules need to know of a step.
  __device__ static void describe_step(const WarpgroupKeyGradientParams& p, Step& step,
                                       const Ahead& now, const Place& place, int h, int shift) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int head = place.batch * p.problem.heads + h;
    if constexpr (Steps::sloped)
      if (lane == 0) step.slope = p.terms.slopes[h] * 1.4426950408889634F;
    if constexpr (Steps::tabled)
      if (lane == 0) step.table = p.terms.table + h * p.terms.table_head + p.terms.table_reach;
    if constexpr (Steps::biased)
      if (lane == 0)
        step.bias = static_cast<const T*>(p.terms.bias.data) + place.batch * p.terms.bias.batch +
                    h * p.terms.bias.head;
    if constexpr (Steps::drops) {
      if (lane == 0) {
        step.first_row = static_cast<unsigned long long>(head) * p.terms.dropout.rows - shift;
        step.begin = p.terms.dropout.begin(place.key());
        step.sequence = attention_sequence(p.terms.dropout);
      }
    }
    if constexpr (Steps::masked) {
      const int row = __shfl_sync(~0u, now.row, lane / cols);
      const AttentionBits& bits = p.terms.bits;
      if (lane < entries * cols)
        step.bits[lane] = now.number < 0 ? no_bits
                                         : bits_place(bits, bits.head(head, p.problem.heads), row,
                                                      place.key() / block + lane % cols);
    }
  }

  /// Brings rows of queries and of dout, as many as a box of the maps has.
  __device__ static void copy_rows(const TensorMapWords& q, const TensorMapWords& dout,
                                   Barrier& full, unsigned to, int row, int h, int b) {
#pragma unroll
    for (int piece = 0; piece < pieces || piece < value_pieces; ++piece) {
      const unsigned there = to + piece * piece_bytes;
      if (piece < pieces) load_box(there, q, full, piece * 64, row, h, b, 0);
      if (piece < value_pieces) load_box(there + query_bytes, dout, full, piece * 64, row, h, b, 0);
    }
  }

  __device__ static void copy_step(const WarpgroupKeyGradientParams& p, Team& team,
                                   unsigned buffers, RingPlace<stages>& at, const Ahead& now,
                                   int half, const Place& place, int h, int shift) {
    const int lane = static_cast<int>(threadIdx.x) % 32, b = place.batch;
    team.empty[at.stage].wait(at.parity ^ 1);
    Step& step = team.steps[at.stage];
    const int query = now.row < 0 ? p.problem.queries : now.row * block + half * side;
    if (lane < entries) step.query[lane] = query;
    if (lane < entries * cols)
      step.value[lane] = now.number < 0 ? -1 : p.problem.values.at(b, h, now.number);
    if constexpr (Steps::owned) {
      unsigned first = 0;  // bits of the first warpgroup's blocks
#pragma unroll
      for (int e = 0; e < entries; ++e) first |= ((1U << Steps::own_cols) - 1) << e * cols;
      const unsigned kept = __ballot_sync(~0u, lane < entries * cols && now.number >= 0);
      const bool second = (kept & first << Steps::own_cols) != 0;
      if (lane == 0) step.owners = ((kept & first) != 0 ? 1 : 0) | (second ? 2 : 0);
    }
    describe_step(p, step, now, place, h, shift);
    __syncwarp();
    Barrier& full = team.full[at.stage];
    if (lane == 0) full.arrive_expecting(stage_bytes + sizeof(team.numbers[0]));
    const unsigned to = buffers + at.stage * stage_bytes;
    const unsigned numbers = shared_address(team.numbers[at.stage]);
    const long long row = (static_cast<long long>(b) * p.problem.heads + h) * p.problem.numbers;
    if (side < 64 && in_a_row<entries>(now.row)) {  // fewer copies, which bound small blocks
      if (lane == 0) {
        copy_rows(p.q_row, p.dout_row, full, to, query - shift, h, b);
        load_bytes(numbers, p.log_sums + row + query, 256, full);
        load_bytes(numbers + 256, p.means + row + query, 256, full);
      }
      at.advance();
      return;
    }
#pragma unroll
    for (int e = 0; e < entries; ++e) {
      // Behind the list's end queries are zeros. Their numbers are of the first ones: any that are
      // finite or +infinity, for what memory held could be NaN, and come through what is hidden.
      const int first = __shfl_sync(~0u, query, e);
      const bool there = __shfl_sync(~0u, now.row, e) >= 0;
      const int numbered = there ? first : __shfl_sync(~0u, query, 0);
      if (lane == 0) {
        copy_rows(p.q, p.dout, full, to + e * side * 128, first - shift, h, b);
        load_bytes(numbers + e * side * 4, p.log_sums + row + numbered, side * 4, full);
        load_bytes(numbers + 256 + e * side * 4, p.means + row + numbered, side * 4, full);
      }
    }
    at.advance();
  }

  __device__ static void produce(const WarpgroupKeyGradientParams& p, Team& team, unsigned kept) {
    const WarpgroupAttention& a = p.problem;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const unsigned buffers = kept + kept_bytes;
    const int items = a.head_count * p.list.strips * Steps::parts;
    RingPlace<stages> at;
#pragma unroll 1
    for (unsigned turn = 0;; ++turn) {
      const int item = take_attention_item(a);
      if (item >= items) {
        team.free.wait(turn & 1 ^ 1);
        break;
      }
      const Place place(p, item);
      const int shift = a.places.of(place.key()).shift;
      team.free.wait(turn & 1 ^ 1);
      if (lane == 0) {
        team.target = {item, place.key(), place.number};
        team.kept.arrive_expecting(kept_bytes);
#pragma unroll
        for (int piece = 0; piece < pieces || piece < value_pieces; ++piece) {
          const unsigned to = kept + piece * (strip * 128);
          const int key = place.key() - shift;
          if (piece < pieces)
            load_box(to, p.k, team.kept, piece * 64, key, place.head, place.batch, 0);
          if (piece < value_pieces)
            load_box(to + key_bytes, p.v, team.kept, piece * 64, key, place.head, place.batch, 0);
        }
      }
      wait_for_previous_launch();  // for the numbers of queries, and room for gradients of scores
#pragma unroll 1
      for (int h = place.head * a.group; h < (place.head + 1) * a.group; ++h) {
        const int of = a.layout_head(place.batch, h) * p.list.strips + place.layout_strip;
        int from = p.list.offsets[of];
        int end = p.list.offsets[of + 1];
        if (banded) {
          from = skip_hidden<block>(p.list, from, end, place.key() - a.reach.last);
          end = cut_hidden<block>(p.list, from, end, place.key() + strip - a.reach.first);
        } else if (a.reach.causal()) {
          from = skip_hidden<block>(p.list, from, end, place.key());
        }
        Ahead next(p.list, from, end);
#pragma unroll 1
        for (; from < end; from += entries) {
          const Ahead now = next;
          next = Ahead(p.list, from + entries, end);
#pragma unroll
          for (int half = 0; half < halves; ++half) {
            if constexpr (Steps::parts > 1) {
              const int query = __shfl_sync(~0u, now.row, 0) * block + half * side;
              if (a.reach.hides(query, place.key(), 64)) continue;
            }
            copy_step(p, team, buffers, at, now, half, place, h, shift);
          }
        }
      }
      team.empty[at.stage].wait(at.parity ^ 1);
      if (lane == 0) {
        team.steps[at.stage].query[0] = -1;
        team.full[at.stage].arrive();
      }
      at.advance();
    }
    if (lane == 0) {
      team.target.item = -1;
      team.kept.arrive();
      leave_attention(a, static_cast<int>(gridDim.x) * teams);
    }
  }

  /// Has `consume(team, kept, staging, group)` of each warpgroup that multiplies what others bring.
  /// Those of a pair take 464 registers together.
  template <class Consume>
  __device__ static void run(const WarpgroupKeyGradientParams& p, const Consume& consume) {
    extern __shared__ __align__(1024) unsigned char memory[];
    let_next_launch_begin();
    const unsigned buffers = shared_address(memory);
    Team* const team =
        reinterpret_cast<Team*>(memory + teams * team_bytes + groups * staging_bytes);
    const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / warpgroup_size, 0);
    if (threadIdx.x < teams) {
      Team& t = team[threadIdx.x];
      for (int i = 0; i < stages; ++i) {
        t.full[i].init(1);
        t.empty[i].init(4 * team_groups);
      }
      if constexpr (paired) t.init();
      t.kept.init(1);
      t.free.init(4 * team_groups);
      fence_barrier_init();
    }
    __syncthreads();
    if (group == groups) {
      give_registers<paired ? 40 : 24>();
      const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) % warpgroup_size / 32, 0);
      if (warp < teams) produce(p, team[warp], buffers + warp * team_bytes);
    } else {
      if constexpr (!paired) take_registers<240>();
      const int of = group / team_groups;
      consume(team[of], buffers + of * team_bytes,
              buffers + teams * team_bytes + group * staging_bytes, group);
    }
  }
};

}  // namespace bs::cuda::device
