#pragma once
// The blocks of A B for f32 on wgmma, blocks of 16 and 32: block rows are gathered like the columns
// that they keep, as in the 16-bit kernels. TF32: an item is of 128 rows by 256 columns, of which
// each warpgroup has half. Three products, which wait for no copies: an item is of two ranges of 64
// rows by 128 columns, one a warpgroup, since more of the blocks of a smaller one are there.
#include <bs/kernels/cuda/device/block_sparse/warpgroup_sdd_items.cuh>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_tf32.cuh>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_tf32_problem.cuh>

namespace bs::cuda::device {

/// C: that of WarpgroupTf32, and block.
template <class C>
struct WarpgroupTf32Gathered {
  using Core = WarpgroupTf32<C>;
  using Params = WarpgroupTf32SddParams;
  using Shared = typename Core::Shared;
  using Feed = SddFeed<Core::copying>;
  static constexpr int threads = Core::threads;
  static constexpr unsigned shared_bytes = Core::shared_bytes;
  static constexpr int block = C::block;
  static constexpr int ranges = C::apart ? Core::groups : 1;  // of an item
  static constexpr int rows = Core::n / block;                // block rows of a range
  static constexpr int cols = Core::columns / ranges / block;
  static_assert(C::gathered && same_type<typename C::Epilogue, NoEpilogue>);

  using Place = SddPlace<ranges, rows, true>;

  // ---- The warps that copy.

  /// The box that a lane brings of every stage, if any: a block row of A or a block column of B.
  struct Box {
    bool narrow, wide;  ///< of which operand
    int line;           ///< of it
    int head;
    unsigned to;     // in the stage
    unsigned bytes;  // of all boxes of a stage

    __device__ Box(const Params& p, int item) : bytes(Core::narrow_bytes) {
      constexpr int all_rows = ranges * rows, all_cols = ranges * cols;
      static_assert(all_rows + all_cols <= 32 * Core::copying);
      const int warp = static_cast<int>(threadIdx.x) % warpgroup_size / 32;
      const int q = static_cast<int>(threadIdx.x) % 32 * Core::copying + warp, of_b = q - all_rows;
      narrow = q < all_rows;
      const Place place(p, item, narrow ? q / rows : min(of_b / cols, ranges - 1));
      wide = !narrow && of_b < all_cols && of_b % cols < place.count;
      head = place.head(p);
      if (narrow) {
        line = place.row(p, q % rows) * block;
        to = Core::wide_bytes + q * (block * Core::line);
      } else {
        line = wide ? place.column(p, of_b % cols) * block : 0;
        to = of_b * (block * Core::line);
      }
#pragma unroll
      for (int range = 0; range < ranges; ++range)
        bytes += Place(p, item, range).count * (block * Core::line);
    }

    __device__ void copy(const Params& p, Barrier& landed, unsigned stage, int k,
                         const int (&at)[2]) const {
      if (narrow)
        load<C::narrow_along_k>(stage + to, p.a, landed, line, k, p.a_head != 0, head, at);
      if (wide) load<C::wide_along_k>(stage + to, p.b, landed, line, k, p.b_head != 0, head, at);
    }
  };

  /// As WarpgroupTf32Sdd does it, in boxes of C::side lines.
  template <bool along_k>
  __device__ static void load(unsigned to, const TensorMapWords& map, Barrier& landed, int line,
                              int k, bool heads, int head, const int (&at)[2]) {
    if constexpr (along_k) {
      load_box(to, map, landed, k, line, heads ? head : 0, at[0], at[1]);
    } else {
      load_box(to, map, landed, 0, k, line / C::side, heads ? head : at[0], heads ? at[0] : at[1]);
    }
  }

  __device__ static void produce(const Params& p, Shared& s, unsigned buffers) {
    const bool leader = threadIdx.x % warpgroup_size == 0;
    typename Core::Ring at;
    typename Feed::Turn next;
    const int rounds = (p.depth + Core::depth - 1) / Core::depth;  // of a product
    int turn = 0;
    for (int work = s.feed.first(p); work < p.items; work = s.feed.take(next), ++turn) {
      const WorkPiece piece = piece_of_work(p.split, work);
      const Box box(p, piece.item);
      const BatchIndex batch(p.batch, piece.item / p.works);
      const int end = piece.end < 0 ? count(p.sum) * rounds : piece.end;
      Tf32Item item{};
      item.work = work;
      item.stages = end - piece.begin;
      for (int step = piece.begin; step < end; ++step) {
        const BatchIndex index = batch + BatchIndex(p.sum, step / rounds);
        const int axes[2] = {box.narrow ? index.along(p.a_steps, 0) : index.along(p.b_steps, 0),
                             box.narrow ? index.along(p.a_steps, 1) : index.along(p.b_steps, 1)};
        Barrier& landed = s.landed[at.stage];
        if (leader) {
          Core::next_stage(s, at, buffers, step == piece.begin, turn, item, box.bytes);
        } else {
          s.empty[at.stage].wait(at.parity ^ 1);
        }
        __syncwarp();
        box.copy(p, landed, buffers + at.stage * Core::stage_bytes, step % rounds * Core::depth,
                 axes);
        at.advance();
        // Once the ring is full there is time for it.
        if (step == min(piece.begin + Core::stages, end) - 1) s.feed.ask(p, next);
      }
    }
    if (leader) {
      Core::next_stage(s, at, buffers, true, turn, {.work = -1}, 0);
      leave_work(p.next);
    }
  }

  // ---- The warpgroups that multiply.

  /// Stores those blocks that exist.
  __device__ static void store(const Params& p, const Tf32Item& item, int group,
                               const typename Core::Sums& sums) {
    using Columns = LaneColumns<C::wide_along_k, C::side>;
    // Of a lane's columns so many are of one block.
    constexpr int alike = C::wide_along_k && block < 32 ? 2 : Columns::count;
    const Place place(p, piece_of_work(p.split, item.work).item, ranges > 1 ? group : 0);
    const int thread = static_cast<int>(fresh_thread());
    const int warp = thread % warpgroup_size / 32;
    const Columns own{thread % 32};
    const long long first = static_cast<long long>(place.batch) * p.blocks;
#pragma unroll
    for (int q = 0; q < C::wide / 2; ++q)
#pragma unroll
      for (int c = 0; c < Columns::count; c += alike) {
        const int column =
            (ranges > 1 ? 0 : group * C::wide * 64) + q * 128 + warp * 32 + own.row(c);
#pragma unroll
        for (int row = 0; row < rows; ++row) {
          const bool inside = column / block < place.count;
          const int number = inside ? place.block(p, column / block, row) : -1;
          if (number < 0) continue;
          float* const to =
              p.result + ((first + number) * block + own.lane() % 4 * 2) * block + column % block;
          constexpr int of_block = block / 8 * 4;  // sums of 8 rows each
#pragma unroll
          for (int i = 0; i < of_block; i += 4)
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
              float* const line = to + (i * 2 + odd) * block;
              const auto sum = [&](int j) {
                return sums[2 * q + (c + j) / 2][row * of_block + i + (c + j) % 2 * 2 + odd];
              };
              if constexpr (C::wide_along_k) {
#pragma unroll
                for (int j = 0; j < alike; ++j) line[j * Columns::apart] = sum(j);
              } else {
                *reinterpret_cast<float4*>(line) = make_float4(sum(0), sum(1), sum(2), sum(3));
              }
            }
        }
      }
  }

  __device__ static void run(const Params& p) { Core::template run<WarpgroupTf32Gathered>(p); }
};

}  // namespace bs::cuda::device
