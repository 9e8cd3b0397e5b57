#pragma once
// The kernels of the block-sparse products and their launches: templates over the dtype, which
// block_sparse_matmul_<dtype>.cu instantiate, so that they compile side by side.
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/cuda/block_sparse_matmul_config.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile_product.cuh>

#include <bit>

namespace bs::cuda {

/// What a launch knows beside the problem itself.
struct BlockSparseLaunch {
  int shift = 0;      ///< log2 of the block
  int row_tiles = 0;  ///< CTA tiles over the rows of a block
  int col_tiles = 0;  ///< CTA tiles over the columns
  bool a_aligned = false, b_aligned = false, c_aligned = false;  ///< 16-byte pieces are whole
};

namespace kernel {

using device::Chunk;

__device__ inline int clamp_count(int64_t left, int most) {
  return left <= 0 ? 0 : left < most ? static_cast<int>(left) : most;
}

/// `count` elements from shared to global memory; all of them in one piece where `aligned`.
template <class T>
__device__ void write_chunk(T* to, const T* from, int count, bool aligned) {
  constexpr int vector = 16 / static_cast<int>(sizeof(T));
  if (aligned && count == vector) {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
  } else {
    for (int v = 0; v < count; ++v) to[v] = from[v];
  }
}

/// Blocks of one row of op(S), in the order of the depth.
struct BlockRow {
  const int32_t* number;    ///< null: consecutive from `first`
  const int32_t* position;  ///< along the depth
  int first, count;

