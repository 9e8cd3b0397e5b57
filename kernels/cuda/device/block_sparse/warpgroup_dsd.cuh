#pragma once
// C = op(S) B on wgmma: one CTA computes a strip of block rows by `n` columns. One warpgroup
// copies: per stage 64 deep, the columns of B that the strip's rows use, and those blocks of S that
// exist; each other warpgroup multiplies 64 of the rows. Where a row of a 64-row tile lacks a
// column that another has, zeros are written; a tile that lacks it altogether skips it. Block rows
// of a strip follow each other, or are gathered from wherever they keep the same columns.
//
// The copy engine takes about as long for a line of 32 bytes as for one of 128: it is left to B and
// to blocks of 64 and 128. Of blocks of 32 two columns that are side by side come in whole lines.
#include <bs/kernels/cuda/device/block_sparse/warpgroup_dsd_exact.cuh>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_dsd_items.cuh>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_dsd_seats.cuh>

namespace bs::cuda::device {

template <class Config>
struct WarpgroupDsd {
  using T = typename Config::Element;
  using Epilogue = typename Config::Epilogue;
  static constexpr int block = Config::block;
  static constexpr bool transposed = Config::transposed;
  static constexpr int groups = 2;  // warpgroups that multiply
  static constexpr int n = Config::n;
  static constexpr int stages = Config::stages;
  static constexpr int slice = block < 64 ? block : 64;  // depth of one box of a block
  static constexpr int slices = 64 / slice;              // a stage
  static constexpr int halves = block / slice;           // stages a column of S takes
  static constexpr int boxes = 64 / slice;               // of a 64-row tile of a slice
  static constexpr int rows = groups * boxes / (block == 128 ? 2 : 1);  // block rows a strip
  static constexpr int line = 2 * slice;                                // bytes
  static constexpr unsigned a_slice = 64 * line, a_stage = groups * slices * a_slice;
  static constexpr unsigned b_slice = n * line, b_stage = slices * b_slice;
  /// Whether two columns of S, 2c and 2c + 1, are one slice of B where they meet in a stage.
  static constexpr bool pairs = block == 32 && Config::b_k_contiguous;
  static constexpr unsigned staging = 64 * 128 * 2;  // a warpgroup's half tile on its way out
  static constexpr bool finishes = !same_type<Epilogue, NoEpilogue>;
  static constexpr bool reduces = Epilogue::reductions > 0;
  static constexpr int staged = Config::staged;  // tiles that leave through it: C, and one more
  static constexpr bool gathered = Config::gathered;
  static constexpr int parts = gathered ? boxes : 1;  // of a 64-row tile, stored by themselves
  static constexpr int part_threads = warpgroup_size / parts;
  static_assert(!gathered || block < 128);
  static constexpr int threads = (groups + 1) * warpgroup_size;

  using Items = DsdItems<stages, gathered ? rows : 1>;
  using Item = DsdItem<gathered ? rows : 1>;

  struct Shared {
    Barrier full[stages], empty[stages];
    Items items;
    unsigned tiles[stages];     // in use, as DsdSeats has them; and `pair`
    unsigned dirty[3][stages];  // for each warp that copies, seats that hold numbers
  };
  static constexpr unsigned shared_bytes =
      stages * (a_stage + b_stage) + groups * staging + sizeof(Shared) + 1024;

  // ---- The warpgroup that copies.

  static constexpr bool small = block < 64;
  static constexpr int seats = slices * groups * boxes;  // blocks of S in a stage
  /// Warp 0 copies B (and large blocks of S), the next ones small blocks of S; the last takes
  /// items.
  static constexpr int copying_warps = small ? 3 : 1;
  static constexpr int arrivals = small ? 1 + 64 : 1;  // on `full`
  static constexpr int ahead = 3;  // steps from the end of a stretch, when the next is asked for

  /// Whether a stage is given back only when products of the next are under way, if that has come:
  /// meanwhile the tensor cores are busy. Where copies are what is waited for, it would starve
  /// them.
  static constexpr bool lingers = block == 32;

  using Seats = DsdSeats<boxes>;
  static constexpr unsigned pair = 1u << 31;  // of a stage: its columns are one
  /// Of a stage's tiles, those of warpgroup 0.
  static constexpr unsigned group_bits = slices == 4 ? 0x01010101u : slices == 2 ? 0x00000011u : 1u;
  static_assert(groups == 2 && (slices == 4 ? groups * boxes == 8 : true));

  /// What the copies of one step need, looked up ahead of them; lane q has seat q and slice q.
  struct Step {
    int block = -1;
    int col = -1;

