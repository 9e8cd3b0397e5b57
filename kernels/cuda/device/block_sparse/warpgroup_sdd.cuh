#pragma once
// The blocks of A B on wgmma: one CTA computes, for a strip of rows, up to `n` columns a warpgroup
// of those that its rows keep, gathered side by side. A strip is of 64 rows, both warpgroups'
// columns side by side; or of 128, where both have the same columns: a block of 128, or block rows
// gathered from wherever they are alike. One warpgroup copies.
//
// The gathered operand should have the depth along its lines, which are as short as a block
// otherwise. Where only A has that, the product is B^T A^T: strips are of B's columns, and A's rows
// are gathered. Its blocks are `turned` on their way out.
#include <bs/kernels/cuda/device/block_sparse/block_sparse_strips.cuh>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_sdd_items.cuh>

namespace bs::cuda::device {

template <class Config>
struct WarpgroupSdd {
  using T = typename Config::Element;
  using Epilogue = typename Config::Epilogue;
  static constexpr int block = Config::block;
  static constexpr int groups = 2;     // warpgroups that multiply
  static constexpr int n = Config::n;  // columns a warpgroup
  static constexpr int stages = Config::stages;
  static constexpr int depth = 64;  // of a stage
  static constexpr bool gathered = Config::gathered;
  static constexpr int down = block == 128 || gathered ? 2 : 1, across = groups / down;
  static_assert(!gathered || block < 128);
  static constexpr int side = block < 64 ? block : 64;  // of a box of a block
  static constexpr int halves = block / side;
  static constexpr int rows = 64 / side;  // block rows of a warpgroup
  static constexpr int strip_rows = down * 64 / block;
  static constexpr int cols = across * n / block;  // block columns an item takes at most
  static constexpr int b_line = Config::b_k_contiguous ? 2 * depth : 2 * side;  // bytes
  static constexpr int a_line = !Config::a_k_contiguous && gathered ? 2 * side : 128;
  static constexpr unsigned a_tile = 64 * depth * 2, a_stage = down * a_tile;
  static constexpr unsigned b_box = side * depth * 2, b_stage = cols * halves * b_box;
  static constexpr unsigned staging = 64 * 128 * 2;
  static constexpr int threads = (groups + 1) * warpgroup_size;
  static constexpr int copying_warps = 4;              // each lane asks for a box at most
  static constexpr int a_parts = gathered ? rows : 1;  // boxes of a tile of A
  static constexpr int a_boxes = a_parts * down;
  static constexpr unsigned a_box = a_tile / a_parts;
  static constexpr int out_line = 2 * side;
  static constexpr bool finishes = !same_type<Epilogue, NoEpilogue>;
  static constexpr int staged = Config::staged;  // tiles that leave through staging

  using Place = SddPlace<1, strip_rows, gathered>;
  using Feed = SddFeed<copying_warps>;

  struct Shared {
    Barrier full[stages], empty[stages];
    Feed feed;
    SddNotes<stages> notes;
  };
  static constexpr unsigned shared_bytes =
      stages * (a_stage + b_stage) + groups * staging + sizeof(Shared) + 1024;

  // ---- The warpgroup that copies.

  /// Brings what will be looked up of an item to the cache.
  __device__ static void look_up(const WarpgroupSddParams& p, int item) {
    if (item >= p.items) return;
    const Place place(p, piece_of_work(p.split, item).item);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    asm volatile("" ::"r"(place.row(p, lane % strip_rows)));
    if (lane >= place.count) return;
    asm volatile("" ::"r"(place.column(p, lane)), "r"(place.block(p, lane, 0)));
  }

  /// The box that a lane brings of every stage, if any: rows of A, or a box of B.
  struct Box {
    bool of_a, of_b;
    int line;     // row of A, column of B
    unsigned to;  // in the stage

    __device__ Box(const WarpgroupSddParams& p, const Place& place) {
      const int warp = static_cast<int>(threadIdx.x) % warpgroup_size / 32;
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const int q = lane * copying_warps + warp;            // box of B
      const int part = (31 - lane) * copying_warps + warp;  // of A
      static_assert(cols * halves + a_boxes <= 31 * copying_warps);
      of_a = part < a_boxes;
      of_b = q < place.count * halves;
      if (of_a) {
        line = gathered ? place.row(p, part) * side : place.row(p, 0) * block + part * 64;
        to = part * a_box;
      } else {
        line = of_b ? place.column(p, q / halves) * block + q % halves * side : 0;
        to = a_stage + q * b_box;
      }
    }

