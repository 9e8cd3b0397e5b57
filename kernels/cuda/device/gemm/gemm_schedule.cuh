#pragma once
// Which tile of which product a CTA computes next, over which part of the depth, and how tiles
// whose depth was split are put together again: in a fixed order of additions, whoever comes last.
// (SplitK::parallel leaves its slices in memory, and a kernel of its own, gemm_join.cuh, adds
// them.)
#include <bs/kernels/cuda/device/gemm/gemm_epilogue.cuh>
#include <bs/kernels/cuda/device/ptx/acquire.cuh>
#include <bs/kernels/cuda/device/ptx/patience.cuh>

namespace bs::cuda::device {

enum class GemmSplit { none, serial, parallel, stream_k };
enum class GemmGroup { batched, several };  // one shape and strides; a table of problems

/// A tile and a part of its depth, which is [k_begin, k_end) in steps.
struct GemmWork {
  int problem, m, n;
  int k_begin, k_end;
  int piece, pieces;
  int tile;       // number of the tile where its depth is split
  int first_cta;  // stream-K: that has a part of it
  bool turned;    // clusters: m and n are those of a tile, not of a pair
};

/// Down and Across: tiles of a cluster, a pair where one of them is 2. Of an odd number of rows
/// (columns) of tiles the last one's are paired along it, where CTAs share nothing.
template <int Rows, int Columns, int Depth, int Swizzle, GemmSplit split, GemmGroup group,
          int Down = 1, int Across = 1>
struct GemmSchedule {
  const GemmParams& p;
  int next;                     // work of this CTA
  int passed = 0, problem = 0;  // several, looked up: tiles of the problems before
  int position = 0, end = 0;    // stream-K: of the depth of the tiles that share it
  int shared_tiles = 0;         // stream-K

  __device__ explicit GemmSchedule(const GemmParams& params, int cta, int ctas)
      : p(params), next(cta), cta_(cta), ctas_(ctas) {
    if constexpr (split == GemmSplit::stream_k) {
      // All but the last wave and a bit in whole tiles; the rest is shared evenly.
      const int waves = p.tiles / ctas - (p.tiles % ctas != 0 ? 1 : 0);
      const bool even = p.tiles % ctas == 0;
      shared_tiles = even ? 0 : p.tiles - (waves > 0 ? waves * ctas : 0);
      position = begin(cta);
      end = begin(cta + 1);
      next = shared_tiles + cta;
    }
  }

  __device__ const GemmProblem& at(int problem_index) const {
    return group == GemmGroup::several ? p.problems[problem_index] : p.problem;
  }
  __device__ const GemmOperand* operands(int problem_index) const {
    return group == GemmGroup::several ? p.operand_table + problem_index * p.table_width
                                       : p.operands;
  }

  __device__ bool take(GemmWork& work) {
    if constexpr (split == GemmSplit::stream_k) {
      if (position < end) {
        take_shared(work);
        return true;
      }
    }
    const int slices = split == GemmSplit::serial || split == GemmSplit::parallel ? p.slices : 1;
    if (next >= p.tiles * slices) return false;
    const int tile = next / slices;
    locate(tile, work);
    const int all = steps(work.problem);
    work.tile = tile;
    work.piece = next % slices;
    work.pieces = slices;
    work.k_begin = static_cast<int>(static_cast<long long>(all) * work.piece / slices);
    work.k_end = static_cast<int>(static_cast<long long>(all) * (work.piece + 1) / slices);
    next += ctas_;
    return true;
  }

  /// Whether there is a tile to take, of which another thread tells the rest. For tiles whose depth
  /// is in one piece.
  __device__ bool pass() {
    if (next >= p.tiles) return false;
    next += ctas_;
    return true;
  }
  /// Of the depth of a problem's tiles.
  __device__ int steps(int problem_index) const {
    return (at(problem_index).k + Depth - 1) / Depth;
  }

  /// Where the sums of a piece wait.
  __device__ long long slot(const GemmWork& work, int piece) const {
    if constexpr (split == GemmSplit::serial) return work.tile;
    const int cta = work.first_cta + piece;
    const int steps = (p.problem.k + Depth - 1) / Depth;
    return 2LL * cta + (begin(cta) < work.tile * steps ? 1 : 0);
  }

 private:
  int cta_, ctas_;

  __device__ int shared_steps() const { return shared_tiles * ((p.problem.k + Depth - 1) / Depth); }
  __device__ int begin(int cta) const {
    const int total = shared_steps();
    const int rest = total % ctas_;
    return cta * (total / ctas_) + (cta < rest ? cta : rest);
  }
  /// The CTA that has a step.
  __device__ int owner(int step) const {
    const int total = shared_steps();
    const int each = total / ctas_, rest = total % ctas_;
    const int longer = rest * (each + 1);
    return step < longer ? step / (each + 1) : rest + (step - longer) / each;
  }
  __device__ void take_shared(GemmWork& work) {
    const int steps = (p.problem.k + Depth - 1) / Depth;
    const int tile = position / steps;
    locate(tile, work);
    work.tile = tile;
    work.k_begin = position - tile * steps;
    work.k_end = end - tile * steps < steps ? end - tile * steps : steps;
    work.first_cta = owner(tile * steps);
    work.pieces = owner(tile * steps + steps - 1) - work.first_cta + 1;
    work.piece = cta_ - work.first_cta;
    position = tile * steps + work.k_end;
  }