    __device__ void look_up(const StripList& list, int begin, int size, int step) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const int entry = step / halves * slices;
      const int of = entry + lane / (groups * boxes);
      block = col = -1;
      if (lane < seats && of < size)
        block = __ldg(list.blocks + (begin + of) * static_cast<long long>(rows) +
                      (halves == 2 ? 0 : lane % (groups * boxes)));
      if (lane < slices && entry + lane < size) col = __ldg(list.cols + begin + entry + lane);
    }
  };

  /// Where in a stage the block of seat q goes.
  __device__ static unsigned seat_address(unsigned buffer, int q) {
    return buffer + (q / boxes % groups * slices + q / (groups * boxes)) * a_slice +
           q % boxes * slice * line;
  }

  __device__ static void copy_slice(const WarpgroupDsdParams& p, const TensorMapWords& b,
                                    Barrier& full, unsigned to, int k, const DsdStretch& of) {
    if constexpr (Config::b_k_contiguous) {
      load_box(to, b, full, k, of.column, of.b_at[0], of.b_at[1], of.b_at[2]);
    } else if (p.b_boxes == 0) {  // B's columns in boxes of 64 are an axis of the map
      load_box(to, b, full, 0, k, of.column / 64, of.b_at[0], of.b_at[1]);
    } else {
#pragma unroll 1
      for (int box = 0; box < n / 64; ++box)
        load_box(to + box * slice * 128, b, full, of.column + box * 64, k, of.b_at[0], of.b_at[1],
                 of.b_at[2]);
    }
  }

  /// What the copy engine brings. Its instruction takes one lane's numbers: lanes take turns.
  __device__ static void copy_boxes(const WarpgroupDsdParams& p, Shared& s, unsigned buffer,
                                    int stage, const DsdStretch& of, const Step& now, int step) {
    const bool elected = threadIdx.x % 32 == 0;
    const Seats seat(now.block, s.dirty[0][stage]);
    const int depth = __popc(__ballot_sync(~0u, now.col >= 0));
    const int half = halves == 2 ? step % 2 : 0;
    int cols[slices];
#pragma unroll
    for (int i = 0; i < slices; ++i) cols[i] = __shfl_sync(~0u, now.col, i);
    const bool whole = pairs && cols[0] % 2 == 0 && cols[slices - 1] == cols[0] + 1;
    if (elected) {
      s.tiles[stage] = seat.tiles | (whole ? pair : 0);
      s.full[stage].arrive_expecting(depth * b_slice +
                                     (small ? 0 : __popc(seat.present) * slice * line));
    }
#pragma unroll
    for (int i = 0; i < slices; ++i)
      if (elected && cols[i] >= 0 && (i == 0 || !whole))
        copy_slice(p, whole ? p.b_pairs : p.b, s.full[stage], buffer + a_stage + i * b_slice,
                   cols[i] * block + half * 64, of);
    if constexpr (!small) {
#pragma unroll
      for (int q = 0; q < seats; ++q) {
        const int number = __shfl_sync(~0u, now.block, q);
        const int y = (of.first_value + number) * block;
        if (elected && number >= 0) {
          if constexpr (halves == 2) {
            load_box(seat_address(buffer, q), p.values, s.full[stage],
                     (Config::transposed ? q : half) * 64,
                     y + (Config::transposed ? half : q) * 64);
          } else {
            load_box(seat_address(buffer, q), p.values, s.full[stage], 0, y);
          }
        }
      }
    }
  }

  /// Copies small blocks of S; warps 1 and 2 have every other seat.
  __device__ static void copy_blocks(const WarpgroupDsdParams& p, Shared& s, unsigned buffer,
                                     int stage, const DsdStretch& of, const Step& now, int warp) {
    const Seats seat(now.block, s.dirty[warp][stage]);
    const T* values =
        static_cast<const T*>(p.blocks) + of.first_value * static_cast<long long>(block * block);
    copy_seats<block, seats>(values, now.block, seat, warp - 1, buffer,
                             [](int q) { return seat_address(0, q); });
    s.full[stage].arrive_after_copies();
  }

