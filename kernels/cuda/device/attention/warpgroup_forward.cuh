#pragma once
// out = softmax(scale q k^T, within a layout) v on wgmma. A CTA has a tile of 64 queries for each
// of its warpgroups that multiply, and walks the keys that any of them keeps, a tile of keys at a
// time; one warp more brings keys and values, and one for each warpgroup its queries. A warpgroup
// passes over tiles that it does not keep.
// Scores become weights in registers, where the second product reads them. The scores of a tile are
// multiplied beside the values of the tile before, whose product runs on during the softmax.
#include <bs/kernels/cuda/device/attention/warpgroup_attention_problem.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_elements.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_forward_item.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_forward_queries.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_scores.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_softmax.cuh>
#include <bs/kernels/cuda/device/ptx/bulk_copy.cuh>
#include <bs/kernels/cuda/device/ptx/warpgroup.cuh>

namespace bs::cuda::device {

template <class Config>
struct AttentionForwardKernel {
  using T = typename Config::Element;
  using Params = WarpgroupAttentionParams;
  static constexpr int groups = Config::groups;  // warpgroups that multiply
  static constexpr int dim = Config::dim, value_dim = Config::value_dim;
  static constexpr int cols = Config::cols, slots = Config::slots;
  static constexpr int block = Config::block;
  static constexpr int piece = block < cols ? block : cols;  // keys that lie side by side
  static constexpr int pieces = cols / piece;
  static constexpr bool turns = Config::turns;  // warpgroups ask for products in turn
  /// The next tile is looked for in the shadow of scores: where registers allow it, and where turns
  /// keep warpgroups together. Others may have to wait for that tile, and their products with them.
  static constexpr bool seeks_early = turns && !Config::banded && attention_is_lazy(Config::rules);
  static constexpr bool sinks = (Config::rules & rule_sinks) != 0;
  static constexpr int rows = 64 * groups;
  static constexpr int lines = dim / 64;  // a row of a tile is this many lines of 128 bytes
  static constexpr int value_lines = value_dim / 64;
  static constexpr unsigned key_bytes = cols * dim * 2, value_bytes = cols * value_dim * 2;
  static constexpr unsigned slot_bytes = key_bytes > value_bytes ? key_bytes : value_bytes;
  static constexpr int threads = (groups + 1) * warpgroup_size;
  static constexpr int record = pieces + groups;
  using Item = AttentionForwardItem<rows, pieces, record>;
  using Queries = AttentionForwardQueries<T, dim, value_dim, groups, Config::query_places>;
  // A warpgroup may hold values and wait for what is five places behind; one that keeps all tiles
  // waits for the next place but one.
  static_assert(slots >= (turns ? 5 : 6));
  static_assert(dim % 64 == 0 && value_dim % 64 == 0 && cols % 64 == 0);
  static_assert(piece >= 16 && record <= 32);

  /// What comes with a tile of keys.
  struct Tile {
    int last;  ///< whether it is the item's
    int keys[pieces];
    unsigned masks[groups];
  };
  struct Shared {
    Barrier full[slots], empty[slots];
    typename Queries::Shared queries;
    Tile tiles[slots];
  };
  static constexpr unsigned shared_bytes =
      Queries::bytes + slots * slot_bytes + sizeof(Shared) + 1024;

  // ---- The warp that copies keys and values.

  /// A lane asks for one box: 64 columns of a piece.
  template <int width>
  __device__ static void copy_tile(const TensorMapWords& map, Barrier& full, unsigned to, int key,
                                   int head, int batch) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int from = __shfl_sync(~0u, key, lane / width % pieces);
    if (lane < pieces * width)
      load_box(to + lane % width * (cols * 128) + lane / width * (piece * 128), map, full,
               lane % width * 64, from, head, batch, 0);
  }