    __device__ void copy(const WarpgroupSddParams& p, Barrier& full, unsigned buffer, int k,
                         const int (&axes)[3]) const {
      if (of_a)
        load_box(buffer + to, p.a, full, Config::a_k_contiguous ? k : line,
                 Config::a_k_contiguous ? line : k, axes[0], axes[1], axes[2]);
      if (of_b)
        load_box(buffer + to, p.b, full, Config::b_k_contiguous ? k : line,
                 Config::b_k_contiguous ? line : k, axes[0], axes[1], axes[2]);
    }
  };

  __device__ static void produce(const WarpgroupSddParams& p, Shared& s, unsigned buffers) {
    const bool leader = threadIdx.x % warpgroup_size == 0;
    RingPlace<stages> at;
    typename Feed::Turn turn;
    for (int item = s.feed.first(p); item < p.items; item = s.feed.take(turn)) {
      const WorkPiece piece = piece_of_work(p.split, item);
      const Place place(p, piece.item);
      const Box box(p, place);
      const BatchIndex batch(p.batch, place.batch);
      const int head = place.head(p);
      const int rounds = (p.depth + depth - 1) / depth;  // of a product
      const int begin = piece.begin, end = piece.end < 0 ? count(p.sum) * rounds : piece.end;
      for (int step = begin; step < end;) {
        const BatchIndex index = batch + BatchIndex(p.sum, step / rounds);
        const int axes[3] = {head * (box.of_a ? p.a_head : p.b_head),
                             box.of_a ? index.along(p.a_steps, 0) : index.along(p.b_steps, 0),
                             box.of_a ? index.along(p.a_steps, 1) : index.along(p.b_steps, 1)};
        const int stop = min(end, (step / rounds + 1) * rounds);
        int k = step % rounds * depth;
        for (; step < stop; ++step, k += depth) {
          s.empty[at.stage].wait(at.parity ^ 1);
          if (leader) {
            s.notes.item[at.stage] = item;
            s.notes.steps[at.stage] = end - begin;
            s.full[at.stage].arrive_expecting(a_stage + place.count * halves * b_box);
          }
          __syncwarp();
          const unsigned buffer = buffers + at.stage * (a_stage + b_stage);
          box.copy(p, s.full[at.stage], buffer, k, axes);
          at.advance();
          // Once the ring is full there is time for it.
          if (step == min(begin + stages, end) - 1) s.feed.ask(p, turn);
        }
      }
    }
    s.empty[at.stage].wait(at.parity ^ 1);
    if (leader) {
      leave_work(p.next);
      s.notes.item[at.stage] = -1;
      s.full[at.stage].arrive();
    }
  }

  // ---- The warpgroups that multiply.

  __device__ static void multiply_stage(float (&sums)[n / 2], unsigned buffer, int group,
                                        bool& started) {
    constexpr unsigned long long a_form =
        Config::a_k_contiguous ? matrix_descriptor<a_line>(8 * a_line, 0)
                               : matrix_descriptor<a_line>(8 * a_line, gathered ? a_box : 0);
    constexpr unsigned long long b_form = Config::b_k_contiguous
                                              ? matrix_descriptor<b_line>(8 * b_line, 0)
                                              : matrix_descriptor<b_line>(8 * b_line, b_box);
    constexpr unsigned a_step = Config::a_k_contiguous ? 32 : 16 * a_line;
    constexpr unsigned b_step = Config::b_k_contiguous ? 32 : 16 * b_line;
    const unsigned a = buffer + group % down * a_tile;
    const unsigned b = buffer + a_stage + group / down * (n / side) * b_box;
#pragma unroll
    for (int k = 0; k < depth / 16; ++k) {
      const unsigned long long a_at = a_form | descriptor_address(a + k * a_step);
      const unsigned long long b_at = b_form | descriptor_address(b + k * b_step);
      Config::Mma::multiply(sums, a_at, b_at, started);
      started = true;
    }
  }