  __device__ void locate(int tile, GemmWork& work) {
    if constexpr (group == GemmGroup::several) {
      if (p.schedule != nullptr) {
        work.problem = p.schedule[tile].problem;
        raster(at(work.problem), p.schedule[tile].tile, work);
        return;
      }
      while (true) {
        const GemmProblem& q = p.problems[problem];
        const int tiles = ((q.m + Rows - 1) / Rows) * ((q.n + Columns - 1) / Columns);
        if (tile < passed + tiles) break;
        passed += tiles;
        ++problem;
      }
      work.problem = problem;
      raster(at(problem), tile - passed, work);
    } else if constexpr (Down * Across == 1) {
      const int tiles = ((p.problem.m + Rows - 1) / Rows) * ((p.problem.n + Columns - 1) / Columns);
      work.problem = tile / tiles;
      raster(p.problem, tile % tiles, work);
    } else {
      const int rows = (p.problem.m + Rows - 1) / Rows,
                columns = (p.problem.n + Columns - 1) / Columns;
      const int pairs = rows / Down * (columns / Across);
      const int odd = Down == 2 ? rows % 2 * ((columns + 1) / 2) : columns % 2 * ((rows + 1) / 2);
      work.problem = tile / (pairs + odd);
      const int within = tile % (pairs + odd);
      work.turned = within >= pairs;
      if (work.turned) {
        work.m = Down == 2 ? rows - 1 : 2 * (within - pairs);
        work.n = Down == 2 ? 2 * (within - pairs) : columns - 1;
      } else {
        raster(rows / Down, columns / Across, within, work);
      }
    }
  }
  /// Down the rows of a panel of `Swizzle` columns of tiles, then the next panel: CTAs at work at
  /// one time share both operands in L2.
  __device__ static void raster(int rows, int columns, int tile, GemmWork& work) {
    const int panel = tile / (Swizzle * rows);
    const int width = columns - panel * Swizzle < Swizzle ? columns - panel * Swizzle : Swizzle;
    const int within = tile - panel * Swizzle * rows;
    work.m = within / width;
    work.n = panel * Swizzle + within % width;
  }
  __device__ static void raster(const GemmProblem& q, int tile, GemmWork& work) {
    raster((q.m + Rows - 1) / Rows, (q.n + Columns - 1) / Columns, tile, work);
  }
};

/// SplitK::parallel: the sums of all slices of all tiles in memory. A thread's are 16 bytes at a
/// time, beside those of the others.
template <int Threads, int N, class Sum>
struct SlicesInMemory {
  static constexpr int width = 16 / static_cast<int>(sizeof(Sum));
  static_assert(N % width == 0);
  using Pack = Neighbours<Sum, width>;

  __device__ static Sum* slice(const GemmParams& p, int tile, int slices, int piece) {
    return static_cast<Sum*>(p.partials) +
           (static_cast<long long>(tile) * slices + piece) * (N * Threads);
  }
  __device__ static void store(Sum* slice, int thread, const Sum (&sums)[N]) {
#pragma unroll
    for (int i = 0; i < N / width; ++i) {
      Pack some;
#pragma unroll
      for (int j = 0; j < width; ++j) some.at[j] = sums[i * width + j];
      some.store(slice + (i * Threads + thread) * width);
    }
  }
  /// Numbers i * width and on of a thread.
  __device__ static Pack load(const Sum* slice, int thread, int i) {
    Pack some;
    some.load(slice + (i * Threads + thread) * width);
    return some;
  }
};

/// Puts the pieces of a tile together, where there are several. True for the CTA that ends up with
/// the whole sums, added in the order of the pieces. `Threads` threads call it, `thread` from 0;
/// `sync` is their barrier and `flag` a word that they share.
template <GemmSplit split, int Threads, int N, class Sum, class Schedule, class Sync>
__device__ inline bool join_pieces(const GemmParams& p, const Schedule& schedule,
                                   const GemmWork& work, Sum (&sums)[N], int thread, int* flag,
                                   const Sync& sync) {
  if (split == GemmSplit::none || work.pieces == 1) return true;
  if constexpr (split == GemmSplit::parallel) {
    using Slices = SlicesInMemory<Threads, N, Sum>;
    Slices::store(Slices::slice(p, work.tile, work.pieces, work.piece), thread, sums);
    return false;
  }
  const auto slot = [&](int piece) {
    return static_cast<Sum*>(p.partials) + schedule.slot(work, piece) * (N * Threads) + thread;
  };
  int* counter = p.counters + work.tile;
  const auto write = [&] {
    Sum* to = slot(work.piece);
#pragma unroll
    for (int i = 0; i < N; ++i) to[i * Threads] = sums[i];
    __threadfence();
    sync();
  };
  if constexpr (split == GemmSplit::serial) {
    if (work.piece > 0) {
      if (thread == 0)
        for (Patience patience; load_acquire(counter) != work.piece;)
          if (!patience.lasts()) break;
      sync();
      const Sum* from = slot(0);
#pragma unroll
      for (int i = 0; i < N; ++i) sums[i] = __ldcg(from + i * Threads) + sums[i];
    }
    if (work.piece == work.pieces - 1) return true;
    write();
    if (thread == 0) store_release(counter, work.piece + 1);
    return false;
  } else {
    write();
    if (thread == 0) *flag = add_acquire_release(counter, 1) == work.pieces - 1;
    sync();
    const bool last = *flag != 0;
    sync();
    if (!last) return false;
    __threadfence();
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] = 0;
    for (int piece = 0; piece < work.pieces; ++piece) {
      const Sum* from = slot(piece);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        sums[i] += __ldcg(from + i * Threads);
        if (i % 16 == 15) asm volatile("" ::: "memory");  // not all loads at once: registers
      }
    }
    return true;
  }
}

}  // namespace bs::cuda::device