  /// The warp that takes items and says what is to be done of them.
  __device__ static void take_items(const WarpgroupDsdParams& p, Items& s) {
    const bool elected = threadIdx.x % 32 == 0;
    const int products = count(p.sum);
    int turn = 0;
    const auto wait_asked = [&] {
      if (turn > 0) s.asked.wait((turn - 1) % 2);
    };
    const auto tell = [&](const DsdStretch& stretch) {
      if (elected) {
        s.stretches[turn % s.ring] = stretch;
        s.known[turn % s.ring].arrive();
      }
      ++turn;
    };
#pragma unroll 1
    for (int items = 0;; ++items) {
      wait_asked();
      const int work = take_item(p, items == 0);
      if (work >= p.items) {
        if (elected) {
          s.items[items % s.ring].steps = -1;
          leave_work(p.next);
        }
        tell({.size = -1});
        return;
      }
      const WorkPiece piece = piece_of_work(p.split, work);
      const DsdPlace place(p, piece.item);
      const BatchIndex batch(p.batch, place.batch);
      const int local = local_dsd_strip(p, place, batch);
      const DsdRows<gathered, rows, block> of_strip(p, batch, local);
      const int total = piece.end < 0 ? count_dsd_steps<halves, slices>(p, batch, local, products)
                                      : piece.end - piece.begin;
      if (elected) {
        Item& item = s.items[items % s.ring];
        item.work = work;
        item.steps = total;
        item.column = place.tile * n;
        item.batch = place.batch;
        of_strip.tell(item);
      }
      int skipped = piece.begin, left = total;
      bool first = true;
#pragma unroll 1
      for (int product = 0; product < products; ++product) {
        const BatchIndex index = batch + BatchIndex(p.sum, product);
        const int strip = index.dot(p.head_steps) * p.list.strips + local;
        const int begin = p.list.offsets[strip], size = p.list.offsets[strip + 1] - begin;
        const int all = (size * halves + slices - 1) / slices;
        const int from = min(skipped, all), steps = min(all, from + left);
        skipped -= from;
        left -= steps - from;
        const int end = total > 0 ? steps : product == 0;  // an empty item is one empty stage
        if (from >= end) continue;
        Step touched;  // brings what the copies look up first into L1
        touched.look_up(p.list, begin, size, from);
        asm volatile("" ::"r"(touched.block), "r"(touched.col));
        if (!first) wait_asked();
        first = false;
        tell({begin,
              size,
              from,
              end,
              index.dot(p.value_steps),
              place.tile * n,
              {index.along(p.b_steps, 0), index.along(p.b_steps, 1), index.along(p.b_steps, 2)}});
      }
    }
  }

  /// The warps that copy.
  __device__ static void produce(const WarpgroupDsdParams& p, Shared& s, unsigned buffers,
                                 int warp) {
    const bool elected = threadIdx.x % 32 == 0;
    RingPlace<stages> at;
#pragma unroll 1
    for (int turn = 0;; ++turn) {
      const DsdStretch of = s.items.wait(turn);
      if (of.size < 0) break;
      Step next;
      next.look_up(p.list, of.begin, of.size, of.from);
#pragma unroll 1
      for (int step = of.from; step < of.end; ++step) {
        const Step now = next;
        if (step + 1 < of.end) next.look_up(p.list, of.begin, of.size, step + 1);
        if (warp == 0 && elected && step == max(of.from, of.end - ahead)) s.items.asked.arrive();
        s.empty[at.stage].wait(at.parity ^ 1);
        const unsigned buffer = buffers + at.stage * (a_stage + b_stage);
        if (warp == 0) {
          copy_boxes(p, s, buffer, at.stage, of, now, step);
        } else if constexpr (small) {
          copy_blocks(p, s, buffer, at.stage, of, now, warp);
        }
        at.advance();
      }
    }
    s.empty[at.stage].wait(at.parity ^ 1);
    if (warp != 0 || elected) s.full[at.stage].arrive();
  }

  // ---- The warpgroups that multiply.