  using Totals = PatchTotals<Epilogue, reduced_side>;

  /// Of a strip's block rows, a warpgroup's first.
  __device__ static int first_row(int group) { return gathered ? group * rows : 0; }

  /// The finished values of columns [column, column + 16) of this warpgroup's tile, packed: part of
  /// one block, as the 16 rows of a warp are. Those from `end` on are none of the item's.
  __device__ static __forceinline__ void finish(const WarpgroupSddParams& p, const float* sums,
                                                const Place& place, int group, int column, int end,
                                                Totals& totals, unsigned (&r)[staged][4]) {
    const int at_column = min(group / down * (n / block) + column / block, place.count - 1);
    const int block_row = static_cast<int>(threadIdx.x) % warpgroup_size / 32 * 16 / side;
    const int head = place.head(p), in_strip = first_row(group) + block_row;
    const int row0 = gathered ? (place.row(p, in_strip) - block_row) * side
                              : place.row(p, 0) * block + group % down * 64;
    const int number = place.block(p, at_column, in_strip);
    const int column0 = place.column(p, at_column) * block;
    const int count = number < 0 || group / down * n + column >= end ? 0 : 2;
    const int warp_row = static_cast<int>(threadIdx.x) % warpgroup_size / 32 * 16;
    EpiloguePatch patch{max(number, 0) * block + (warp_row + group % down * 64) % block,
                        column % block, place.batch, reduced_side, reduced_side};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const PairPlace pair(i);
      const int k = column % block + pair.column;
      const int in_block = (pair.row + group % down * 64) % block;
      const EpiloguePlace at{min(row0 + pair.row, p.m - 1), column0 + k,
                             place.batch * p.heads + head, 2};
      const EpiloguePlace in{max(number, 0) * block + in_block, k, place.batch, count};
      const float own[2] = {sums[2 * i], sums[2 * i + 1]};
      float out[staged][2];
      finish_pair<Epilogue, staged>(p.epilogue, at, in, own, out, i, patch, totals);
#pragma unroll
      for (int o = 0; o < staged; ++o) r[o][i] = pack_pair<T>(out[o][0], out[o][1]);
    }
    if (count == 0) patch.rows = patch.columns = 0;
    const GemmOperand* const partials = p.epilogue.operands + Epilogue::operands;
    totals.store_columns(partials, patch);
    if ((column + 16) % side == 0) totals.store_rows(partials, patch, column % block / side);
  }

  /// Columns written at a time. Reductions want the registers that more places in staging take.
  static constexpr int round = n % 128 || staged == 2 || Epilogue::reductions > 0 ? 64 : 128;
  /// Writes the sums from number `from` / 2 of a thread on, which are those of columns `column` on,
  /// up to `end`. Rounds are no loop: one as long is not unrolled, and its sums leave registers.
  template <int from, int count>
  __device__ static __forceinline__ void write_blocks(const WarpgroupSddParams& p,
                                                      const float (&sums)[count],
                                                      unsigned staging_at, int group,
                                                      const Place& place, int column, int end) {
    const int thread = threadIdx.x % warpgroup_size;
    constexpr int boxes = round / side;  // of columns
    constexpr unsigned apart = 64 * 64 * 2;
    wait_stores_read();
    named_barrier(1 + group, warpgroup_size);
    Totals totals;
    const auto values = [&](int j, unsigned(&r)[staged][4]) {
      finish(p, sums + from / 2 + j * 8, place, group, column + j * 16, end, totals, r);
    };
    if constexpr (Config::turned) {
      static_assert(!finishes && side < 64);
      stage_turned<side, round>(staging_at, values);
    } else {
      stage_rows<out_line, round, staged>(staging_at, apart, values);
    }
    fence_async_shared();
    named_barrier(1 + group, warpgroup_size);
    if (thread < boxes * rows) {
      const int box = thread / rows, row = thread % rows;
      const int at_side = column / side + box;
      const int at_column = group / down * (n / block) + at_side / halves;
      if (group / down * n + at_side * side < end) {
        const int number = place.block(p, at_column, first_row(group) + row);
        const unsigned at = staging_at + (box * 64 + row * side) * out_line;
        const int x = at_side % halves * side;
        const int y = (place.batch * p.blocks + number) * block + group % halves * 64;
        if (number >= 0) {
          store_box(p.values, at, x, y);
          if constexpr (staged == 2) store_box(p.aside, at + apart, x, y);
        }
      }
      commit_stores();
    }
    if constexpr (from + round < 2 * count) {
      write_blocks<from + round>(p, sums, staging_at, group, place, column + round, end);
    }
  }

