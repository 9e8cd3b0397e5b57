#pragma once
// Results of dense products on their way out by the copy engine, where they are all that an
// epilogue stores: to D, or of D block by block to those places of a list that blocks have.
#include <bs/kernels/cuda/device/gemm/gemm_epilogue.cuh>
#include <bs/kernels/cuda/device/ptx/bulk_copy.cuh>
#include <bs/kernels/cuda/device/ptx/warpgroup.cuh>

namespace bs::cuda::device {

/// Stores the sums of a warp of a warpgroup, 16 rows of each of `Blocks` blocks of 64, in boxes of
/// these rows and 128 bytes of each: elements D of 16 or 32 bits. `Side`: D is block-sparse, of
/// blocks of so many rows and columns, and pieces of a box go to the blocks that they are part of.
template <class D, class Epilogue, int Blocks, int Columns, int Side = 0>
struct GemmBoxes {
  using Sum = typename Epilogue::Sum;
  using Sums = Sum[Blocks][Columns / 8][4];
  static constexpr int line = 128, bytes = 16 * line;
  static constexpr int wide = line / static_cast<int>(sizeof(D)), across = Columns / wide;
  static constexpr int count = Blocks * across, sums_a_lane = wide / 2;
  // A short epilogue of a few boxes is written out for each; others stand in the code once, for the
  // time that it takes to compile them.
  static constexpr bool unrolled = Epilogue::is_short && count <= 4;
  static constexpr int piece = Side == 0 || Side > wide ? wide : Side;  // columns that lie together
  static constexpr int pieces = wide / piece;                           // of a box
  static constexpr int piece_line = piece * static_cast<int>(sizeof(D));
  static_assert(across * wide == Columns && (sizeof(D) == 2 || sizeof(D) == 4));
  static_assert(Side == 0 || (sizeof(D) == 2 && Side % 16 == 0 && count * pieces <= 32));
  struct alignas(8) Box {
    D at[sums_a_lane];  // two of a row, two of the row 8 below it; 8 columns on the same
  };

  const EpilogueScalars& scalars;
  const GemmOperand* operands;
  unsigned buffers;  // two in shared memory, from a multiple of 1024 bytes on
  int m, n, batch;   // of D
  int lane = static_cast<int>(threadIdx.x) % 32;

  /// The sums of one box. Registers have no index: where the number is not known, each box's leave
  /// them in a branch of its own.
  __device__ static void take(const Sums& sums, int number, Sum (&own)[sums_a_lane]) {
#pragma unroll
    for (int k = 0; k < count; ++k) {
      if (k != number) continue;
      if constexpr (!unrolled) asm volatile("");  // or the compiler selects among all boxes' sums
#pragma unroll
      for (int j = 0; j < sums_a_lane; ++j)
        own[j] = sums[k / across][k % across * (wide / 8) + j / 4][j % 4];
    }
  }
  /// What becomes of the sums of a box that begins at `row`, `column`.
  template <class Places>
  __device__ void finish(const Sum (&sums)[sums_a_lane], int row, int column, const Places& places,
                         Box& box) const {
    if constexpr (Epilogue::is_short) {  // the same wherever it is
      typename Epilogue::Compute unused[1][sums_a_lane];
      Epilogue::template apply<sums_a_lane>(scalars, operands, {}, {}, sums, unused,
                                            KeepRounded<D, sums_a_lane>{box.at});
    } else {
#pragma unroll
      for (int i = 0; i < sums_a_lane; i += 2) {
        const int r = row + i / 2 % 2 * 8 + lane / 4, c = column + i / 4 * 8 + lane % 4 * 2;
        const Sum pair[2] = {sums[i], sums[i + 1]};
        const EpiloguePlace place = places.at(r, c, batch, r < m ? n - c : 0);
        typename Epilogue::Compute unused[1][2];
        Epilogue::template apply<2>(scalars, operands, place, place, pair, unused,
                                    KeepRounded<D, 2>{reinterpret_cast<D(&)[2]>(box.at[i])});
      }
    }
  }

