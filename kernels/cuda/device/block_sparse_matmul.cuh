#pragma once
// The block-sparse products on mma.sync (sm_80 and later): a CTA makes one tile of the result.
#include <bs/kernels/cuda/device/block_sparse_epilogue.cuh>
#include <bs/kernels/cuda/device/block_sparse_problem.cuh>
#include <bs/kernels/cuda/device/tile_product.cuh>

namespace bs::cuda::device {

template <int N>
__device__ inline unsigned count_of(const OperandLoop<N>& loop) {
  unsigned n = 1;
#pragma unroll 1
  for (int axis = 0; axis < loop.rank; ++axis) n *= loop.shape[axis];
  return n;
}

/// Kept small: unrolled, its divisions would take a third of the kernel's time in the compiler.
template <int N>
__device__ inline long long offset_of(const OperandLoop<N>& loop, int operand, unsigned index) {
  long long at = 0;
#pragma unroll 1
  for (int axis = loop.rank - 1; axis >= 0; --axis) {
    at += index % loop.shape[axis] * loop.strides[operand][axis];
    index /= loop.shape[axis];
  }
  return at;
}

__device__ inline int clamp_count(long long left, int most) {
  return left <= 0 ? 0 : left < most ? static_cast<int>(left) : most;
}

/// Steps between the lines that neighbours form: rows of B where they lie along its columns.
__device__ inline long long line_step(const DenseSteps& steps, bool along_rows) {
  return along_rows ? steps.row : steps.col;
}

/// Where in a line of `Length` elements a thread writes.
template <class Product, int Length>
struct LinePlace {
  static constexpr int chunks = Length / Product::vector, pass = Product::threads / chunks;
  static_assert(chunks * pass == Product::threads);
  int line = static_cast<int>(threadIdx.x) / chunks;
  int at = static_cast<int>(threadIdx.x) % chunks * Product::vector;

  /// The lines from its own to `lines`, `ld` apart in shared memory and `step` in global: 16 bytes
  /// of each, or fewer where only `left` elements are inside of the matrix; in one piece where
  /// `aligned`. (`left` comes as it is, not cut to 16 bytes' worth: ptxas 13.0 makes of the cut,
  /// and of a comparison with it, an instruction that never says yes.)
  template <class T>
  __device__ void write(T* to, long long step, const T* from, int ld, int lines, int left,
                        bool aligned) const {
    if (aligned && left >= Product::vector) {
#pragma unroll 4
      for (int i = line; i < lines; i += pass)
        *reinterpret_cast<uint4*>(to + i * step) = *reinterpret_cast<const uint4*>(from + i * ld);
    } else {
#pragma unroll 1
      for (int i = line; i < lines; i += pass)
        for (int v = 0; v < Product::vector && v < left; ++v) to[i * step + v] = from[i * ld + v];
    }
  }
};

/// Blocks of one row of op(S), in the order of the depth.
struct BlockRow {
  const int* number;    ///< null: consecutive from `first`
  const int* position;  ///< along the line
  int first, count;