  __device__ static void produce(const Params& p, Shared& s, unsigned buffers) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    RingPlace<slots> at;
    RingPlace<2> told;
    int number = static_cast<int>(blockIdx.x);  // the grid has no more CTAs than items
    Item item(p, number);
    int next = item.look_up(p, 0);
    while (number < p.items) {
      Queries::tell(s.queries, told, {item.tile * rows, item.head});
      int taken = 0;
      if (lane == 0) taken = atomicAdd(p.next, 1);
      const int head = item.head % p.heads / p.group, batch = item.head / p.heads;
      Item coming = item;
      int now = next;
      const auto copy_values = [&](int entries) {
        s.empty[at.stage].wait(at.parity ^ 1);
        if (lane == 0) s.full[at.stage].arrive_expecting(value_bytes);
        __syncwarp();
        copy_tile<value_lines>(p.v, s.full[at.stage], buffers + at.stage * slot_bytes,
                               entries - item.shift, head, batch);
        at.advance();
      };
      const int tiles = max(item.count, 1);  // an item without keys is one tile that nobody keeps
#pragma unroll 1
      for (int tile = 0; tile < tiles; ++tile) {
        const int before = now;
        now = next;
        if (tile == max(0, tiles - 3)) {  // what comes next is looked up beside the copies
          number = static_cast<int>(gridDim.x) + __shfl_sync(~0u, taken, 0);
          if (number < p.items) coming = Item(p, number);
        }
        next = tile + 1 < tiles ? item.look_up(p, tile + 1) : coming.look_up(p, 0);
        s.empty[at.stage].wait(at.parity ^ 1);
        Tile& info = s.tiles[at.stage];
        if (lane < pieces) info.keys[lane] = now;
#pragma unroll
        for (int of = 0; of < groups; ++of) {
          const int mask = __shfl_sync(~0u, now, pieces + of);
          if (lane == 0) info.masks[of] = static_cast<unsigned>(mask);
        }
        if (lane == 0) info.last = tile + 1 == tiles;
        __syncwarp();
        if (lane == 0) s.full[at.stage].arrive_expecting(key_bytes);
        __syncwarp();
        copy_tile<lines>(p.k, s.full[at.stage], buffers + at.stage * slot_bytes, now - item.shift,
                         head, batch);
        at.advance();
        if (tile > 0) copy_values(before);
      }
      copy_values(now);
      item = coming;
    }
    Queries::tell(s.queries, told, {0, -1});
  }

  // ---- The warpgroups that multiply.

  /// Of the CTA. Kernels that know of single scores, and three warpgroups, have no register left to
  /// keep it in.
  __device__ static unsigned thread() {
    return Elements::any || groups == 3 ? fresh_thread() : threadIdx.x;
  }

  /// Where a warpgroup is in the ring, and in the tiles of its item. The ring holds the keys of a
  /// tile before the values of the tile before.
  struct Walk {
    Shared& s;
    int group;
    RingPlace<slots> at, keys, values;
    int row;            // first query of this warp
    unsigned mask;      // of the tile
    bool begun;         // the item
    bool finished;      // it
    bool kept;          // the tile before, whose values come next
    bool owed = false;  // the values of the last tile are not passed yet

    __device__ Walk(Shared& shared, int number) : s(shared), group(number) {}
    __device__ void give_back(const RingPlace<slots>& place) {
      __syncwarp();  // all lanes have read what the tile is
      if (thread() % 32 == 0) s.empty[place.stage].arrive();
    }
    /// The next item, of queries from `first` on.
    __device__ void open(int first) {
      row = first + static_cast<int>(thread()) % warpgroup_size / 32 * 16;
      begun = kept = finished = false;
    }
    /// The values of the tile before.
    __device__ void pass_values() {
      if (kept) {
        values = at;
      } else {
        s.full[at.stage].wait(at.parity);
        give_back(at);
      }
      at.advance();
    }
    /// The next tile of the item that this warpgroup keeps, at most `most` tiles ahead. With values
    /// not yet given back it must not go far: they and what it waits for are in the ring together.
    __device__ bool seek(int most) {
      while (!finished && most-- > 0) {
        keys = at;
        at.advance();
        s.full[keys.stage].wait(keys.parity);
        const Tile& tile = s.tiles[keys.stage];
        const unsigned bits = __shfl_sync(~0u, tile.masks[group], 0);
        finished = __shfl_sync(~0u, tile.last, 0) != 0;
        if (begun) pass_values();
        begun = true;
        kept = bits != 0;
        if (kept) {
          mask = bits;
          owed = finished;
          return true;
        }
        give_back(keys);
        if (finished) pass_values();
      }
      return false;
    }
    /// Before the values of the last tile kept are read.
    __device__ void settle() {
      if (!owed) return;
      owed = false;
      pass_values();
    }
  };

  using Scores = float[cols / 2];
  using Sums = float[value_dim / 2];
  using Weights = unsigned[cols / 4];
  using Softmax = WarpgroupSoftmax<T, cols, attention_is_lazy(Config::rules)>;
  using Hide = AttentionHide<T, cols, piece, Config::banded>;
  using Elements = AttentionTileElements<T, cols, piece, block, Config::rules>;

  /// scores = queries keys^T.
  __device__ static __forceinline__ void multiply_keys(Scores& scores, unsigned queries,
                                                       unsigned keys) {
    constexpr unsigned long long form = matrix_descriptor<128>(1024, 0);
    const unsigned long long a = form | descriptor_address(queries);
    const unsigned long long b = form | descriptor_address(keys);
    warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
      Config::KeyMma::multiply(scores, a + (k / 4 * (64 * 128) + k % 4 * 32) / 16,
                               b + (k / 4 * (cols * 128) + k % 4 * 32) / 16, k > 0);
    }
    warpgroup_commit();
  }
  /// sums += weights values; `add` is false for the first ones.
  __device__ static __forceinline__ void multiply_values(Sums& sums, const Weights& weights,
                                                         unsigned values, bool add) {
    const unsigned long long b =
        matrix_descriptor<128>(1024, cols * 128) | descriptor_address(values);
    warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < cols / 16; ++k) {
      const unsigned(&a)[4] = reinterpret_cast<const unsigned(&)[4]>(weights[4 * k]);
      Config::ValueMma::multiply(sums, a, b + k * (2048 / 16), k > 0 || add);
    }
    warpgroup_commit();
  }

  /// Waits for this warpgroup's turn to ask for products; passes it on.
  __device__ static void take_turn(int group) {
    if constexpr (turns) named_barrier(1 + group, 2 * warpgroup_size);
  }
  __device__ static void pass_turn(int group) {
    if constexpr (turns) named_barrier_arrive(1 + (group + 1) % groups, 2 * warpgroup_size);
  }

  /// What a warpgroup that multiplies keeps in registers.
  struct Consumer {
    const Params& p;
    Walk walk;
    Queries queries;
    unsigned item = 0;  // how many were before
    unsigned queries_at;
    Sums sums = {};
    bool summed = false;  // `sums` are of this item
    Scores scores;
    Weights weights;
    Softmax softmax;
    AttentionShape<cols, piece, Config::rules> shape;
    Elements elements;

    __device__ Consumer(const Params& params, Shared& s, unsigned q, int group)
        : p(params), walk(s, group), queries{params, s.queries, q} {}

    __device__ int head() const {
      return walk.s.queries.rows[walk.group][Queries::place(item)].head;
    }
    /// Of a warp. The shuffle tells the compiler that all lanes have the same, so that the uniform
    /// unit makes descriptors of it: else each costs a product ten instructions.
    __device__ static unsigned uniform(unsigned address) { return __shfl_sync(~0u, address, 0); }
    __device__ unsigned slot(const RingPlace<slots>& place) const {
      return uniform(queries.memory + Queries::bytes + place.stage * slot_bytes);
    }
    __device__ __forceinline__ void ask_scores(unsigned keys) {
      multiply_keys(scores, queries_at, keys);
    }
    __device__ __forceinline__ void ask_sums(const RingPlace<slots>& place, unsigned values) {
      walk.s.full[place.stage].wait(place.parity);
      multiply_values(sums, weights, values, summed);
      summed = true;
    }
    __device__ __forceinline__ void look_up(const RingPlace<slots>& place, unsigned mask) {
      elements.look_up(p, walk.row, head(), walk.s.tiles[place.stage].keys,
                       Hide::present(mask, walk.row));
    }
    /// Scores become weights; their keys are given back.
    __device__ __forceinline__ void fold(const RingPlace<slots>& place, unsigned mask) {
      warpgroup_pin(scores);
      const auto& keys = walk.s.tiles[place.stage].keys;
      shape.apply(scores, p, walk.row, keys);
      elements.add(scores);
      const Hide hide(p, walk.row, p.seen ? head() : 0);
      hide.apply(scores, mask, keys);
      elements.hide(scores, minus_infinite());
      walk.give_back(place);
      softmax.fold(scores, shape.scale(p));
      elements.drop(scores);
    }
    /// The first scores, with no weights of a tile before.
    __device__ __forceinline__ void start() {
      const unsigned keys = slot(walk.keys);
      take_turn(walk.group);
      ask_scores(keys);
      pass_turn(walk.group);
      look_up(walk.keys, walk.mask);
      warpgroup_wait<0>();
      fold(walk.keys, walk.mask);
      if (summed) softmax.bring(sums);
      softmax.pack(weights, scores);
    }
    /// Scores of the next tile beside the sums of the tile before; whether another tile is near.
    __device__ __forceinline__ bool step() {
      const RingPlace<slots> keys = walk.keys, values = walk.values;
      const unsigned mask = walk.mask, keys_at = slot(keys), values_at = slot(values);
      take_turn(walk.group);
      ask_scores(keys_at);
      bool more = seeks_early && walk.seek(1);
      ask_sums(values, values_at);
      pass_turn(walk.group);
      look_up(keys, mask);
      warpgroup_wait<1>();
      fold(keys, mask);
      if constexpr (!seeks_early) more = walk.seek(1);
      softmax.hold();
      warpgroup_wait<0>();
      warpgroup_pin(sums);
      walk.give_back(values);
      softmax.bring(sums);
      softmax.pack(weights, scores);
      return more || walk.seek(1);
    }
    /// The sums of the last tile, with no scores beside them.
    __device__ __forceinline__ void end() {
      const unsigned values = slot(walk.values);
      take_turn(walk.group);
      ask_sums(walk.values, values);
      pass_turn(walk.group);
      warpgroup_wait<0>();
      warpgroup_pin(sums);
      walk.give_back(walk.values);
    }
    __device__ void clear() {
#pragma unroll
      for (float& sum : sums) sum = 0;
    }
    /// The results of the warp's rows, where its queries were.
    __device__ __forceinline__ void leave_results() {
      softmax.finish();
      if constexpr (sinks) softmax.join(p.terms.sinks[head() % p.heads] * 1.4426950408889634F);
      float factor[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float total = softmax.sum[half];
        factor[half] = total == 0 ? 0.0f : (sinks ? softmax.factor[half] : 1.0f) / total;
        if constexpr (Elements::drops) factor[half] *= p.terms.dropout.kept;
      }
      // The other warps have multiplied their queries; taking turns says so.
      if constexpr (!turns) named_barrier(1 + walk.group, warpgroup_size);
      Queries::put(queries_at, sums, factor);
      float zero[2] = {0 * softmax.sum[0], 0 * softmax.sum[1]};  // where all of it is finite
#pragma unroll
      for (int i = 0; i < value_dim / 2; ++i) zero[i % 2] += 0 * sums[i];
      if (zero[0] + zero[1] != 0) p.next[2] = 1;
      store_log_sums();
      __syncwarp();  // all lanes have put theirs, and read whose they are
      if (thread() % 32 == 0) walk.s.queries.done[walk.group][Queries::place(item)].arrive();
      ++item;
    }
    __device__ __forceinline__ void store_log_sums() const {
      const int lane = static_cast<int>(thread()) % 32;
      const AttentionPlace place = p.places.of(walk.row);
      if (lane % 4 != 0) return;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = walk.row + lane / 4 + 8 * half;
        if (row < place.end) p.lse[head() * p.lse_head + row - place.shift] = softmax.log_sum(half);
      }
    }
    /// One tile of queries after the other.
    __device__ __forceinline__ void run() {
      if (turns && walk.group == groups - 1) pass_turn(walk.group);
#pragma unroll 1
      while (true) {
        const typename Queries::Rows rows = queries.open(walk.group, item);
        if (rows.head < 0) return;
        walk.open(rows.row);
        queries_at = uniform(queries.address(walk.group, item));
        softmax = Softmax();
        shape.look_up(p, head());
        summed = false;
#pragma unroll 1
        while (walk.seek(1 << 30)) {
          start();
          bool more = walk.seek(2);
#pragma unroll 1
          while (more) more = step();
          walk.settle();
          end();
        }
        if (!summed) clear();
        leave_results();
      }
    }
  };

  /// The last CTA to leave sums up for the host, and zeroes the counters for the next launch.
  __device__ static void leave(const Params& p) {
    __threadfence();
    if (atomicAdd(p.next + 1, 1) != static_cast<int>(gridDim.x) - 1) return;
    __threadfence();
    *p.odd = atomicExch(p.next + 2, 0);
    p.next[0] = p.next[1] = 0;
  }

  __device__ static void run(const Params& p) {
    extern __shared__ unsigned char memory[];
    const unsigned queries = (shared_address(memory) + 1023) / 1024 * 1024;
    const unsigned buffers = queries + Queries::bytes;
    Shared& s = *reinterpret_cast<Shared*>(memory + (queries - shared_address(memory)) +
                                           Queries::bytes + slots * slot_bytes);
    const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / warpgroup_size, 0);
    if (threadIdx.x == 0) {
      for (int i = 0; i < slots; ++i) {
        s.full[i].init(1);
        s.empty[i].init(4 * groups);
      }
      s.queries.init();
      fence_barrier_init();
      prefetch(p.q);
      prefetch(p.k);
      prefetch(p.v);
      prefetch(p.out);
    }
    __syncthreads();
    if (group == groups) {
      if constexpr (groups > 1) give_registers<groups == 2 ? 40 : 32>();
      const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) % warpgroup_size / 32, 0);
      if (warp == 0)
        produce(p, s, buffers);
      else if (warp <= groups)
        Queries{p, s.queries, queries}.serve(warp - 1);
    } else {
      if constexpr (groups > 1) take_registers<groups == 2 ? 232 : 160>();
      Consumer(p, s, queries, groups > 1 ? group : 0).run();
    }
    __syncthreads();
    if (threadIdx.x == 0) leave(p);
  }
};

}  // namespace bs::cuda::device
