#pragma once
// Gradients of keys and values of attention on wgmma, and those of the scores, which go to memory
// for dq (warpgroup_query_gradient.cuh): no sum is ever added to by two CTAs, so that all have a
// fixed order.
//
// A team, one or two warpgroups with 64 keys each and a warp that copies for them, keeps a strip of
// keys and values and meets the queries that its union of block columns lists, 64 a step. Scores
// stand transposed, keys by queries: so weights and gradients of scores are left operands of the
// products with dout and q where they are, in registers.
#include <bs/kernels/cuda/device/attention/warpgroup_backward_items.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_backward_keys.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_backward_scores.cuh>
#include <bs/kernels/cuda/device/block_sparse/block_sparse_strips.cuh>

namespace bs::cuda::device {

template <class Config>
struct WarpgroupKeyGradient {
  using T = typename Config::Element;
  static constexpr int dim = Config::dim, block = Config::block, stages = Config::stages;
  static constexpr int value_dim = Config::value_dim;
  static constexpr int pieces = dim / 64, value_pieces = value_dim / 64;  // of 64 columns
  static constexpr int groups = 2;  // warpgroups that multiply
  static constexpr bool banded = Config::banded;
  using Steps = AttentionKeySteps<block, banded, Config::rules>;
  using Step = typename Steps::Step;
  using Keys = typename Steps::Keys;
  using Scores = AttentionStepScores<T, Steps, Config::rules>;
  static constexpr int team_groups = Steps::team_groups, teams = groups / team_groups;
  static constexpr int strip = Steps::strip, side = Steps::side;
  static constexpr int entries = Steps::entries, halves = block / side, cols = Steps::cols;
  static constexpr int line = 2 * side;  // bytes of a line of gradients of scores
  static constexpr unsigned key_bytes = strip * dim * 2;
  static constexpr unsigned kept_bytes = key_bytes + strip * value_dim * 2;
  static constexpr unsigned query_bytes = 64 * dim * 2;
  static constexpr unsigned stage_bytes = query_bytes + 64 * value_dim * 2;
  static constexpr unsigned team_bytes = kept_bytes + stages * stage_bytes;
  static constexpr unsigned piece_bytes = 64 * 64 * 2, staging_bytes = 2 * piece_bytes;
  static constexpr int threads = (groups + 1) * warpgroup_size;

  struct Team {
    Barrier full[stages], empty[stages], kept, free;
    alignas(16) float numbers[stages][2][64];  ///< log_sums and means of the queries
    Step steps[stages];
    int item;
  };
  static constexpr unsigned shared_bytes =
      teams * team_bytes + groups * staging_bytes + teams * sizeof(Team);

  /// Which keys an item has.
  struct Place {
    int batch, head, strip;  ///< head of k and v

    __device__ Place(const WarpgroupKeyGradientParams& p, int item) {
      const WarpgroupAttention& a = p.problem;
      const int kv_heads = a.heads / a.group;
      const AttentionItem of(item, a.head_count, p.list.strips, a.long_strips);
      batch = (a.first_head + of.head) / kv_heads;
      head = (a.first_head + of.head) % kv_heads;
      const int layout_head = a.layout_head(batch, head * a.group);
      strip = p.list.order[layout_head * p.list.strips + of.rank] % p.list.strips;
    }
    __device__ int key() const { return strip * WarpgroupKeyGradient::strip; }
  };