  /// Adds one slice's product.
  __device__ static void multiply_slice(float (&sums)[n / 2], unsigned buffer, int group, int i,
                                        bool whole, bool& started) {
    constexpr unsigned long long a_form = Config::transposed
                                              ? matrix_descriptor<line>(8 * line, slice * line)
                                              : matrix_descriptor<line>(8 * line, 0);
    constexpr unsigned long long b_slices = Config::b_k_contiguous
                                                ? matrix_descriptor<line>(8 * line, 0)
                                                : matrix_descriptor<128>(1024, slice * 128);
    const unsigned long long b_form = whole ? matrix_descriptor<128>(1024, 0) : b_slices;
    constexpr unsigned a_step = Config::transposed ? 16 * line : 32;
    constexpr unsigned b_step = Config::b_k_contiguous ? 32 : 2048;
    const unsigned a = buffer + (group * slices + i) * a_slice;
    const unsigned b = buffer + a_stage + i * (whole ? line : b_slice);
    warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < slice / 16; ++k) {
      Config::Mma::multiply(sums, a_form | descriptor_address(a + k * a_step),
                            b_form | descriptor_address(b + k * b_step), started);
      started = true;
    }
    warpgroup_commit();
  }

  using Totals = PatchTotals<Epilogue, reduced_side>;

  /// Where the warp's 16 rows of this warpgroup's tile begin.
  __device__ static int first_row(const Item& item, int group) {
    const int warp = static_cast<int>(threadIdx.x) % warpgroup_size / 32;
    if constexpr (!gathered) return item.rows[0] + group * 64 + warp * 16;
    return item.rows[group * boxes + warp * 16 / slice] + warp * 16 % slice;
  }

  __device__ static EpiloguePatch patch_at(const WarpgroupDsdParams& p, int row, int column,
                                           int batch) {
    return {row, column, batch, p.m - row, p.n - column};
  }

  /// The finished values of columns [column, column + 16) of the warp's rows, packed.
  __device__ static __forceinline__ void finish(const WarpgroupDsdParams& p, const float* sums,
                                                bool started, int row, int column, int batch,
                                                Totals& totals, unsigned (&r)[staged][4]) {
    const EpiloguePatch patch = patch_at(p, row, column, batch);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const PairPlace pair(i);
      const int at_row = row + pair.row % 16, left = p.n - column - pair.column;
      const EpiloguePlace at{min(at_row, p.m - 1), min(column + pair.column, p.n - 1), batch,
                             left == 1 ? 1 : 2};
      EpiloguePlace in = at;
      in.count = at_row < p.m ? left : 0;
      const float own[2] = {started ? sums[2 * i] : 0, started ? sums[2 * i + 1] : 0};
      float out[staged][2];
      finish_pair<Epilogue, staged>(p.epilogue, at, in, own, out, i, patch, totals);
#pragma unroll
      for (int o = 0; o < staged; ++o) r[o][i] = pack_pair<T>(out[o][0], out[o][1]);
    }
    totals.store_columns(p.epilogue.operands + Epilogue::operands, patch);
  }

  /// 64 columns at a time, which leave while the next ones are computed, and the last while the
  /// next item is multiplied.
  __device__ static void write_tile(const WarpgroupDsdParams& p, const float (&sums)[n / 2],
                                    bool started, unsigned staging_at, int group,
                                    const Item& item) {
    // A part is stored by the first thread of those that have its rows. Who that is, and where the
    // rows are, is found anew where it is asked for: registers are scarce.
    const auto thread = [] {
      return static_cast<int>(gathered ? fresh_thread() : threadIdx.x) % warpgroup_size;
    };
    const auto stores = [&] { return thread() % part_threads == 0; };
    const auto row = [&] { return first_row(item, group); };
    const int col = item.column, batch = item.batch;
    constexpr int cols = 64;  // a round
    constexpr unsigned apart = 64 * cols * 2;
    constexpr int buffers = staged == 1 && n > cols ? 2 : 1;
#pragma unroll
    for (int from = 0; from < n; from += cols) {
      Totals totals;
      const auto values = [&](int j, unsigned(&r)[staged][4]) {
        finish(p, sums + from / 2 + j * 8, started, row(), col + from + j * 16, batch, totals, r);
      };
      const unsigned to = staging_at + from / cols % buffers * apart;
      if (stores()) wait_stores_read<buffers - 1>();
      named_barrier(1 + group, warpgroup_size);
      if constexpr (Config::c_by_columns) {
        stage_columns<128 / parts, cols, staged>(to, apart, values);
      } else {
        stage_rows<128, cols, staged>(to, apart, values);
      }
      static_assert(cols == reduced_columns);
      if (col + from < p.n)
        totals.store_rows(p.epilogue.operands + Epilogue::operands,
                          patch_at(p, row(), col + from, batch), (col + from) / cols);
      fence_async_shared();
      named_barrier(1 + group, warpgroup_size);
      if (stores()) {
        const int x = Config::c_by_columns ? row() : col + from;
        const int y = Config::c_by_columns ? col + from : row();
        const unsigned at = to + thread() / part_threads * (apart / parts);
        store_box(p.c, at, x, y, batch);
        if constexpr (staged == 2) store_box(p.aside, at + apart, x, y, batch);
        commit_stores();
      }
    }
  }

  __device__ static void consume(const WarpgroupDsdParams& p, Shared& s, unsigned buffers,
                                 int group) {
    const bool elected = threadIdx.x % 32 == 0;
    const unsigned staging_at = buffers + stages * (a_stage + b_stage) + group * staging;
    RingPlace<stages> at;
    float sums[n / 2];
#pragma unroll 1
    for (int turn = 0;; ++turn) {
      s.full[at.stage].wait(at.parity);
      const Item& item = s.items.items[turn % s.items.ring];
      const int steps = __shfl_sync(~0u, item.steps, 0);
      if (steps < 0) break;
      if (steps == 0) {  // a strip without blocks came with an empty stage
        if (elected) s.empty[at.stage].arrive();
        at.advance();
      }
      bool started = false;
      int leaving = -1;              // stage that products under way read
      if constexpr (block == 128) {  // every warpgroup multiplies every stage
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
          s.full[at.stage].wait(at.parity);
          multiply_slice(sums, buffers + at.stage * (a_stage + b_stage), group, 0, false, started);
          warpgroup_wait<1>();
          if (leaving >= 0 && elected) s.empty[leaving].arrive();
          leaving = at.stage;
          at.advance();
        }
      } else {
        int left = steps;
        unsigned tiles = 0, mine = 0;
        const auto give_back = [&] {
          if (leaving >= 0 && elected) s.empty[leaving].arrive();
          leaving = -1;
        };
        // The next stage to multiply; others go back at once. Products stand outside of any branch,
        // or the compiler would wait for each.
        const auto seek = [&] {
          while (left > 0) {
            --left;
            if (lingers && leaving >= 0 &&
                !named_barrier_all(1 + group, warpgroup_size, s.full[at.stage].ended(at.parity))) {
              warpgroup_wait<0>();
              give_back();
            }
            s.full[at.stage].wait(at.parity);
            tiles = __shfl_sync(~0u, elected ? s.tiles[at.stage] : 0, 0);
            mine = tiles >> (group * boxes) & group_bits;
            if (mine != 0) return true;
            if (elected) s.empty[at.stage].arrive();
            at.advance();
          }
          return false;
        };
        const auto multiply_next = [&] {
          multiply_slice(sums, buffers + at.stage * (a_stage + b_stage), group,
                         (__ffs(static_cast<int>(mine)) - 1) / (groups * boxes),
                         pairs && (tiles & pair) != 0, started);
          mine &= mine - 1;
        };
        while (seek()) {
          if constexpr (small) fence_async_shared();  // S came by ordinary copies
          if constexpr (lingers) {
            multiply_next();
            warpgroup_wait<1>();
            give_back();
            leaving = at.stage;
            while (mine != 0) multiply_next();
          } else {
            do multiply_next();
            while (mine != 0);
            warpgroup_wait<0>();
            if (elected) s.empty[at.stage].arrive();
          }
          at.advance();
        }
      }
      warpgroup_wait<0>();
      if (leaving >= 0 && elected) s.empty[leaving].arrive();
      warpgroup_pin(sums);
      if (!finish_parts<groups>(p.split, piece_of_work(p.split, item.work), group, sums, started))
        continue;
      if constexpr (small)
        if (started) keep_absent_out<WarpgroupDsd>(p, item, group, sums);
      write_tile(p, sums, started, staging_at, group, item);
    }
    wait_stores_read();  // shared memory is theirs until then
  }

  __device__ static void run(const WarpgroupDsdParams& p) {
    extern __shared__ unsigned char memory[];
    const unsigned buffers = (shared_address(memory) + 1023) / 1024 * 1024;
    Shared& s = *reinterpret_cast<Shared*>(memory + (buffers - shared_address(memory)) +
                                           stages * (a_stage + b_stage) + groups * staging);
    prefetch(p.lists);
    const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / warpgroup_size, 0);
    if (threadIdx.x == 0) {
      for (int i = 0; i < stages; ++i) {
        for (int warp = 0; warp < 3; ++warp) s.dirty[warp][i] = ~0u;
        s.full[i].init(arrivals);
        s.empty[i].init(4 * groups);
      }
      s.items.init();
      fence_barrier_init();
      prefetch(p.values);
      prefetch(p.b);
      if constexpr (pairs) prefetch(p.b_pairs);
      prefetch(p.c);
    }
    __syncthreads();
    if (group == groups) {
      if constexpr (finishes || small) give_registers<reduces ? 64 : small ? 104 : 88>();
      const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) % warpgroup_size / 32, 0);
      if (warp < copying_warps) {
        produce(p, s, buffers, warp);
      } else if (warp == 3) {
        take_items(p, s.items);
      }
    } else {
      if constexpr (finishes || small) take_registers<reduces ? 216 : small ? 200 : 208>();
      consume(p, s, buffers, group);
    }
  }
};

}  // namespace bs::cuda::device
