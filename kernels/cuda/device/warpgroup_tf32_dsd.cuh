#pragma once
// C = op(S) B for f32 on wgmma: one CTA computes `n` rows of a block row by `columns` columns of C.
#include <bs/kernels/cuda/device/warpgroup_dsd_items.cuh>
#include <bs/kernels/cuda/device/warpgroup_tf32.cuh>
#include <bs/kernels/cuda/device/warpgroup_tf32_problem.cuh>

namespace bs::cuda::device {

/// C: that of WarpgroupTf32, and block, c_by_columns.
template <class C>
struct WarpgroupTf32Dsd {
  using Core = WarpgroupTf32<C>;
  using Result = WarpgroupTf32Result<C>;
  using Params = WarpgroupTf32DsdParams;
  using Shared = typename Core::Shared;
  static constexpr int threads = Core::threads;
  static constexpr unsigned shared_bytes = Core::shared_bytes;
  static constexpr int block = C::block, n = Core::n;
  static constexpr int parts = block / n;    // of a block's rows
  static constexpr int halves = block / 64;  // steps a block takes, as those of schedules: 64 deep

  __device__ static void copy(const Params& p, unsigned stage, Barrier& done, int number, int k,
                              int inside, int part, int column, const int (&b_at)[3]) {
    const int at_k = k * block + inside;
    if constexpr (C::wide_along_k) {
#pragma unroll
      for (int i = 0; i < Core::columns; i += 256)
        load_box(stage + i * Core::line, p.b, done, at_k, column + i, b_at[0], b_at[1], b_at[2]);
    } else if (p.b_pieces == 0) {  // B's columns in pieces of 32 are an axis of the map
      load_box(stage, p.b, done, 0, at_k, column / 32, b_at[0], b_at[1]);
    } else {
#pragma unroll 1
      for (int i = 0; i < Core::columns; i += 32)
        load_box(stage + i * Core::line, p.b, done, column + i, at_k, b_at[0], b_at[1], b_at[2]);
    }
    const unsigned narrow = stage + Core::wide_bytes;
    if constexpr (C::narrow_along_k) {
      load_box(narrow, p.values, done, inside, number * block + part * n);
    } else {
      load_box_for<1>(narrow, p.values, done, 0, number * block + inside, part * (n / 32));
    }
  }

  /// One lane.
  __device__ static void produce(const Params& p, Shared& s, unsigned buffers) {
    typename Core::Ring at;
    const int products = count(p.sum);
    int work = atomicAdd(p.next, 1);
    int turn = 0;
    for (; work < p.items; ++turn) {
      const int next_work = atomicAdd(p.next, 1);  // comes while this item is copied
      const WorkPiece piece = piece_of_work(p.split, work);
      const DsdPlace place(p, piece.item);
      const BatchIndex batch(p.batch, place.batch);
      const int local =
          p.list.order[batch.dot(p.head_steps) * p.list.strips + place.strip] % p.list.strips;
      const auto strip_of = [&](const BatchIndex& index) {
        return p.list.offsets + index.dot(p.head_steps) * p.list.strips + local;
      };
      int skipped = piece.begin, left = piece.end - piece.begin;
      if (piece.end < 0) {
        left = 0;
        for (int product = 0; product < products; ++product) {
          const int* strip = strip_of(batch + BatchIndex(p.sum, product));
          left += (strip[1] - strip[0]) * halves;
        }
      }
      const int part = place.tile % parts, column = place.tile / parts * Core::columns;
      const Tf32Item item{work, 2 * left, local * block + part * n, column, place.batch, 0, 0};
      bool first = true;
      if (left == 0) {
        Core::next_stage(s, at, buffers, true, turn, item, 0);
        at.advance();
      }
      for (int product = 0; product < products && left > 0; ++product) {
        const BatchIndex index = batch + BatchIndex(p.sum, product);
        const int* strip = strip_of(index);
        const int begin = strip[0], all = (strip[1] - begin) * halves;
        const int from = min(skipped, all), end = min(all, from + left);
        skipped -= from;
        left -= end - from;
        if (from == end) continue;
        const int b_at[3] = {index.along(p.b_steps, 0), index.along(p.b_steps, 1),
                             index.along(p.b_steps, 2)};
        const int first_value = index.dot(p.value_steps);
        int entry = begin + from / halves;
        int number = __ldg(p.list.blocks + entry), k = __ldg(p.list.cols + entry);
        for (int step = from; step < end; ++entry) {
          const int stop = min(end, (step / halves + 1) * halves);
          const int ahead = stop < end ? entry + 1 : entry;
          const int next_number = __ldg(p.list.blocks + ahead), next_k = __ldg(p.list.cols + ahead);
          for (int inside = step % halves * 64; step < stop; ++step)
            for (const int last = inside + 64; inside < last; inside += Core::depth) {
              const unsigned stage =
                  Core::next_stage(s, at, buffers, first, turn, item, Core::copied_bytes);
              first = false;
              copy(p, stage, s.landed[at.stage], first_value + number, k, inside, part, column,
                   b_at);
              at.advance();
            }
          number = next_number;
          k = next_k;
        }
      }
      work = next_work;
    }
    Core::next_stage(s, at, buffers, true, turn, {.work = -1}, 0);
    leave_work(p.next);
  }

  __device__ static void store(const Params& p, const Tf32Item& item, int group,
                               const typename Core::Sums& sums) {
    Result::template write<C::c_by_columns>(p, sums, [&](int q, int warp) {
      const int column = item.column + group * Core::wide * 64 + q * 128 + warp * 32;
      const long long first =
          item.batch * p.result_batch +
          (C::c_by_columns ? column * p.result_step + item.row : item.row * p.result_step + column);
      const EpiloguePlace at{column, item.row, item.batch, 2};
      return typename Result::Place{first, p.result_step,   p.n - column, p.whole_quads, at,
                                    at,    p.n - 1 - column};
    });
  }

  __device__ static void run(const Params& p) { Core::template run<WarpgroupTf32Dsd>(p); }
};

}  // namespace bs::cuda::device
