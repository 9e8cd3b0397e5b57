#pragma once
// What a warp does with its 16 rows of a tile of scores that wgmma left in registers: a lane has
// columns 8 n + 2 (lane % 4) and the next one of rows lane / 4 and lane / 4 + 8, in elements
// 4 n, 4 n + 1 and 4 n + 2, 4 n + 3.
#include <bs/kernels/cuda/device/attention/warpgroup_attention_problem.cuh>
#include <bs/kernels/cuda/device/ptx/warpgroup.cuh>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>

namespace bs::cuda::device {

__device__ inline float minus_infinite() { return __int_as_float(static_cast<int>(0xff800000)); }

__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <class T>
__device__ inline unsigned pack_weights(float low, float high) {
  const auto pair = narrow_pair(low, high, T{});
  return *reinterpret_cast<const unsigned*>(&pair);
}

/// The softmax of a warp's rows as far as they have gone. Weights are 2^(scale * score - top); a
/// row's top follows its greatest score only from afar, for bringing what was summed to a new one
/// takes as long as a tenth of a tile. Where it is `lazy`, rows that have a top are not asked for
/// their greatest score: sums of weights tell what went too far. A score 2^128 times its row's top
/// makes a sum infinite for good.
template <class T, int Cols, bool lazy>
struct WarpgroupSoftmax {
  static constexpr float slack = 8;     ///< weights stay below 2^slack where it is not lazy
  static constexpr float most = 32768;  ///< else sums of a lane's weights, which 16 bits can hold
  float top[2], sum[2], factor[2];      ///< `sum` over this lane's columns only
  bool moved;
  bool met = false;  ///< whether all rows have met a key; of lazy ones

  __device__ WarpgroupSoftmax() {
    top[0] = top[1] = minus_infinite();
    sum[0] = sum[1] = 0;
  }

  /// Turns scores into weights, and says what becomes of what was summed before.
  __device__ __forceinline__ void fold(float (&s)[Cols / 2], float scale) {
    moved = false;
    if (!lazy || !met) follow(s, scale);
    float total[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float by = shift(h);
      float part[2] = {0, 0};
#pragma unroll
      for (int n = 0; n < Cols / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& x = s[4 * n + 2 * h + i];
          x = power_of_two(x * scale - by);
          part[i] += x;
        }
      total[h] = part[0] + part[1];
    }
    if (lazy && __any_sync(~0u, !(fmaxf(total[0], total[1]) <= most))) bring_down(s, total);
    sum[0] += total[0];
    sum[1] += total[1];
  }
  /// Weights are made before what follows: a branch on their sums, which never are negative. The
  /// compiler would move them behind a wait for products, though they are to be made meanwhile.
  __device__ void hold() const {
    if (sum[0] + sum[1] < 0) asm volatile("nanosleep.u32 1;");
  }
  /// A row that has met no key has nothing to scale: any finite shift will do.
  __device__ float shift(int h) const { return top[h] == minus_infinite() ? 0 : top[h]; }

  template <int N>
  __device__ __forceinline__ void bring(float (&sums)[N]) const {
    if (!moved) return;
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] *= factor[i / 2 % 2];
  }
  __device__ __forceinline__ void pack(unsigned (&w)[Cols / 4], const float (&s)[Cols / 2]) const {
#pragma unroll
    for (int i = 0; i < Cols / 4; ++i) w[i] = pack_weights<T>(s[2 * i], s[2 * i + 1]);
  }
  /// The sums of whole rows.
  __device__ void finish() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
      sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
    }
  }
  /// Adds a logit that has no value, in powers of two, to the sums of whole rows. Sums of values
  /// then lack `factor`.
  __device__ void join(float logit) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float before = top[h];
      top[h] = fmaxf(before, logit);
      factor[h] = power_of_two(before - shift(h));
      sum[h] = sum[h] * factor[h] + power_of_two(logit - shift(h));
    }
  }
  __device__ float log_sum(int h) const {
    return sum[h] == 0 ? minus_infinite() : 0.6931471805599453f * (shift(h) + log2f(sum[h]));
  }

 private:
  /// The greatest of a row.
  __device__ __forceinline__ static float greatest(const float (&s)[Cols / 2], int h) {
    float part[4];  // chains side by side
#pragma unroll
    for (int n = 0; n < Cols / 8; ++n) {
      const float pair = fmaxf(s[4 * n + 2 * h], s[4 * n + 2 * h + 1]);
      part[n % 4] = n < 4 ? pair : fmaxf(part[n % 4], pair);
    }
    float a = fmaxf(fmaxf(part[0], part[1]), fmaxf(part[2], part[3]));
    a = fmaxf(a, __shfl_xor_sync(~0u, a, 1));
    return fmaxf(a, __shfl_xor_sync(~0u, a, 2));
  }
  /// Lets tops follow scores.
  __device__ __forceinline__ void follow(const float (&s)[Cols / 2], float scale) {
    float peak[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) peak[h] = greatest(s, h) * scale;
    moved = __any_sync(~0u, peak[0] - top[0] > slack || peak[1] - top[1] > slack);
    if (moved) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float before = top[h];
        top[h] = fmaxf(before, peak[h]);
        factor[h] = power_of_two(before - shift(h));
        sum[h] *= factor[h];
      }
    }
    if constexpr (lazy) met = __all_sync(~0u, fminf(top[0], top[1]) > minus_infinite());
  }
  /// Lets tops follow weights: by whole powers of two, which round nothing. A factor below 2^-126
  /// would be zero, and weights up to 4 will do. An infinite one stays so.
  __device__ __forceinline__ void bring_down(float (&s)[Cols / 2], float (&total)[2]) {
    moved = true;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int power = min(max((__float_as_int(greatest(s, h)) >> 23) - 126, 0), 126);
      top[h] += static_cast<float>(power);
      factor[h] = __int_as_float((127 - power) << 23);
      sum[h] *= factor[h];
      total[h] *= factor[h];
#pragma unroll
      for (int n = 0; n < Cols / 8; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) s[4 * n + 2 * h + i] *= factor[h];
    }
  }
};

