#pragma once
// The blocks of A B on wgmma: one CTA computes, for a strip of 64 rows (128 with blocks of 128), up
// to `n` columns a warpgroup of those that its rows keep, gathered side by side. One warp copies.
#include <bs/kernels/cuda/device/block_sparse_strips.cuh>
#include <bs/kernels/cuda/device/warpgroup_parts.cuh>

namespace bs::cuda::device {

template <class Config>
struct WarpgroupSdd {
  using T = typename Config::Element;
  static constexpr int block = Config::block;
  static constexpr int groups = 2;     // warpgroups that multiply
  static constexpr int n = Config::n;  // columns a warpgroup
  static constexpr int stages = Config::stages;
  static constexpr int depth = 64;                                           // of a stage
  static constexpr int down = block == 128 ? 2 : 1, across = groups / down;  // warpgroups
  static constexpr int side = block < 64 ? block : 64;  // of a piece of a block
  static constexpr int halves = block / side;
  static constexpr int rows = 64 / side;           // block rows of a strip
  static constexpr int cols = across * n / block;  // block columns an item takes at most
  static constexpr int b_line = Config::b_k_contiguous ? 2 * depth : 2 * side;  // bytes
  static constexpr int a_line = Config::a_k_contiguous ? 2 * depth : 128;
  static constexpr unsigned a_tile = 64 * depth * 2, a_stage = down * a_tile;
  static constexpr unsigned b_piece = side * depth * 2, b_stage = cols * halves * b_piece;
  static constexpr unsigned staging = 64 * 128 * 2;
  static constexpr int threads = (groups + 1) * warpgroup_size;
  static constexpr int out_line = 2 * side;
  static constexpr bool finishes = !same_type<typename Config::Epilogue, NoEpilogue>;
  static constexpr int staged = Config::staged;  // tiles that leave through staging

  struct Shared {
    Barrier full[stages], empty[stages];
    int item[stages];   // or piece of one; -1 at the end
    int steps[stages];  // of it
  };
  static constexpr unsigned shared_bytes =
      stages * (a_stage + b_stage) + groups * staging + sizeof(Shared) + 1024;

  struct Place {
    int strip, first, count, batch;
    __device__ Place(const WarpgroupSddParams& p, int item) {
      const int work = item % p.works;
      batch = item / p.works;
      strip = __ldg(p.work + 2 * work);
      first = __ldg(p.work + 2 * work + 1);
      const int rest = __ldg(p.list.offsets + strip + 1) - first;
      count = rest < cols ? rest : cols;
    }
  };

  // ---- The warp that copies.

  __device__ static void copy_stage(const WarpgroupSddParams& p, Barrier& full, unsigned buffer,
                                    int k, int row, const int (&a_at)[3], int pieces,
                                    const int (&col)[2], const int (&b_at)[3]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane < down) {
      const unsigned to = buffer + lane * a_tile;
      if constexpr (Config::a_k_contiguous) {
        load_box(to, p.a, full, k, row + lane * 64, a_at[0], a_at[1], a_at[2]);
      } else {
        load_box(to, p.a, full, row + lane * 64, k, a_at[0], a_at[1], a_at[2]);
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int q = j * 32 + lane;
      if (q < pieces) {
        const unsigned to = buffer + a_stage + q * b_piece;
        if constexpr (Config::b_k_contiguous) {
          load_box(to, p.b, full, k, col[j], b_at[0], b_at[1], b_at[2]);
        } else {
          load_box(to, p.b, full, col[j], k, b_at[0], b_at[1], b_at[2]);
        }
      }
    }
  }