  /// The engine's swizzle: of line r of 128 bytes, 16-byte column j lies at j ^ r % 8.
  __device__ static constexpr unsigned swizzled(unsigned at) { return at ^ at / line % 8 * 16; }
  /// Where the lane writes. The rows of a piece follow each other, and so do pieces.
  __device__ unsigned place() const {
    if constexpr (sizeof(D) == 2) return swizzled(lane % 16 * piece_line + lane / 16 * 16);
    return lane / 4 * line + ((lane % 4 / 2) ^ (lane / 4)) * 16 + lane % 2 * 8;
  }
  __device__ static void write(unsigned to, const Box& box) {
    if constexpr (sizeof(D) == 2) {
#pragma unroll
      for (int t = 0; t < wide / 8; t += 2) {
        unsigned packed[4];
#pragma unroll
        for (int part = 0; part < 4; ++part)  // halves of rows, then of columns
          packed[part] = reinterpret_cast<const unsigned&>(box.at[4 * t + 2 * part]);
        // From a multiple of 1024 bytes on, bits of what is below that can be exchanged.
        const unsigned on = swizzled(t * 16 / piece_line * (16 * piece_line) + t * 16 % piece_line);
        store_matrix_x4<false>((to ^ on % 1024) + on / 1024 * 1024, packed);
      }
    } else {
#pragma unroll
      for (int i = 0; i < sums_a_lane; i += 2)
        write_shared((to ^ (i / 4 * 32)) + i / 2 % 2 * 8 * line,
                     reinterpret_cast<const uint2&>(box.at[i]));
    }
  }

  /// The number of the block that a piece of the warp's boxes is part of, of each piece that
  /// lane's; -1: none. `numbers`: of all blocks of D.
  __device__ static int find_block(const int* numbers, int m, int n, int row0, int column0) {
    const int lane = static_cast<int>(threadIdx.x) % 32, box = lane / pieces;
    const int row = row0 + box / across * 64;
    const int column = column0 + box % across * wide + lane % pieces * piece;
    if (box >= count || row >= m || column >= n) return -1;
    return __ldg(numbers + row / Side * (n / Side) + column / Side);
  }
  /// Sends a box out of its buffer: all of it, or the pieces of which there is a block.
  __device__ void send(const TensorMapWords& map, unsigned from, int i, int row, int column,
                       int block) const {
    if constexpr (Side == 0) {
      if (lane == 0) store_box(map, from, column, row, batch);
    } else {
      constexpr int width = Side < wide ? wide : Side;  // of the list in `map`
      const int number = __shfl_sync(~0U, block, i * pieces + lane % pieces);
      if (lane < pieces && number >= 0)
        store_box(map, from + lane * (16 * piece_line), column % Side / wide * wide,
                  number * (Side * Side / width) + row % Side * Side / width);
    }
  }

  /// Stores a box row by row, 16 bytes a lane. Where a row goes takes divisions: a lane finds out
  /// for one.
  template <class Places>
  __device__ void scatter(unsigned from, int row, int column, const Places& places) const {
    static_assert(Side == 0 && sizeof(D) == 2);
    const int own = row + lane % 16, ahead = lane % 8 * 8;
    const EpiloguePlace mine = places.at(own, column, batch, own < m ? n - column : 0);
    D* const to = static_cast<D*>(operands[0].data) + mine.column + ahead;
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      const int r = i + lane / 8;
      const long long there = __shfl_sync(~0U, mine.row, r);
      const int count = __shfl_sync(~0U, mine.count, r);
      const uint4 eight = read_shared(from + swizzled(r * line + ahead * 2));
      if (count > ahead) *reinterpret_cast<uint4*>(to + there * operands[0].row) = eight;
    }
  }

  /// Box by box: they leave while the next ones are computed, and while the next tile is
  /// multiplied. `block` as found for `row0`, `column0`.
  template <class Places = SamePlaces>
  __device__ void store(const TensorMapWords& map, const Sums& sums, int row0, int column0,
                        int block = 0, const Places& places = {}) const {
    const unsigned first = buffers + place();
    // The buffers take turns; of one box a tile, or three, the first takes the last one's.
    constexpr int pending = count % 2 == 0 ? 1 : 0;
#pragma unroll unrolled ? count : 1
    for (int i = 0; i < count; ++i) {
      const int row = row0 + i / across * 64, column = column0 + i % across * wide;
      Sum own[sums_a_lane];
      take(sums, i, own);
      Box box;
      if constexpr (Places::scattered) {
        finish(own, row, column, places, box);
        __syncwarp();
        write(first + i % 2 * bytes, box);
        __syncwarp();
        scatter(buffers + i % 2 * bytes, row, column, places);
      } else {
        finish(own, row, column, SamePlaces{}, box);
        if (lane < pieces) wait_stores_read<pending>();
        __syncwarp();
        write(first + i % 2 * bytes, box);
        fence_async_shared();
        __syncwarp();
        send(map, buffers + i % 2 * bytes, i, row, column, block);
        if (lane < pieces) commit_stores();
      }
    }
  }
  /// Shared memory is theirs until then.
  __device__ static void finish_stores() {
    if (static_cast<int>(threadIdx.x) % 32 < pieces) wait_stores_read<0>();
  }
};

}  // namespace bs::cuda::device