  __device__ BlockRow(const LayoutView& layout, bool transposed, int head, int row) {
    const int line = head * (transposed ? layout.cols : layout.rows) + row;
    const int32_t* offsets = transposed ? layout.col_offsets : layout.row_offsets;
    first = offsets[line];
    count = offsets[line + 1] - first;
    number = transposed ? layout.transposed + first : nullptr;
    position = (transposed ? layout.transposed_row : layout.col_of) + first;
  }
  __device__ int block(int j) const { return number ? number[j] : first + j; }
};

/// C = sum of op(S) B: a CTA takes some rows of a block row and some columns.
template <class P, class T, int Rows, int Cols, int Depth>
__global__ void __launch_bounds__(P::threads)
    dsd_kernel(const T* values, const T* b, T* c, const __grid_constant__ DsdProblem p,
               const __grid_constant__ BlockSparseLaunch launch, bool by_rows) {
  extern __shared__ __align__(16) unsigned char memory[];
  T* shared = reinterpret_cast<T*>(memory);
  constexpr int vector = P::vector;
  const int block = p.layout.block;
  unsigned index = blockIdx.x;
  const int row0 = static_cast<int>(index % launch.row_tiles) * Rows;
  index /= launch.row_tiles;
  const int row = static_cast<int>(index % p.block_rows());
  index /= p.block_rows();
  const int64_t n0 = int64_t{index % launch.col_tiles} * Cols;
  const int64_t item = index / launch.col_tiles;

  P product;
  const int64_t terms = p.sum.numel();
  for (int64_t term = 0; term < terms; ++term) {
    const int head = static_cast<int>(p.batch.offset(3, item) + p.sum.offset(2, term));
    const T* s = values + p.batch.offset(0, item) + p.sum.offset(0, term);
    const T* dense = b + p.batch.offset(1, item) + p.sum.offset(1, term);
    const BlockRow blocks(p.layout, p.transposed, head, row);
    const auto load_a = [&](int step, int side, int k) -> Chunk<T> {
      const int depth = step * Depth + k;
      const int j = depth >> launch.shift;
      const int within = depth & (block - 1);
      const int i = row0 + side;
      if (j >= blocks.count || i >= block) return {values, 0};
      const T* at = s + (int64_t{blocks.block(j)} << 2 * launch.shift);
      return {at + (p.transposed ? within * block + i : i * block + within), vector};
    };
    const auto load_b = [&](int step, int side, int k) -> Chunk<T> {
      const int depth = step * Depth + k;
      const int j = depth >> launch.shift;
      const int64_t n = n0 + side;
      if (j >= blocks.count || n >= p.n) return {values, 0};
      const int64_t at = int64_t{blocks.position[j]} * block + (depth & (block - 1));
      return {dense + at * p.b.row + n * p.b.col,
              P::b_is_along_k ? vector : clamp_count(p.n - n, vector)};
    };
    const int steps = ((blocks.count << launch.shift) + Depth - 1) / Depth;
    product.run(shared, steps, launch.a_aligned, launch.b_aligned, load_a, load_b);
  }

  T* out = c + p.batch.offset(2, item);
  const int64_t m0 = int64_t{row} * block + row0;
  const int height = min(Rows, block - row0);
  const int width = clamp_count(p.n - n0, Cols);
  if (by_rows) {
    product.template stage_result<true>(shared);
    for (int i = threadIdx.x; i < height * (Cols / vector); i += P::threads) {
      const int m = i / (Cols / vector);
      const int n = i % (Cols / vector) * vector;
      write_chunk(out + (m0 + m) * p.c.row + (n0 + n) * p.c.col,
                  shared + m * P::template c_ld<true> + n, clamp_count(width - n, vector),
                  launch.c_aligned);
    }
  } else {
    product.template stage_result<false>(shared);
    for (int i = threadIdx.x; i < width * (Rows / vector); i += P::threads) {
      const int n = i / (Rows / vector);
      const int m = i % (Rows / vector) * vector;
      write_chunk(out + (m0 + m) * p.c.row + (n0 + n) * p.c.col,
                  shared + n * P::template c_ld<false> + m, clamp_count(height - m, vector),
                  launch.c_aligned);
    }
  }
}

/// S = blocks of the sum of A B: a CTA takes some rows of a block row, and of the columns that the
/// row's blocks have, one after the other, some. So small blocks of a row share their rows of A.
template <class P, class T, int Rows, int Cols, int Depth>
__global__ void __launch_bounds__(P::threads)
    sdd_kernel(const T* a, const T* b, T* values, const __grid_constant__ SddProblem p,
               const __grid_constant__ BlockSparseLaunch launch) {
  extern __shared__ __align__(16) unsigned char memory[];
  T* shared = reinterpret_cast<T*>(memory);
  constexpr int vector = P::vector;
  const int block = p.layout.block;
  unsigned index = blockIdx.x;
  const int col0 = static_cast<int>(index % launch.col_tiles) * Cols;
  index /= launch.col_tiles;
  const int row0 = static_cast<int>(index % launch.row_tiles) * Rows;
  index /= launch.row_tiles;
  const int row = static_cast<int>(index % p.layout.rows);
  index /= p.layout.rows;
  const int head = static_cast<int>(index % p.layout.heads);
  const int64_t item = index / p.layout.heads;
  const BlockRow blocks(p.layout, false, head, row);
  if (col0 >= blocks.count << launch.shift) return;

  P product;
  const int64_t m0 = int64_t{row} * block + row0;
  const int64_t terms = p.sum.numel();
  for (int64_t term = 0; term < terms; ++term) {
    const T* left = a + p.batch.offset(0, item) + p.sum.offset(0, term) + head * p.a_head;
    const T* right = b + p.batch.offset(1, item) + p.sum.offset(1, term) + head * p.b_head;
    const auto load_a = [&](int step, int side, int k) -> Chunk<T> {
      const int64_t depth = int64_t{step} * Depth + k;
      if (depth >= p.k || row0 + side >= block) return {values, 0};
      return {left + (m0 + side) * p.a.row + depth * p.a.col,
              P::a_is_along_k ? clamp_count(p.k - depth, vector) : vector};
    };
    const auto load_b = [&](int step, int side, int k) -> Chunk<T> {
      const int64_t depth = int64_t{step} * Depth + k;
      const int j = (col0 + side) >> launch.shift;
      if (depth >= p.k || j >= blocks.count) return {values, 0};
      const int64_t n = int64_t{blocks.position[j]} * block + ((col0 + side) & (block - 1));
      return {right + depth * p.b.row + n * p.b.col,
              P::b_is_along_k ? clamp_count(p.k - depth, vector) : vector};
    };
    const int steps = static_cast<int>((p.k + Depth - 1) / Depth);
    product.run(shared, steps, launch.a_aligned, launch.b_aligned, load_a, load_b);
  }

  T* out = values + p.batch.offset(2, item);
  product.template stage_result<true>(shared);
  const int height = min(Rows, block - row0);
  for (int i = threadIdx.x; i < height * (Cols / vector); i += P::threads) {
    const int m = i / (Cols / vector);
    const int n = i % (Cols / vector) * vector;
    const int j = (col0 + n) >> launch.shift;
    if (j >= blocks.count) continue;
    T* to = out + (int64_t{blocks.first + j} << 2 * launch.shift) + (row0 + m) * block +
            ((col0 + n) & (block - 1));
    write_chunk(to, shared + m * P::template c_ld<true> + n, vector, launch.c_aligned);
  }
}

}  // namespace kernel

namespace launch {

inline bool aligned_to_16(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

/// Whether every step of tensor `n` over the loop is a multiple of `vector` elements.
template <int N>
bool steps_in(const StridedLoop<N>& loop, int n, int vector) {
  for (int axis = 0; axis < loop.rank; ++axis)
    if (loop.strides[n][axis] % vector != 0) return false;
  return true;
}

/// Whether lines of `length` elements, one after the other in memory, fall into whole pieces.
inline bool whole_pieces(const MatrixStrides& strides, bool by_rows, int64_t length, int vector) {
  return (by_rows ? strides.row : strides.col) % vector == 0 && length % vector == 0;
}

inline unsigned grid(const char* op, int64_t tiles) {
  BS_CHECK(tiles <= INT32_MAX, "{}: {} tiles are more than one launch can have", op, tiles);
  return static_cast<unsigned>(tiles);
}

/// Calls `f` with the block, where its tile differs from that of others, as a constant.
template <class F>
void with_block(int block, F&& f) {
  switch (block) {
    case 8:
    case 16:
      return f(std::integral_constant<int, 16>{});
    case 32:
      return f(std::integral_constant<int, 32>{});
    case 64:
      return f(std::integral_constant<int, 64>{});
    default:
      return f(std::integral_constant<int, 128>{});
  }
}

template <class F>
void with_bool(bool value, F&& f) {
  value ? f(std::true_type{}) : f(std::false_type{});
}

template <class T, int Block, bool a_along_k, bool b_along_k>
struct Tiled {
  static constexpr BlockSparseTile tile = block_sparse_tile(sizeof(T), Block);
  using Product = device::TileProduct<T, tile.rows, tile.cols, tile.depth, tile.stages,
                                      tile.warp_rows, tile.warp_cols, a_along_k, b_along_k>;

  static BlockSparseLaunch shape(int block, int64_t cols) {
    return {.shift = std::countr_zero(static_cast<unsigned>(block)),
            .row_tiles = static_cast<int>(ceil_div(block, tile.rows)),
            .col_tiles = static_cast<int>(ceil_div(cols, tile.cols))};
  }
  /// Beyond 48 KiB of shared memory a kernel must ask.
  template <class Kernel>
  static void prepare(Kernel* kernel) {
    if constexpr (Product::shared_bytes > 48 * 1024)
      BS_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         Product::shared_bytes));
  }
};

template <class T>
void dsd(const T* values, const T* b, T* c, const DsdProblem& p, cudaStream_t stream) {
  constexpr int vector = 16 / static_cast<int>(sizeof(T));
  const bool b_along_k = p.b.col != 1;
  const bool by_rows = p.c.col == 1;
  with_block(p.layout.block, [&]<int B>(std::integral_constant<int, B>) {
    with_bool(!p.transposed, [&]<bool A>(std::bool_constant<A>) {
      with_bool(b_along_k, [&]<bool K>(std::bool_constant<K>) {
        using Tile = Tiled<T, B, A, K>;
        using Product = typename Tile::Product;
        BlockSparseLaunch shape = Tile::shape(p.layout.block, p.n);
        shape.a_aligned =
            aligned_to_16(values) && steps_in(p.batch, 0, vector) && steps_in(p.sum, 0, vector);
        shape.b_aligned = aligned_to_16(b) && steps_in(p.batch, 1, vector) &&
                          steps_in(p.sum, 1, vector) &&
                          whole_pieces(p.b, !K, K ? p.k() : p.n, vector);
        shape.c_aligned = aligned_to_16(c) && steps_in(p.batch, 2, vector) &&
                          whole_pieces(p.c, by_rows, by_rows ? p.n : vector, vector);
        auto* kernel =
            kernel::dsd_kernel<Product, T, Tile::tile.rows, Tile::tile.cols, Tile::tile.depth>;
        Tile::prepare(kernel);
        const int64_t tiles = p.batch.numel() * shape.col_tiles * p.block_rows() * shape.row_tiles;
        kernel<<<grid("dsd", tiles), Product::threads, Product::shared_bytes, stream>>>(
            values, b, c, p, shape, by_rows);
      });
    });
  });
  BS_CUDA_CHECK_LAUNCH("dsd");
}

template <class T>
void sdd(const T* a, const T* b, T* values, const SddProblem& p, cudaStream_t stream) {
  constexpr int vector = 16 / static_cast<int>(sizeof(T));
  const bool a_along_k = p.a.col == 1;
  const bool b_along_k = p.b.col != 1;
  const int64_t height = int64_t{p.layout.rows} * p.layout.block;
  const int64_t width = int64_t{p.layout.cols} * p.layout.block;
  with_block(p.layout.block, [&]<int B>(std::integral_constant<int, B>) {
    with_bool(a_along_k, [&]<bool A>(std::bool_constant<A>) {
      with_bool(b_along_k, [&]<bool K>(std::bool_constant<K>) {
        using Tile = Tiled<T, B, A, K>;
        using Product = typename Tile::Product;
        BlockSparseLaunch shape =
            Tile::shape(p.layout.block, int64_t{p.longest_row} * p.layout.block);
        shape.a_aligned = aligned_to_16(a) && steps_in(p.batch, 0, vector) &&
                          steps_in(p.sum, 0, vector) && p.a_head % vector == 0 &&
                          whole_pieces(p.a, A, A ? p.k : height, vector);
        shape.b_aligned = aligned_to_16(b) && steps_in(p.batch, 1, vector) &&
                          steps_in(p.sum, 1, vector) && p.b_head % vector == 0 &&
                          whole_pieces(p.b, !K, K ? p.k : width, vector);
        shape.c_aligned = aligned_to_16(values) && steps_in(p.batch, 2, vector);
        auto* kernel =
            kernel::sdd_kernel<Product, T, Tile::tile.rows, Tile::tile.cols, Tile::tile.depth>;
        Tile::prepare(kernel);
        const int64_t tiles =
            p.batch.numel() * p.layout.heads * p.layout.rows * shape.row_tiles * shape.col_tiles;
        kernel<<<grid("sdd", tiles), Product::threads, Product::shared_bytes, stream>>>(
            a, b, values, p, shape);
      });
    });
  });
  BS_CUDA_CHECK_LAUNCH("sdd");
}

}  // namespace launch
}  // namespace bs::cuda