  /// The products of a stage are done.
  __device__ static void release(Shared& s, int stage) {
    if (threadIdx.x % 32 == 0) s.empty[stage].arrive();
  }

  /// The products of an item.
  __device__ static __forceinline__ void multiply_item(Shared& s, unsigned buffers, int group,
                                                       int steps, RingPlace<stages>& at,
                                                       float (&sums)[n / 2], bool& started) {
    int previous = -1;
    for (int step = 0; step < steps; ++step) {
      if (previous >= 0 &&
          !named_barrier_all(1 + group, warpgroup_size, s.full[at.stage].ended(at.parity))) {
        // There is time to hand back what was multiplied.
        warpgroup_wait<0>();
        release(s, previous);
        previous = -1;
      }
      s.full[at.stage].wait(at.parity);
      warpgroup_arrive();
      multiply_stage(sums, buffers + at.stage * (a_stage + b_stage), group, started);
      warpgroup_commit();
      warpgroup_wait<1>();
      if (previous >= 0) release(s, previous);
      previous = at.stage;
      at.advance();
    }
    warpgroup_wait<0>();
    release(s, previous);
    warpgroup_pin(sums);
  }

  /// Multiplies, adds and writes one item.
  __device__ static __forceinline__ void complete(const WarpgroupSddParams& p, Shared& s,
                                                  unsigned buffers, int group, int item, int steps,
                                                  RingPlace<stages>& at) {
    const unsigned staging_at = buffers + stages * (a_stage + b_stage) + group * staging;
    float sums[n / 2];
    bool started = false;
    multiply_item(s, buffers, group, steps, at, sums, started);
    const WorkPiece piece = piece_of_work(p.split, item);
    if (!finish_parts<groups>(p.split, piece, group, sums, started)) return;
    const Place place(p, piece.item);
    if (place.count > 0) write_blocks<0>(p, sums, staging_at, group, place, 0, place.count * block);
  }

  __device__ static void consume(const WarpgroupSddParams& p, Shared& s, unsigned buffers,
                                 int group) {
    const bool first_lane = threadIdx.x % 32 == 0;  // it alone reads what it then gives back
    RingPlace<stages> at;
    while (true) {
      s.full[at.stage].wait(at.parity);
      const int item = __shfl_sync(~0u, first_lane ? s.notes.item[at.stage] : 0, 0);
      if (item < 0) break;
      const int steps = __shfl_sync(~0u, first_lane ? s.notes.steps[at.stage] : 0, 0);
      complete(p, s, buffers, group, item, steps, at);
    }
    wait_stores_read();  // shared memory is theirs until then
  }

  __device__ static void run(const WarpgroupSddParams& p) {
    extern __shared__ unsigned char memory[];
    const unsigned buffers = (shared_address(memory) + 1023) / 1024 * 1024;
    Shared& s = *reinterpret_cast<Shared*>(memory + (buffers - shared_address(memory)) +
                                           stages * (a_stage + b_stage) + groups * staging);
    prefetch(p.lists);
    const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / warpgroup_size, 0);
    if (threadIdx.x == 0) {
      for (int i = 0; i < stages; ++i) {
        s.full[i].init(1);
        s.empty[i].init(4 * groups);
      }
      s.feed.init();
      fence_barrier_init();
      prefetch(p.values);
      prefetch(p.a);
      prefetch(p.b);
    }
    if (group == groups) {
      s.feed.begin(p);
      if (p.split.pieces == nullptr) look_up(p, static_cast<int>(blockIdx.x));
    }
    __syncthreads();
    if (group == groups) {
      if constexpr (finishes) give_registers<n == 128 ? 104 : n == 256 ? 56 : 88>();
      produce(p, s, buffers);
    } else {
      if constexpr (finishes) take_registers<n == 128 ? 200 : n == 256 ? 224 : 208>();
      consume(p, s, buffers, group);
    }
  }
};

}  // namespace bs::cuda::device
