#pragma once
// The second kernel of a product whose depth was divided among CTAs (SplitK::parallel): adds the
// slices of each sum up, in their order, and takes the sums to the epilogue. By all
// multiprocessors, where the last CTA of each tile would read all of the tile's slices alone.
// The warps of a CTA share many slices, whose loads would follow each other in one.
#include <bs/kernels/cuda/device/gemm/gemm_schedule.cuh>

namespace bs::cuda::device {

/// Kernel: PortableGemm or WarpgroupGemm, which wrote the slices.
template <class Kernel, class Epilogue>
struct GemmJoin {
  using Sum = typename Kernel::Sum;
  static constexpr int chunk = Kernel::Slab::chunk;
  using Slab = EpilogueSlab<Epilogue, chunk / 8>;
  using Slices = SlicesInMemory<Kernel::sum_threads, Kernel::sums_a_thread, Sum>;
  static constexpr int threads = 256, warps = threads / 32;
  static constexpr int alone = 16;  // slices that one warp adds up
  // A warp takes 16 rows of one chunk of columns; so many are a tile.
  static constexpr int chunks = Kernel::tiles * 8 / chunk;
  static constexpr int jobs = Kernel::finishing_warps * Kernel::blocks * chunks;
  static constexpr int packs = chunk / 8 * 4 / Slices::width;  // of a lane
  static constexpr int sums_a_lane = chunk / 2;
  static_assert(chunks * chunk == Kernel::tiles * 8 && packs * Slices::width == sums_a_lane);
  static_assert(sums_a_lane * 32 <= Slab::scratch_elements);

  template <class Places = SamePlaces>
  __device__ static void run(const GemmParams& p, const Places& places = {}) {
    __shared__ __align__(16) Sum scratch[warps][Slab::scratch_elements];
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const bool shared = p.slices > alone;
    const long long job = shared ? blockIdx.x : static_cast<long long>(blockIdx.x) * warps + warp;
    if (job >= static_cast<long long>(p.tiles) * jobs) return;
    const int tile = static_cast<int>(job / jobs), inside = static_cast<int>(job % jobs);
    const int c = inside % chunks, i = inside / chunks % Kernel::blocks;
    const int writer = inside / (chunks * Kernel::blocks);  // the warp that had these sums
    const int first = (i * Kernel::tiles + c * (chunk / 8)) * 4 / Slices::width;

    Sum sums[1][chunk / 8][4] = {};
    auto& flat = reinterpret_cast<Sum(&)[sums_a_lane]>(sums);
    const int begin = shared ? p.slices * warp / warps : 0;
    const int end = shared ? p.slices * (warp + 1) / warps : p.slices;
#pragma unroll 4
    for (int piece = begin; piece < end; ++piece) {
      const Sum* const from = Slices::slice(p, tile, p.slices, piece);
#pragma unroll
      for (int k = 0; k < packs; ++k) {
        const auto some = Slices::load(from, writer * 32 + lane, first + k);
#pragma unroll
        for (int j = 0; j < Slices::width; ++j) flat[k * Slices::width + j] += some.at[j];
      }
    }
    if (shared) {
#pragma unroll
      for (int k = 0; k < sums_a_lane; ++k) scratch[warp][k * 32 + lane] = flat[k];
      __syncthreads();
      if (warp > 0) return;
#pragma unroll 1
      for (int other = 1; other < warps; ++other)
#pragma unroll
        for (int k = 0; k < sums_a_lane; ++k) flat[k] += scratch[other][k * 32 + lane];
    }
    // The schedule of a CTA that begins with the tile's first slice.
    typename Kernel::Schedule schedule(p, tile * p.slices, p.tiles * p.slices);
    GemmWork work;
    schedule.take(work);
    const GemmProblem& q = schedule.at(work.problem);
    Slab::run(p.scalars, schedule.operands(work.problem), sums, 0, scratch[warp],
              Kernel::row_of(work, writer, i), Kernel::column_of(work, writer) + c * chunk,
              work.problem, q.m, q.n, places);
  }
};

}  // namespace bs::cuda::device