  // ---- The warps that copy.

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
                                                      place.strip * cols + lane % cols);
    }
  }

  template <class Ring>
  __device__ static void copy_step(const WarpgroupKeyGradientParams& p, Team& team,
                                   unsigned buffers, Ring& at, const Ahead& now, int half,
                                   const Place& place, int h, int shift) {
    const int lane = static_cast<int>(threadIdx.x) % 32, b = place.batch;
    team.empty[at.stage].wait(at.parity ^ 1);
    Step& step = team.steps[at.stage];
    const int query = now.row < 0 ? p.problem.queries : now.row * block + half * side;
    if (lane < entries) step.query[lane] = query;
    if (lane < entries * cols)
      step.value[lane] = now.number < 0 ? -1 : p.problem.values.at(b, h, now.number);
    describe_step(p, step, now, place, h, shift);
    __syncwarp();
    Barrier& full = team.full[at.stage];
    if (lane == 0) full.arrive_expecting(stage_bytes + sizeof(team.numbers[0]));
    const unsigned to = buffers + at.stage * stage_bytes;
    const unsigned numbers = shared_address(team.numbers[at.stage]);
    const long long row = (static_cast<long long>(b) * p.problem.heads + h) * p.problem.numbers;
#pragma unroll
    for (int e = 0; e < entries; ++e) {
      // Behind the list's end queries are zeros. Their numbers are of the first ones: any that are
      // finite or +infinity, for what memory held could be NaN, and come through what is hidden.
      const int first = __shfl_sync(~0u, query, e);
      const bool there = __shfl_sync(~0u, now.row, e) >= 0;
      const int numbered = there ? first : __shfl_sync(~0u, query, 0);
      if (lane == 0) {
#pragma unroll
        for (int piece = 0; piece < pieces || piece < value_pieces; ++piece) {
          const unsigned there = to + piece * piece_bytes + e * side * 128;
          if (piece < pieces) load_box(there, p.q, full, piece * 64, first - shift, h, b, 0);
          if (piece < value_pieces)
            load_box(there + query_bytes, p.dout, full, piece * 64, first - shift, h, b, 0);
        }
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
    const int items = a.head_count * p.list.strips;
    RingPlace<stages> at;
#pragma unroll 1
    for (unsigned turn = 0;; ++turn) {
      const int item = take_attention_item(a);
      team.free.wait(turn & 1 ^ 1);
      if (lane == 0) team.item = item < items ? item : -1;
      if (item >= items) break;
      const Place place(p, item);
      const int shift = a.places.of(place.key()).shift;
      if (lane == 0) {
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
#pragma unroll 1
      for (int h = place.head * a.group; h < (place.head + 1) * a.group; ++h) {
        const int of = a.layout_head(place.batch, h) * p.list.strips + place.strip;
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
          for (int half = 0; half < halves; ++half)
            copy_step(p, team, buffers, at, now, half, place, h, shift);
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
      team.kept.arrive();
      leave_attention(a, static_cast<int>(gridDim.x) * teams);
    }
  }

  // ---- The warpgroups that multiply.

  static constexpr unsigned long long along = matrix_descriptor<128>(1024, 0);
  static constexpr unsigned long long across = matrix_descriptor<128>(1024, piece_bytes);

  /// sums = own 64 rows of `kept` times the 64 rows of a stage, transposed, `depth` columns of
  /// both.
  template <int depth>
  __device__ static void multiply_scores(float (&sums)[32], unsigned kept, unsigned stage) {
    asm volatile("" : "+r"(kept));  // or its descriptors are kept from step to step
    warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < depth / 16; ++k)
      Config::Scores::multiply(
          sums, along | descriptor_address(kept + k / 4 * (strip * 128) + k % 4 * 32),
          along | descriptor_address(stage + k / 4 * piece_bytes + k % 4 * 32), k > 0);
    warpgroup_commit();
  }
  /// sums += weights times the 64 rows of a stage.
  template <class Mma, int width>
  __device__ static void multiply_rows(float (&sums)[width], const unsigned (&weights)[4][4],
                                       unsigned stage, bool add) {
    warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      Mma::multiply(sums, weights[k], across | descriptor_address(stage + k * 2048), add || k > 0);
    warpgroup_commit();
  }

  // Registers are scarce: what follows from the thread's index is found anew where it is used.

  /// Writes 64 rows of `Cols` columns to shared memory for the copy engine, as pieces of 64
  /// columns.
  template <int Cols, class Values>
  __device__ static void stage_sums(unsigned shared, const Values& values) {
    const int thread = static_cast<int>(fresh_thread()) % warpgroup_size, lane = thread % 32;
    const int row = thread / 32 * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < Cols / 16; ++j) {
      unsigned r[4];
      values(j, r);
      const int chunk = 2 * j + lane / 16;
      store_matrix_x4<false>(
          shared + chunk / 8 * piece_bytes + row * 128 + (chunk % 8 ^ row % 8) * 16, r);
    }
  }

  /// Writes a step's gradients of scores to shared memory, queries along the lines: as blocks of an
  /// entry after those of the one before.
  __device__ static void stage_scores(unsigned shared, const unsigned (&ds)[4][4]) {
    const int thread = static_cast<int>(fresh_thread()) % warpgroup_size, lane = thread % 32;
    constexpr int chunks = side / 8, span = 64 / side;
    const int row = thread / 32 * 16 + lane / 8 % 2 * 8;
    const int query = row / side * side + lane / 16 * 8 + lane % 8;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int own = j * 16 / side * 64 + j * 16 % side + query;
      const int chunk = row % side / 8 ^ own / span % chunks;
      store_matrix_x4<true>(shared + own * line + chunk * 16, ds[j]);
    }
  }

  struct Consumer {
    const WarpgroupKeyGradientParams& p;
    Team& team;
    unsigned kept, buffers, staging;
    int group;  ///< over the CTA

    /// Of the CTA.
    static __device__ unsigned thread_of_all() {
      return Steps::scarce ? fresh_thread() : threadIdx.x;
    }
    static __device__ int thread() { return static_cast<int>(thread_of_all()) % warpgroup_size; }
    __device__ int own() const { return group % team_groups; }
    __device__ void meet() const { named_barrier(1 + group, warpgroup_size); }

    /// Goes on to the next step that any of the warpgroup's keys see; gives the others back.
    __device__ bool seek(RingPlace<stages>& at, int last) const {
      while (true) {
        team.full[at.stage].wait(at.parity);
        const int query = team.steps[at.stage].query[0];
        if (query < 0) return false;
        // Bounded on both sides, steps that nobody sees could fill the ring while one is held.
        if (block < 128 || banded || !p.problem.reach.causal() || query + 63 >= last - 63)
          return true;
        release(at.stage);
        at.advance();
      }
    }
    __device__ void release(int stage) const {
      __syncwarp();  // all lanes have read its numbers
      if (threadIdx.x % 32 == 0) team.empty[stage].arrive();
    }

    /// Makes gradients of scores the left operand of a product, and stages them for memory.
    __device__ void leave(float (&sums)[32], unsigned (&ds)[4][4], unsigned turn) const {
#pragma unroll
      for (int i = 0; i < 16; ++i) ds[i / 4][i % 4] = Scores::pack(sums[2 * i], sums[2 * i + 1]);
      stage_scores(staging + turn * piece_bytes, ds);
      warpgroup_pin(sums);  // made anew, or they would take registers twice
#pragma unroll
      for (int i = 0; i < 16; ++i) ds[i / 4][i % 4] = Scores::pack(sums[2 * i], sums[2 * i + 1]);
    }

    /// Takes the staged gradients of the scores of a step to memory.
    __device__ void store(const Step& step, unsigned& turn) const {
      const unsigned to = staging + turn * piece_bytes;
      turn ^= 1;
      fence_async_shared();
      const int q = thread();
      const bool stores = q < entries * cols / team_groups || (block == 128 && q == 0);
      if (stores) wait_stores_read<0>();
      meet();
      if (!stores) return;
      const int entry = q / cols, col = q % cols;
      const int value = step.value[entry * cols + col];
      if (value >= 0)
        store_box(p.ds, to + (entry * 64 + col * side) * line, block == 128 ? own() * 64 : 0,
                  value * block + step.query[entry] % block);
      commit_stores();
    }

    /// Waits until what left through the staging is gone.
    __device__ void leave_staging() const {
      if (thread() < 32) wait_stores_read<0>();
      meet();
    }

    /// Takes a gradient of keys or values to memory.
    template <int width>
    __device__ void store_rows(const TensorMapWords& map, const AttentionRows<void>& to,
                               const float (&sums)[width], float factor, const Keys& keys,
                               const Place& place) const {
      leave_staging();
      stage_sums<2 * width>(staging, [&](int j, unsigned(&r)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float x = sums[8 * j + 2 * i], y = sums[8 * j + 2 * i + 1];
          r[i] = keys.padded(i % 2) ? 0 : Scores::pack(x * factor, y * factor);
        }
      });
      fence_async_shared();
      meet();
      const AttentionPlaces& places = p.problem.places;
      if (!places.whole(keys.first)) {
        store_rows_of_end<2 * width>(to, p.problem, place.head, staging, keys.first);
      } else if (thread() == 0) {
#pragma unroll
        for (int piece = 0; piece < width / 32; ++piece)
          store_box(map, staging + piece * piece_bytes, piece * 64,
                    keys.first - places.of(keys.first).shift, place.head, place.batch, 0);
        commit_stores();
      }
    }

    __device__ Keys keys_of(const Place& place) const {
      Keys keys{place.key() + own() * 64, 0};
      if (!p.seen && !banded) return keys;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int key = keys.first + thread() / 32 * 16 + thread() % 32 / 4 + 8 * i;
        const long long at = static_cast<long long>(place.batch) * p.problem.keys + key;
        const bool padded = key < p.problem.keys ? p.seen != nullptr && p.seen[at] == 0 : banded;
        keys.padding |= static_cast<unsigned>(padded) << i;
      }
      keys.padding |= __any_sync(~0u, keys.padding != 0) ? 4 : 0;
      return keys;
    }

    __device__ void run_item(int item, RingPlace<stages>& at, unsigned& turn) const {
      const float scale = Scores::scale(p.problem.scale, p.terms);
      const Keys keys = keys_of(Place(p, item));
      const int last = keys.first + 63;
      float dk[dim / 2], dv[value_dim / 2], s[32], dp[32];
      unsigned weights[4][4];
      typename Scores::Elements elements;
      const unsigned k = kept + own() * (64 * 128), v = k + key_bytes;
      leave_staging();
      int leaving = -1;  // stage that products under way read
      bool started = false;
      // Products are waited for in the order they are asked for: scores, dk of the step before,
      // the gradients of weights, dv.
      if (seek(at, last)) {
        multiply_scores<dim>(s, k, buffers + at.stage * stage_bytes);
        warpgroup_commit();
        elements.look_up(p.terms, team.steps[at.stage], keys.first);
        multiply_scores<value_dim>(dp, v, buffers + at.stage * stage_bytes + query_bytes);
#pragma unroll 1
        while (true) {
          const int now = at.stage;
          const unsigned rows = buffers + now * stage_bytes;
          const float* numbers = team.numbers[now][0] + thread_of_all() % 4 * 2;
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
          multiply_rows<typename Config::ValueRows>(dv, weights, rows + query_bytes, started);
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
          const unsigned next = buffers + at.stage * stage_bytes;
          multiply_scores<dim>(s, k, next);
          multiply_rows<typename Config::Rows>(dk, weights, rows, started);
          elements.look_up(p.terms, team.steps[at.stage], keys.first);
          multiply_scores<value_dim>(dp, v, next + query_bytes);
          store(team.steps[now], turn);
        }
        multiply_rows<typename Config::Rows>(dk, weights, buffers + leaving * stage_bytes, started);
        store(team.steps[leaving], turn);
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

    __device__ void run() const {
      RingPlace<stages> at;
      unsigned turn = 0;  // of the two buffers that gradients of scores leave through
#pragma unroll 1
      for (unsigned parity = 0;; parity ^= 1) {
        team.kept.wait(parity);
        const int item = read_for_all(team.item);
        if (item < 0) break;
        run_item(item, at, turn);
      }
      wait_stores_read<0>();  // shared memory is theirs until then
    }
  };

  __device__ static void run(const WarpgroupKeyGradientParams& p) {
    extern __shared__ __align__(1024) unsigned char memory[];
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
      t.kept.init(1);
      t.free.init(4 * team_groups);
      fence_barrier_init();
    }
    __syncthreads();
    if (group == groups) {
      give_registers<24>();
      const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) % warpgroup_size / 32, 0);
      if (warp < teams) produce(p, team[warp], buffers + warp * team_bytes);
    } else {
      take_registers<240>();
      const int of = group / team_groups;
      const Consumer consumer{p,
                              team[of],
                              buffers + of * team_bytes,
                              buffers + of * team_bytes + kept_bytes,
                              buffers + teams * team_bytes + group * staging_bytes,
                              group};
      consumer.run();
    }
  }
};

}  // namespace bs::cuda::device