  __device__ BlockRow(const BlockOrder& order, int head, int row) {
    const int line = head * order.lines + row;
    first = order.offsets[line];
    count = order.offsets[line + 1] - first;
    number = order.number ? order.number + first : nullptr;
    position = order.position + first;
  }
};

/// Puts what the epilogue makes of a tile's sums in their place. `places(row, column, at, in)`
/// tells where those of two neighbours are (see finish_pair), `piece(row, column)` where a piece
/// is.
template <class Product, int block, class Epilogue, class Places, class PieceAt>
__device__ __forceinline__ void finish_tile(Product& product, const BlockSparseEpilogueArguments& e,
                                            const Places& places, const PieceAt& piece_at) {
  using Sum = typename Product::Sum;
  constexpr int side = side_of<block>;
  product.template each_piece<side>([&](int row, int col, Sum(&sums)[side / 4][2]) {
    PieceTotals<Epilogue, side> totals;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const EpiloguePiece piece = piece_at(row - lane / 4, col - lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < side / 4; ++i) {
      EpiloguePlace at, in;
      places(row + i % 2 * 8, col + i / 2 * 8, at, in);
      Sum out[1][2];
      finish_pair<Epilogue, 1>(e, at, in, sums[i], out, i, piece, totals);
      sums[i][0] = out[0][0];
      sums[i][1] = out[0][1];
    }
    const GemmOperand* const partials = e.operands + Epilogue::operands;
    totals.store_columns(partials, piece);
    if (piece.columns > 0) totals.store_rows(partials, piece, piece.column / side);
  });
}

/// C = sum of op(S) B: a CTA takes some rows of a block row and some columns. Product's A lies
/// along the depth where S is not transposed.
template <class Product, int block, class Epilogue = NoEpilogue>
__device__ inline void dsd_tile(const DsdArguments& p) {
  using T = typename Product::Element;
  extern __shared__ __align__(1024) unsigned char memory[];
  T* shared = reinterpret_cast<T*>(memory);
  constexpr int rows = Product::rows, cols = Product::cols, depth = Product::depth;
  unsigned index = blockIdx.x;
  const int row0 = static_cast<int>(index % p.grid.row_tiles) * rows;
  index /= p.grid.row_tiles;
  const int row = p.lines[index % p.order.lines];
  index /= p.order.lines;
  const long long n0 = static_cast<long long>(index % p.grid.col_tiles) * cols;
  const unsigned item = index / p.grid.col_tiles;

  Product product;
  const unsigned terms = count_of(p.sum);
  for (unsigned term = 0; term < terms; ++term) {
    const int head = static_cast<int>(offset_of(p.batch, 3, item) + offset_of(p.sum, 2, term));
    const T* s =
        static_cast<const T*>(p.values) + offset_of(p.batch, 0, item) + offset_of(p.sum, 0, term);
    const T* dense =
        static_cast<const T*>(p.b) + offset_of(p.batch, 1, item) + offset_of(p.sum, 1, term);
    const BlockRow blocks(p.order, head, row);
    constexpr Listed listed =
        Product::TileA::along_k ? Listed::consecutively_along_depth : Listed::along_depth;
    OperandPieces<typename Product::TileA, listed, block, rows <= block, Product::aligned> pieces_a(
        {.data = s + (Product::TileA::along_k ? row0 * block : row0),
         .line_step = block,
         .sides = block - row0,
         .depth = 0,
         .list = blocks.number,
         .first = blocks.first,
         .count = blocks.count,
         .block_step = block * block});
    OperandPieces<typename Product::TileB, Listed::along_depth, block, false, Product::aligned>
        pieces_b({.data = dense + n0 * p.b_steps.col,
                  .line_step = line_step(p.b_steps, !Product::TileB::along_k),
                  .sides = p.n - n0,
                  .depth = 0,
                  .list = blocks.position,
                  .first = 0,
                  .count = blocks.count,
                  .block_step = block * p.b_steps.row});
    product.run(memory, (blocks.count * block + depth - 1) / depth, pieces_a, pieces_b);
  }

  T* out = static_cast<T*>(p.c) + offset_of(p.batch, 2, item);
  const long long m0 = static_cast<long long>(row) * block + row0;
  const int height = min(rows, block - row0);
  const int width = clamp_count(p.n - n0, cols);
  if constexpr (!same_type<Epilogue, NoEpilogue>) {
    finish_tile<Product, block, Epilogue>(
        product, p.epilogue,
        [&](int r, int c, EpiloguePlace& at, EpiloguePlace& in) {
          at = {static_cast<int>(m0) + min(r, height - 1), static_cast<int>(n0) + min(c, width - 1),
                static_cast<int>(item), width - c == 1 ? 1 : 2};
          in = at;
          in.count = r < height ? width - c : 0;
        },
        [&](int r, int c) {
          return EpiloguePiece{static_cast<int>(m0) + r, static_cast<int>(n0) + c,
                               static_cast<int>(item), height - r, width - c};
        });
  }
  out += m0 * p.c_steps.row + n0 * p.c_steps.col;
  if (p.c_steps.col == 1) {
    product.template stage_result<true>(shared);
    const LinePlace<Product, cols> own;
    own.write(out + own.at, p.c_steps.row, shared + own.at, Product::template c_ld<true>, height,
              width - own.at, p.grid.c_aligned);
  } else {
    product.template stage_result<false>(shared);
    const LinePlace<Product, rows> own;
    own.write(out + own.at, p.c_steps.col, shared + own.at, Product::template c_ld<false>, width,
              height - own.at, p.grid.c_aligned);
  }
}

/// S = blocks of the sum of A B: a CTA takes some rows of a block row, and of the columns that the
/// row's blocks have, one after the other, some. So small blocks of a row share their rows of A.
template <class Product, int block, class Epilogue = NoEpilogue>
__device__ inline void sdd_tile(const SddArguments& p) {
  using T = typename Product::Element;
  extern __shared__ __align__(1024) unsigned char memory[];
  T* shared = reinterpret_cast<T*>(memory);
  constexpr int rows = Product::rows, cols = Product::cols, depth = Product::depth;
  unsigned index = blockIdx.x;
  const int col0 = static_cast<int>(index % p.grid.col_tiles) * cols;
  index /= p.grid.col_tiles;
  const int row0 = static_cast<int>(index % p.grid.row_tiles) * rows;
  index /= p.grid.row_tiles;
  const int row = static_cast<int>(index % p.order.lines);
  index /= p.order.lines;
  const int head = static_cast<int>(index % p.order.heads);
  const unsigned item = index / p.order.heads;
  const BlockRow blocks(p.order, head, row);
  if (col0 >= blocks.count * block) return;

  Product product;
  const long long m0 = static_cast<long long>(row) * block + row0;
  const unsigned terms = count_of(p.sum);
  for (unsigned term = 0; term < terms; ++term) {
    const T* left = static_cast<const T*>(p.a) + offset_of(p.batch, 0, item) +
                    offset_of(p.sum, 0, term) + head * p.a_head;
    const T* right = static_cast<const T*>(p.b) + offset_of(p.batch, 1, item) +
                     offset_of(p.sum, 1, term) + head * p.b_head;
    OperandPieces<typename Product::TileA, Listed::nowhere, block, rows <= block, Product::aligned>
        pieces_a({.data = left + m0 * p.a_steps.row,
                  .line_step = line_step(p.a_steps, Product::TileA::along_k),
                  .sides = block - row0,
                  .depth = p.k});
    OperandPieces<typename Product::TileB, Listed::along_side, block, true, Product::aligned>
        pieces_b({.data = right + col0 % block * p.b_steps.col,
                  .line_step = line_step(p.b_steps, !Product::TileB::along_k),
                  .sides = cols,
                  .depth = p.k,
                  .list = blocks.position + col0 / block,
                  .first = 0,
                  .count = blocks.count - col0 / block,
                  .block_step = block * p.b_steps.col});
    product.run(memory, (p.k + depth - 1) / depth, pieces_a, pieces_b);
  }

  T* out = static_cast<T*>(p.values) + offset_of(p.batch, 2, item);
  const int height = min(rows, block - row0);
  if constexpr (!same_type<Epilogue, NoEpilogue>) {
    finish_tile<Product, block, Epilogue>(
        product, p.epilogue,
        [&](int r, int c, EpiloguePlace& at, EpiloguePlace& in) {
          const int j = (col0 + c) / block, k = (col0 + c) % block;
          const int entry = min(j, blocks.count - 1), i = min(r, height - 1);
          at = {static_cast<int>(m0) + i, blocks.position[entry] * block + k,
                static_cast<int>(item * p.order.heads + head), 2};
          in = {(blocks.first + entry) * block + row0 + i, k, static_cast<int>(item),
                r < height && j < blocks.count ? 2 : 0};
        },
        [&](int r, int c) {
          const int j = (col0 + c) / block;
          return EpiloguePiece{(blocks.first + j) * block + row0 + r, (col0 + c) % block,
                               static_cast<int>(item), j < blocks.count ? height - r : 0,
                               j < blocks.count ? block : 0};
        });
  }
  product.template stage_result<true>(shared);
  const LinePlace<Product, cols> own;
  const unsigned col = col0 + own.at;
  const int j = col / block;
  if (j >= blocks.count) return;
  out += static_cast<long long>(blocks.first + j) * (block * block) + row0 * block + col % block;
  own.write(out, block, shared + own.at, Product::template c_ld<true>, height, Product::vector,
            p.grid.c_aligned);
}

}  // namespace bs::cuda::device
