#pragma once
// The blocks of A B for f32 on wgmma: one CTA computes, for `n` rows of a block row, up to
// `columns` of the columns that it keeps, gathered side by side.
#include <bs/kernels/cuda/device/block_sparse/warpgroup_tf32.cuh>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_tf32_problem.cuh>

namespace bs::cuda::device {

/// C: that of WarpgroupTf32, and block.
template <class C>
struct WarpgroupTf32Sdd {
  using Core = WarpgroupTf32<C>;
  using Result = WarpgroupTf32Result<C>;
  using Params = WarpgroupTf32SddParams;
  using Shared = typename Core::Shared;
  static constexpr int threads = Core::threads;
  static constexpr unsigned shared_bytes = Core::shared_bytes;
  static constexpr int block = C::block, n = Core::n;
  static constexpr int slabs = block / n;                 // of a block's rows
  static constexpr int gathered = Core::columns / block;  // block columns

  /// One lane.
  __device__ static void produce(const Params& p, Shared& s, unsigned buffers) {
    typename Core::Ring at;
    int work = atomicAdd(p.next, 1);
    const int rounds = (p.depth + Core::depth - 1) / Core::depth;  // of a product
    int turn = 0;
    for (; work < p.items; ++turn) {
      const int next_work = atomicAdd(p.next, 1);  // comes while this item is copied
      const WorkPiece piece = piece_of_work(p.split, work);
      const int slab = piece.item % slabs, rest = piece.item / slabs;
      const SddRange range = p.work[rest % p.works];
      const int number = rest / p.works, head = range.strip / p.list.strips;
      const BatchIndex batch(p.batch, number);
      const int end = piece.end < 0 ? count(p.sum) * rounds : piece.end;
      const Tf32Item item{work,   end - piece.begin, slab * n,   range.first,
                          number, range.count,       range.strip};
      const int line = range.strip % p.list.strips * block + slab * n;
      int columns[gathered];
#pragma unroll
      for (int i = 0; i < gathered; ++i)
        columns[i] = i < range.count ? __ldg(p.list.cols + range.first + i) * block : -1;
      const unsigned bytes = Core::narrow_bytes + range.count * block * Core::line;
      for (int step = piece.begin; step < end; ++step) {
        const BatchIndex index = batch + BatchIndex(p.sum, step / rounds);
        const int a_at[3] = {head * p.a_head, index.along(p.a_steps, 0), index.along(p.a_steps, 1)};
        const int b_at[3] = {head * p.b_head, index.along(p.b_steps, 0), index.along(p.b_steps, 1)};
        const unsigned stage =
            Core::next_stage(s, at, buffers, step == piece.begin, turn, item, bytes);
        Barrier& done = s.landed[at.stage];
        const int k = step % rounds * Core::depth;
        copy<C::narrow_along_k>(stage + Core::wide_bytes, p.a, done, line, k, p.a_head != 0, a_at);
#pragma unroll
        for (int i = 0; i < gathered; ++i)
          if (columns[i] >= 0)
            copy<C::wide_along_k>(stage + i * block * Core::line, p.b, done, columns[i], k,
                                  p.b_head != 0, b_at);
        at.advance();
      }
      work = next_work;
    }
    Core::next_stage(s, at, buffers, true, turn, {.work = -1}, 0);
    leave_work(p.next);
  }

  /// Rows of A or columns of B; where they lie along lines, in boxes of 32, which leave two axes
  /// of the map for heads and batch.
  template <bool along_k>
  __device__ static void copy(unsigned to, const TensorMapWords& map, Barrier& done, int line,
                              int k, bool heads, const int (&at)[3]) {
    if constexpr (along_k) {
      load_box(to, map, done, k, line, at[0], at[1], at[2]);
    } else {
      load_box(to, map, done, 0, k, line / 32, heads ? at[0] : at[1], heads ? at[1] : at[2]);
    }
  }

  __device__ static void store(const Params& p, const Tf32Item& item, int group,
                               const typename Core::Sums& sums) {
    Result::template write<false>(p, sums, [&](int q, int warp, int) {
      const int column = group * Core::wide * 64 + q * 128 + warp * 32;
      const bool kept = column / block < item.count;
      const int entry = item.column + (kept ? column / block : 0);
      const int number = __ldg(p.list.blocks + entry), inside = column % block;
      const long long first =
          ((static_cast<long long>(item.batch) * p.blocks + number) * block + item.row) * block +
          inside;
      const int head = item.strip / p.list.strips, line = item.strip % p.list.strips * block;
      const EpiloguePlace at{__ldg(p.list.cols + entry) * block + inside, line + item.row,
                             item.batch * p.heads + head, 2};
      const EpiloguePlace in{inside, number * block + item.row, item.batch, 2};
      return typename Result::Place{first, block, kept ? 32 : 0, true, at, in, 31};
    });
  }

  __device__ static void run(const Params& p) { Core::template run<WarpgroupTf32Sdd>(p); }
};

}  // namespace bs::cuda::device