  __device__ static void produce(const WarpgroupSddParams& p, Shared& s, unsigned buffers) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    RingPlace<stages> at;
    int item = 0;
    while (true) {
      if (lane == 0) item = atomicAdd(p.next, 1);
      item = __shfl_sync(~0u, item, 0);
      if (item >= p.items) break;
      const WorkPiece piece = piece_of_work(p.split, item);
      const Place place(p, piece.item);
      const BatchIndex batch(p.batch, place.batch);
      const int pieces = place.count * halves;
      int col[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int q = j * 32 + lane;
        col[j] = q < pieces
                     ? __ldg(p.list.cols + place.first + q / halves) * block + q % halves * side
                     : 0;
      }
      const int row = place.strip % p.list.strips * rows * (block == 128 ? 128 : side);
      const int head = place.strip / p.list.strips;
      const int rounds = (p.depth + depth - 1) / depth;  // of a product
      const int end = piece.end < 0 ? count(p.sum) * rounds : piece.end;
      for (int step = piece.begin; step < end;) {
        const BatchIndex index = batch + BatchIndex(p.sum, step / rounds);
        const int a_at[3] = {head * p.a_head, index.along(p.a_steps, 0), index.along(p.a_steps, 1)};
        const int b_at[3] = {head * p.b_head, index.along(p.b_steps, 0), index.along(p.b_steps, 1)};
        const int stop = min(end, (step / rounds + 1) * rounds);
        for (int k = step % rounds * depth; step < stop; ++step, k += depth) {
          s.empty[at.stage].wait(at.parity ^ 1);
          if (lane == 0) {
            s.item[at.stage] = item;
            s.steps[at.stage] = end - piece.begin;
            s.full[at.stage].arrive_expecting(a_stage + pieces * b_piece);
          }
          __syncwarp();
          copy_stage(p, s.full[at.stage], buffers + at.stage * (a_stage + b_stage), k, row, a_at,
                     pieces, col, b_at);
          at.advance();
        }
      }
    }
    s.empty[at.stage].wait(at.parity ^ 1);
    if (lane == 0) {
      leave_work(p.next);
      s.item[at.stage] = -1;
      s.full[at.stage].arrive();
    }
  }

  // ---- The warpgroups that multiply.

  __device__ static void multiply_stage(float (&sums)[n / 2], unsigned buffer, int group,
                                        bool& started) {
    constexpr unsigned long long a_form = Config::a_k_contiguous
                                              ? matrix_descriptor<a_line>(8 * a_line, 0)
                                              : matrix_descriptor<128>(1024, 0);
    constexpr unsigned long long b_form = Config::b_k_contiguous
                                              ? matrix_descriptor<b_line>(8 * b_line, 0)
                                              : matrix_descriptor<b_line>(8 * b_line, b_piece);
    constexpr unsigned a_step = Config::a_k_contiguous ? 32 : 2048;
    constexpr unsigned b_step = Config::b_k_contiguous ? 32 : 16 * b_line;
    const unsigned a = buffer + group % down * a_tile;
    const unsigned b = buffer + a_stage + group / down * (n / side) * b_piece;
#pragma unroll
    for (int k = 0; k < depth / 16; ++k) {
      Config::Mma::multiply(sums, a_form | descriptor_address(a + k * a_step),
                            b_form | descriptor_address(b + k * b_step), started);
      started = true;
    }
  }