/// Hides scores of keys that a row does not see. `banded`: rows see keys within any two bounds, and
/// the last block of keys may be cut.
template <class T, int Cols, int Piece, bool banded>
struct AttentionHide {
  static constexpr int pieces = Cols / Piece;
  static constexpr unsigned all = pieces == 32 ? ~0u : (1u << pieces) - 1;
  const WarpgroupAttentionParams& p;
  int row, head;  ///< the warp's first row

  __device__ AttentionHide(const WarpgroupAttentionParams& params, int first, int of)
      : p(params), row(first), head(of) {}

  /// Of a warpgroup's bits of a tile, those of the pieces that the rows have.
  __device__ static unsigned present(unsigned mask, int row) {
    const int shift = Piece < 64 ? row % 64 / Piece * pieces : 0;
    return mask >> shift & all;
  }

  __device__ __forceinline__ void apply(float (&s)[Cols / 2], unsigned mask,
                                        const int (&keys)[pieces]) const {
    const unsigned present = AttentionHide::present(mask, row);
    if (pieces > 1 && present != all) {
#pragma unroll
      for (int n = 0; n < pieces; ++n) {
        if (present >> n & 1) continue;
#pragma unroll
        for (int i = n * (Piece / 2); i < (n + 1) * (Piece / 2); ++i) s[i] = minus_infinite();
      }
    }
    bool edge = p.seen != nullptr;
    if (banded) {
#pragma unroll
      for (int n = 0; n < pieces; ++n)
        edge = edge || keys[n] + Piece - 1 > row + p.reach.last ||
               keys[n] < row + 15 + p.reach.first || keys[n] + Piece > p.keys;
    } else if (p.reach.causal()) {
#pragma unroll
      for (int n = 0; n < pieces; ++n) edge = edge || keys[n] + Piece - 1 > row;
    }
    if (!edge) return;
    if constexpr (banded) {
      hide_beyond(s, present, keys);
    } else {
      if (p.reach.causal()) hide_after(s, keys);
      if (p.seen) hide_padding(s, present, keys);
    }
  }

 private:
  /// Some kernels have no register left to keep it in.
  __device__ static int lane() { return static_cast<int>(fresh_thread()) % 32; }
  /// The keys of this lane, two at a time: visit(first of the two, its element, whether it is
  /// there).
  template <class Visit>
  __device__ __forceinline__ static void visit_pairs(unsigned present, const int (&keys)[pieces],
                                                     const Visit& visit) {
    const int pair = lane() % 4 * 2;
#pragma unroll
    for (int n = 0; n < Cols / 8; ++n) {
      constexpr int per_piece = Piece / 8;
      visit(keys[n / per_piece] + n % per_piece * 8 + pair, 4 * n,
            (present >> n / per_piece & 1) != 0);
    }
  }
  __device__ __forceinline__ const unsigned char* padding() const {
    return p.seen ? p.seen + head / p.heads * static_cast<long long>(p.keys) : nullptr;
  }
  __device__ __forceinline__ int own_row() const { return row + lane() / 4; }

  /// Keys behind the diagonal.
  __device__ __forceinline__ void hide_after(float (&s)[Cols / 2],
                                             const int (&keys)[pieces]) const {
    const int own = own_row() - lane() % 4 * 2;
#pragma unroll
    for (int n = 0; n < Cols / 8; ++n) {
      constexpr int per_piece = Piece / 8;
      const int last = own - keys[n / per_piece] - n % per_piece * 8;  // of the pair's that is seen
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (last < i % 2 - i / 2 * 8) s[4 * n + i] = minus_infinite();
    }
  }
  __device__ __forceinline__ void hide_padding(float (&s)[Cols / 2], unsigned present,
                                               const int (&keys)[pieces]) const {
    const unsigned char* const seen = padding();
    visit_pairs(present, keys, [&](int key, int at, bool there) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (!there || (banded && key + i >= p.keys) || seen[key + i] == 0)
          s[at + i] = s[at + 2 + i] = minus_infinite();
    });
  }
  /// A row after the other, which takes fewer registers.
  __device__ __forceinline__ void hide_beyond(float (&s)[Cols / 2], unsigned present,
                                              const int (&keys)[pieces]) const {
#pragma unroll 1
    for (int h = 0; h < 2; ++h) {
      const int first = own_row() + 8 * h + p.reach.first;
      const int last = min(own_row() + 8 * h + p.reach.last, p.keys - 1);
      visit_pairs(present, keys, [&](int key, int at, bool) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const bool hidden = key + i < first || key + i > last;
          if (h == 0 && hidden) s[at + i] = minus_infinite();
          if (h == 1 && hidden) s[at + 2 + i] = minus_infinite();
        }
      });
    }
    if (p.seen) hide_padding(s, present, keys);
  }
};

}  // namespace bs::cuda::device
