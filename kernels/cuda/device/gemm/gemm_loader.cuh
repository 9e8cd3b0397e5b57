#pragma once
// Which boxes a kernel of warpgroups fills its stages with. A loader is made for each piece of work
// by each thread that copies, one of a warp, and brings one step of the depth at a time:
//
// - Params: what the kernel is given, a WarpgroupGemmParams with more behind it
// - warps: that copy, at most 4
// - a_bytes, b_bytes: of one part of a stage's operands
// - own_steps, steps(p, work): whether tiles differ in depth, and the steps of one
// - places(p): where the results of a row and column lie
// - load(stage, full, step, warp): asks for a warp's share of a step, whose bytes `full` counts
#include <bs/kernels/cuda/device/gemm/gemm_schedule.cuh>
#include <bs/kernels/cuda/device/ptx/bulk_copy.cuh>

namespace bs::cuda::device {

/// Copies the tiles of operands as boxes of matrices; C is WarpgroupGemm's.
template <class C>
struct BoxCopies {
  static constexpr int line = 128;  // bytes, within which the engine swizzles
  static constexpr unsigned a_bytes = C::rows * line, b_bytes = C::columns * line;  // of a part

  /// Copies a share of one operand's tile, for `Ctas` CTAs.
  template <int Side, int Share, int Ctas, bool k_contiguous>
  __device__ static void copy_share(unsigned to, const TensorMapWords& map, Barrier& done,
                                    int side0, int k0, int batch, int first) {
#pragma unroll
    for (int part = 0; part < C::parts; ++part, to += Side * line) {
      const int c2 = C::parts * batch + part;
      if constexpr (k_contiguous) {
        load_box_for<Ctas>(to + first * line, map, done, k0, side0 + first, c2);
      } else {
#pragma unroll
        for (int s = 0; s < Share; s += 64)
          load_box_for<Ctas>(to + (first + s) * line, map, done, side0 + first + s, k0, c2);
      }
    }
  }
  /// Copies one operand's tile, or this CTA's share of it for the whole cluster.
  template <int Side, int Shares, bool k_contiguous>
  __device__ static void copy(unsigned to, const TensorMapWords& map, Barrier& done, int side0,
                              int k0, int batch, bool turned) {
    constexpr int share = Side / Shares;
    if (Shares == 1 || turned) {
#pragma unroll
      for (int first = 0; first < Side; first += share)
        copy_share<Side, share, 1, k_contiguous>(to, map, done, side0, k0, batch, first);
    } else {
      copy_share<Side, share, Shares, k_contiguous>(to, map, done, side0, k0, batch,
                                                    static_cast<int>(cluster_rank()) * share);
    }
  }
};

/// Both operands are matrices.
template <class C>
struct GemmLoader : BoxCopies<C> {
  using Params = WarpgroupGemmParams;
  static constexpr int warps = 1;
  static constexpr bool own_steps = false;
  const TensorMapWords &a, &b;
  int row0, column0, batch_a, batch_b;
  bool turned;

  __device__ GemmLoader(const Params& p, const GemmWork& work)
      : a(several ? p.maps[2 * work.problem] : p.a),
        b(several ? p.maps[2 * work.problem + 1] : p.b),
        row0(work.m * C::rows),
        column0(work.n * C::columns),
        batch_a(several || p.gemm.problem.a.batch == 0 ? 0 : work.problem),
        batch_b(several || p.gemm.problem.b.batch == 0 ? 0 : work.problem),
        turned(C::cluster_m * C::cluster_n > 1 && work.turned) {}
  __device__ static SamePlaces places(const Params&) { return {}; }
  __device__ void load(unsigned stage, Barrier& full, int step, int) const {
    const int k0 = step * C::depth;
    this->template copy<C::rows, C::cluster_n, C::a_k_contiguous>(stage, a, full, row0, k0, batch_a,
                                                                  turned);
    this->template copy<C::columns, C::cluster_m, C::b_k_contiguous>(
        stage + C::parts * BoxCopies<C>::a_bytes, b, full, column0, k0, batch_b, turned);
  }

 private:
  static constexpr bool several = C::group == GemmGroup::several;
};

}  // namespace bs::cuda::device