  /// The finished values of columns [column, column + 16) of this warpgroup's tile, packed: part of
  /// one block, as the 16 rows of a warp are.
  __device__ static __forceinline__ void finish(const WarpgroupSddParams& p, const float* sums,
                                                const Place& place, int group, int column,
                                                unsigned (&r)[staged][4]) {
    const int entry = min(group / down * (n / block) + column / block, place.count - 1);
    const long long at_entry = place.first + entry;
    const int block_row = static_cast<int>(threadIdx.x) % warpgroup_size / 32 * 16 / side;
    const int head = place.strip / p.list.strips;
    const int row0 =
        (place.strip % p.list.strips * rows * (block == 128 ? 2 : 1) + group % down) * side;
    const int number = __ldg(p.list.blocks + at_entry * rows + block_row);
    const int column0 = __ldg(p.list.cols + at_entry) * block;
    const int count = number < 0 || group / down * n + column >= place.count * block ? 0 : 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const PairPlace pair(i);
      const int k = (column + pair.column) % block;
      const int in_block = (pair.row + group % down * 64) % block;
      const EpiloguePlace at{min(row0 + pair.row, p.m - 1), column0 + k,
                             place.batch * p.heads + head, 2};
      const EpiloguePlace in{max(number, 0) * block + in_block, k, place.batch, count};
      const float own[2] = {sums[2 * i], sums[2 * i + 1]};
      float out[staged][2];
      finish_sums<typename Config::Epilogue, staged>(p.epilogue, at, in, own, out);
#pragma unroll
      for (int o = 0; o < staged; ++o) r[o][i] = pack_pair<T>(out[o][0], out[o][1]);
    }
  }

  static constexpr int round = n % 128 || staged == 2 ? 64 : 128;  // columns written at a time
  /// Writes columns from `from` on. Rounds are no loop: one as long would not be unrolled, and the
  /// sums then not stay in registers.
  template <int from>
  __device__ static __forceinline__ void write_blocks(const WarpgroupSddParams& p,
                                                      const float (&sums)[n / 2],
                                                      unsigned staging_at, int group,
                                                      const Place& place) {
    const int thread = threadIdx.x % warpgroup_size;
    constexpr int pieces = round / side;  // of columns
    constexpr unsigned apart = 64 * 64 * 2;
    wait_stores_read();
    named_barrier(1 + group, warpgroup_size);
    stage_rows<out_line, round, staged>(staging_at, apart, [&](int j, unsigned(&r)[staged][4]) {
      finish(p, sums + from / 2 + j * 8, place, group, from + j * 16, r);
    });
    fence_async_shared();
    named_barrier(1 + group, warpgroup_size);
    if (thread < pieces * rows) {
      const int piece = thread / rows, row = thread % rows;
      const int entry = group / down * (n / block) + (from / side + piece) / halves;
      if (entry < place.count) {
        const int number =
            __ldg(p.list.blocks + static_cast<long long>(place.first + entry) * rows + row);
        const unsigned at = staging_at + (piece * 64 + row * side) * out_line;
        const int x = (from / side + piece) % halves * side;
        const int y = (place.batch * p.blocks + number) * block + group % down * 64;
        if (number >= 0) {
          store_box(p.values, at, x, y);
          if constexpr (staged == 2) store_box(p.aside, at + apart, x, y);
        }
      }
      commit_stores();
    }
    if constexpr (from + round < n) write_blocks<from + round>(p, sums, staging_at, group, place);
  }

  __device__ static void consume(const WarpgroupSddParams& p, Shared& s, unsigned buffers,
                                 int group) {
    const bool elected = threadIdx.x % 32 == 0;
    const unsigned staging_at = buffers + stages * (a_stage + b_stage) + group * staging;
    RingPlace<stages> at;
    float sums[n / 2];
    while (true) {
      s.full[at.stage].wait(at.parity);
      const int item = __shfl_sync(~0u, s.item[at.stage], 0);
      if (item < 0) break;
      const int steps = __shfl_sync(~0u, s.steps[at.stage], 0);
      bool started = false;
      int previous = -1;
      for (int step = 0; step < steps; ++step) {
        s.full[at.stage].wait(at.parity);
        warpgroup_arrive();
        multiply_stage(sums, buffers + at.stage * (a_stage + b_stage), group, started);
        warpgroup_commit();
        warpgroup_wait<1>();
        if (previous >= 0 && elected) s.empty[previous].arrive();
        previous = at.stage;
        at.advance();
      }
      warpgroup_wait<0>();
      if (elected) s.empty[previous].arrive();
      warpgroup_pin(sums);
      if (!finish_parts<groups>(p.split, item, group, sums, started)) continue;
      write_blocks<0>(p, sums, staging_at, group, Place(p, piece_of_work(p.split, item).item));
    }
    wait_stores_read();  // shared memory is theirs until then
  }

  __device__ static void run(const WarpgroupSddParams& p) {
    extern __shared__ unsigned char memory[];
    const unsigned buffers = (shared_address(memory) + 1023) / 1024 * 1024;
    Shared& s = *reinterpret_cast<Shared*>(memory + (buffers - shared_address(memory)) +
                                           stages * (a_stage + b_stage) + groups * staging);
    const int group = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / warpgroup_size, 0);
    if (threadIdx.x == 0) {
      for (int i = 0; i < stages; ++i) {
        s.full[i].init(1);
        s.empty[i].init(4 * groups);
      }
      fence_barrier_init();
      prefetch(p.values);
      prefetch(p.a);
      prefetch(p.b);
    }
    __syncthreads();
    if (group == groups) {
      if constexpr (finishes) give_registers<104>();
      if (threadIdx.x / 32 % 4 == 0) produce(p, s, buffers);
    } else {
      if constexpr (finishes) take_registers<200>();
      consume(p, s, buffers, group);
    }
  }
};

}  // namespace bs::cuda::device
