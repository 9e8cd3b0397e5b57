#pragma once
// Gradients of what is added to scores, a bias or a table, as sums of the gradients of scores that
// warpgroup_backward.cuh left in memory. Each sum is one thread's, or of lanes in a fixed order.
#include <bs/kernels/cuda/device/attention/block_list.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_backward_problem.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>

namespace bs::cuda::device {

/// Finds the gradients of the blocks of one place of the layout, head after head.
template <class T, int block>
class StoredScores {
 public:
  __device__ explicit StoredScores(const StoredScoresParams& p) : p_(p) {}

  /// f(gradients of block (row, column)) for each head of the launch that head `own` of all those
  /// of the sums counts for, and that keeps the block.
  /// @return whether there is any
  template <class F>
  __device__ bool each(int own, int row, int column, const F& f) {
    const WarpgroupAttention& a = p_.problem;
    const int past = a.first_head + a.head_count;
    bool any = false;
    for (int b = own / p_.heads; b * a.heads < past; b += p_.batches)
      for (int h = own % p_.heads; h < a.heads; h += p_.heads) {
        const int of = b * a.heads + h;
        if (of < a.first_head || of >= past) continue;
        const int number = number_of(a.layout_head(b, h), row, column);
        if (number < 0) continue;
        const long long value = a.values.at(b, h, number);
        f(static_cast<const T*>(p_.blocks) + value * block * block);
        any = true;
      }
    return any;
  }
  /// Whether no gradients were left of the 64 or fewer rows and columns around element (i, j).
  __device__ bool hides(int i, int j) const {
    constexpr int side = block < 64 ? block : 64;
    return p_.problem.reach.hides(i / side * side, j / side * side, side);
  }

 private:
  /// Heads that share a layout look it up once.
  __device__ int number_of(int layout_head, int row, int column) {
    if (layout_head != known_head_)
      number_ =
          find_block(p_.rows, static_cast<long long>(layout_head) * p_.rows.lines + row, column);
    known_head_ = layout_head;
    return number_;
  }

  const StoredScoresParams& p_;
  int known_head_ = -1, number_ = -1;
};

/// The warp's number in the grid.
__device__ inline int stored_scores_warp() {
  return static_cast<int>(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
}

/// Adds to the gradient of a bias: a warp has a block of one of its heads.
template <class T, int block>
__device__ inline void sum_stored_bias(const StoredScoresParams& p) {
  const int warp = stored_scores_warp(), lane = static_cast<int>(threadIdx.x) % 32;
  const int column = warp % p.columns, row = warp / p.columns % p.rows.lines;
  const int own = warp / p.columns / p.rows.lines;
  if (own >= p.batches * p.heads) return;
  StoredScores<T, block> stored(p);
  if (!stored.each(own, row, column, [](const T*) {})) return;
  for (int at = lane * 8; at < block * block; at += 32 * 8) {
    const int i = row * block + at / block, j = column * block + at % block;
    if (i >= p.problem.queries || j >= p.problem.keys || stored.hides(i, j)) continue;
    float sums[8] = {};
    stored.each(own, row, column, [&](const T* gradients) {
      const Pack<T, 8> eight = *reinterpret_cast<const Pack<T, 8>*>(gradients + at);
#pragma unroll
      for (int e = 0; e < 8; ++e) sums[e] += widen(eight.at[e]);
    });
    float* const to = p.bias.at(own / p.heads, own % p.heads) + i * p.bias.row + j;
#pragma unroll
    for (int e = 0; e < 8; e += 2) {  // the number of keys is even
      if (j + e >= p.problem.keys) continue;
      auto* const pair = reinterpret_cast<float2*>(to + e);
      *pair = make_float2(pair->x + sums[e], pair->y + sums[e + 1]);
    }
  }
}

/// Sums over diagonals, by tiles of 16 x 16: a warp has the tiles along one diagonal of tiles, and
/// a lane every 32nd of them. Sum z is that of distance z - 15 from the tiles' own.
template <class T, int block>
__device__ inline void sum_stored_diagonals(const StoredScoresParams& p) {
  constexpr int side = stored_side, across = block / side, count = 2 * side - 1;
  const int warp = stored_scores_warp(), lane = static_cast<int>(threadIdx.x) % 32;
  const int own = warp / p.tile_diagonals, shift = warp % p.tile_diagonals - p.first_tile;
  if (own >= p.heads) return;
  const int end = min(p.rows.lines * across, p.columns * across - shift);
  float sums[count] = {};
#pragma unroll 1
  for (int tile = max(0, -shift) + lane; tile < end; tile += 32) {
    const int other = tile + shift;
    StoredScores<T, block> stored(p);
    if (stored.hides(tile * side, other * side)) continue;
    stored.each(own, tile / across, other / across, [&](const T* gradients) {
      const T* const from = gradients + tile % across * side * block + other % across * side;
#pragma unroll
      for (int i = 0; i < side; ++i)
#pragma unroll
        for (int half = 0; half < side; half += 8) {
          const auto words = *reinterpret_cast<const Raw<T, 8>*>(from + i * block + half);
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            const auto pair = reinterpret_cast<const Pack<T, 2>&>(words.at[j / 2]);
            sums[half + j - i + side - 1] += widen(pair.at[j % 2]);
          }
        }
    });
  }
#pragma unroll
  for (int z = 0; z < count; ++z) {
#pragma unroll
    for (int other = 16; other > 0; other /= 2) sums[z] += __shfl_xor_sync(~0u, sums[z], other);
    if (lane == 0) p.tile_sums[static_cast<long long>(warp) * count + z] = sums[z];
  }
}

/// Adds what sum_stored_diagonals() found: of each distance, what two diagonals of tiles have.
__device__ inline void join_stored_diagonals(const StoredScoresParams& p) {
  constexpr int side = stored_side, count = 2 * side - 1;
  const int length = side * (p.tile_diagonals + 1) - 1;
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at >= p.heads * length) return;
  const int diagonal = at % length / side, z = at % length % side;
  const float* const sums =
      p.tile_sums + static_cast<long long>(at / length) * p.tile_diagonals * count;
  float sum = diagonal < p.tile_diagonals ? sums[diagonal * count + z] : 0;
  if (diagonal > 0 && z < side - 1) sum += sums[(diagonal - 1) * count + z + side];
  p.diagonals[at] += sum;
}

}  // namespace bs::cuda::device
