#pragma once
// C = op(S) B for f32 on wgmma: one CTA computes `n` rows of a block row by `columns` columns of C;
// or two or four block rows of 32, which follow each other, or are gathered since they are alike.
#include <bs/kernels/cuda/device/block_sparse/warpgroup_dsd_items.cuh>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_tf32.cuh>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_tf32_problem.cuh>

namespace bs::cuda::device {

/// C: that of WarpgroupTf32, and block, c_by_columns, gathered_rows.
template <class C>
struct WarpgroupTf32Dsd {
  using Core = WarpgroupTf32<C>;
  using Result = WarpgroupTf32Result<C>;
  using Params = WarpgroupTf32DsdParams;
  using Shared = typename Core::Shared;
  static constexpr int threads = Core::threads;
  static constexpr unsigned shared_bytes = Core::shared_bytes;
  static constexpr int block = C::block, n = Core::n, rows = C::rows;
  static constexpr int slabs = block > n ? block / n : 1;  // of a block's rows
  static constexpr int per = block / Core::depth;          // stages that a block takes
  static constexpr bool gathered = C::gathered_rows;       // those told apart
  static_assert(rows == 1 || (slabs == 1 && per == 1));

  /// The blocks of a column of a strip, and which column it is.
  struct Entry {
    int numbers[rows], k;

    __device__ Entry(const StripList& list, int at) : k(__ldg(list.cols + at)) {
#pragma unroll
      for (int i = 0; i < rows; ++i)
        numbers[i] = __ldg(list.blocks + at * static_cast<long long>(rows) + i);
    }
    __device__ int present() const {
      int bits = 0;
#pragma unroll
      for (int i = 0; i < rows; ++i) bits |= (numbers[i] >= 0) << i;
      return bits;
    }
  };

  /// Copies a stage, whose narrow operand is of the blocks behind number `first`.
  __device__ static void copy(const Params& p, unsigned stage, Barrier& done, const Entry& of,
                              int first, int inside, int slab, int column, const int (&b_at)[3]) {
    const int at_k = of.k * block + inside;
    if constexpr (C::wide_along_k) {
#pragma unroll
      for (int i = 0; i < Core::columns; i += 256)
        load_box(stage + i * Core::line, p.b, done, at_k, column + i, b_at[0], b_at[1], b_at[2]);
    } else if (p.b_boxes == 0) {  // B's columns in boxes of 32 are an axis of the map
      load_box(stage, p.b, done, 0, at_k, column / 32, b_at[0], b_at[1]);
    } else {
#pragma unroll 1
      for (int i = 0; i < Core::columns; i += 32)
        load_box(stage + i * Core::line, p.b, done, column + i, at_k, b_at[0], b_at[1], b_at[2]);
    }
    const unsigned narrow = stage + Core::wide_bytes;
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const int number = first + of.numbers[i];
      if (rows > 1 && of.numbers[i] < 0) continue;
      if constexpr (rows > 1 || C::narrow_along_k) {
        load_box(narrow + i * Core::box, p.values, done, inside, number * block + slab * n);
      } else {
        load_box_for<1>(narrow, p.values, done, 0, number * block + inside, slab * (n / 32));
      }
    }
  }

  /// Calls `f(index, strip's first entry, begin, end)` with those stages of each product that a
  /// piece of work has. A step, by which these are cut, is of two.
  template <class F>
  __device__ static void each_product(const Params& p, const WorkPiece& piece,
                                      const BatchIndex& batch, int local, const F& f) {
    const int products = count(p.sum);
    int skipped = piece.begin, left = piece.end < 0 ? 0x7fffffff : piece.end - piece.begin;
#pragma unroll 1
    for (int product = 0; product < products && left > 0; ++product) {
      const BatchIndex index = batch + BatchIndex(p.sum, product);
      const int* const strip = p.list.offsets + index.dot(p.head_steps) * p.list.strips + local;
      const int first = strip[0], all = (strip[1] - first) * per, steps = (all + 1) / 2;
      const int from = min(skipped, steps), end = min(steps - from, left) + from;
      skipped -= from;
      left -= end - from;
      if (from < end) f(index, first, 2 * from, min(2 * end, all));
    }
  }

  /// One lane.
  __device__ static void produce(const Params& p, Shared& s, unsigned buffers) {
    typename Core::Ring at;
    int work = atomicAdd(p.next, 1);
    int turn = 0;
    for (; work < p.items; ++turn) {
      const int next_work = atomicAdd(p.next, 1);  // comes while this item is copied
      const WorkPiece piece = piece_of_work(p.split, work);
      const DsdPlace place(p, piece.item);
      const BatchIndex batch(p.batch, place.batch);
      const int local = local_dsd_strip(p, place, batch);
      int stages = 0;
      each_product(p, piece, batch, local,
                   [&](const BatchIndex&, int, int begin, int end) { stages += end - begin; });
      const int slab = place.tile % slabs, column = place.tile / slabs * Core::columns;
      const DsdRows<gathered, rows, block> listed(p, batch, local);
      Tf32Item item{work, stages, listed.at[0] * block + slab * n, column, place.batch, 0, 0, {}};
      if constexpr (rows > 1)
#pragma unroll
        for (int i = 1; i < rows; ++i)
          item.others[i - 1] = gathered ? listed.at[i] * block : item.row + i * block;
      bool first = true;
      if (stages == 0) {
        Core::next_stage(s, at, buffers, true, turn, item, 0);
        at.advance();
      }
      each_product(p, piece, batch, local, [&](const BatchIndex& index, int strip, int t, int end) {
        const int b_at[3] = {index.along(p.b_steps, 0), index.along(p.b_steps, 1),
                             index.along(p.b_steps, 2)};
        const int first_value = index.dot(p.value_steps);
        Entry next(p.list, strip + t / per);
#pragma unroll 1
        while (t < end) {
          const Entry now = next;
          const int stop = min(end, (t / per + 1) * per);
          if (stop < end) next = Entry(p.list, strip + stop / per);
          const int present = now.present();
          const unsigned bytes =
              rows == 1 ? Core::copied_bytes : Core::wide_bytes + __popc(present) * Core::box;
          for (; t < stop; ++t) {
            const unsigned stage =
                Core::next_stage(s, at, buffers, first, turn, item, bytes, present);
            first = false;
            copy(p, stage, s.landed[at.stage], now, first_value, t % per * Core::depth, slab,
                 column, b_at);
            at.advance();
          }
        }
      });
      work = next_work;
    }
    Core::next_stage(s, at, buffers, true, turn, {.work = -1}, 0);
    leave_work(p.next);
  }

  __device__ static void store(const Params& p, const Tf32Item& item, int group,
                               const typename Core::Sums& sums) {
    Result::template write<C::c_by_columns>(p, sums, [&](int q, int warp, int chunk) {
      const int column = item.column + group * Core::wide * 64 + q * 128 + warp * 32;
      const int other = chunk == 0 ? item.row : item.others[chunk - 1];
      const bool kept = other < p.m;  // the last row may have no others
      const int row = kept ? other : item.row;
      const long long first =
          item.batch * p.result_batch +
          (C::c_by_columns ? column * p.result_step + row : row * p.result_step + column);
      const EpiloguePlace at{column, row, item.batch, 2};
      return typename Result::Place{
          first, p.result_step, kept ? p.n - column : 0, p.whole_quads, at, at, p.n - 1 - column};
    });
  }

  __device__ static void run(const Params& p) { Core::template run<WarpgroupTf32Dsd>(p); }
};

}  // namespace bs::cuda::device
