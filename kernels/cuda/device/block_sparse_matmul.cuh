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

/// 16 bytes from shared to global memory, or fewer where only `left` elements are inside of the
/// matrix; in one piece where `aligned`. (`left` comes as it is, not cut to 16 bytes' worth: ptxas
/// 13.0 makes of the cut, and of a comparison with it, an instruction that never says yes.)
template <class T>
__device__ inline void write_chunk(T* to, const T* from, int left, bool aligned) {
  constexpr int vector = 16 / static_cast<int>(sizeof(T));
  if (aligned && left >= vector) {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
  } else {
    for (int v = 0; v < vector && v < left; ++v) to[v] = from[v];
  }
}

/// Blocks of one row of op(S), in the order of the depth.
struct BlockRow {
  const int* number;    ///< null: consecutive from `first`
  const int* position;  ///< along the depth
  int first, count;

  __device__ BlockRow(const BlockOrder& order, int head, int row) {
    const int line = head * order.lines + row;
    first = order.offsets[line];
    count = order.offsets[line + 1] - first;
    number = order.number ? order.number + first : nullptr;
    position = order.position + first;
  }
  __device__ int block(int j) const { return number ? number[j] : first + j; }
};

/// C = sum of op(S) B: a CTA takes some rows of a block row and some columns. Product's A lies
/// along the depth where S is not transposed.
template <class Product, int block, class Epilogue = NoEpilogue>
__device__ inline void dsd_tile(const DsdArguments& p) {
  using T = typename Product::Element;
  extern __shared__ __align__(16) unsigned char memory[];
  T* shared = reinterpret_cast<T*>(memory);
  constexpr int vector = Product::vector;
  constexpr int rows = Product::rows, cols = Product::cols, depth = Product::depth;
  unsigned index = blockIdx.x;
  const int row0 = static_cast<int>(index % p.grid.row_tiles) * rows;
  index /= p.grid.row_tiles;
  const int row = static_cast<int>(index % p.order.lines);
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
    const auto load_a = [&](int step, int side, int k) -> Chunk<T> {
      const unsigned at_k = step * depth + k;
      const int j = at_k / block;
      const int within = at_k % block;
      const int i = row0 + side;
      if (j >= blocks.count || i >= block) return {s, 0};
      const T* at = s + static_cast<long long>(blocks.block(j)) * (block * block);
      return {at + (Product::a_is_along_k ? i * block + within : within * block + i), vector};
    };
    const auto load_b = [&](int step, int side, int k) -> Chunk<T> {
      const unsigned at_k = step * depth + k;
      const int j = at_k / block;
      const long long n = n0 + side;
      if (j >= blocks.count || n >= p.n) return {s, 0};
      const long long at = static_cast<long long>(blocks.position[j]) * block + at_k % block;
      return {dense + at * p.b_steps.row + n * p.b_steps.col,
              Product::b_is_along_k ? vector : clamp_count(p.n - n, vector)};
    };
    const int steps = (blocks.count * block + depth - 1) / depth;
    product.run(shared, steps, p.grid.a_aligned, p.grid.b_aligned, load_a, load_b);
  }

  T* out = static_cast<T*>(p.c) + offset_of(p.batch, 2, item);
  const long long m0 = static_cast<long long>(row) * block + row0;
  const int height = min(rows, block - row0);
  const int width = clamp_count(p.n - n0, cols);
  if constexpr (!same_type<Epilogue, NoEpilogue>) {
    product.each_pair([&](int r, int c, typename Product::M::Sum(&sums)[2]) {
      const EpiloguePlace at{static_cast<int>(m0) + min(r, height - 1),
                             static_cast<int>(n0) + min(c, width - 1), static_cast<int>(item),
                             width - c == 1 ? 1 : 2};
      EpiloguePlace in = at;
      in.count = r < height ? width - c : 0;
      typename Product::M::Sum out[1][2];
      finish_sums<Epilogue, 1>(p.epilogue, at, in, sums, out);
      sums[0] = out[0][0];
      sums[1] = out[0][1];
    });
  }
  if (p.c_steps.col == 1) {
    product.template stage_result<true>(shared);
    for (int i = threadIdx.x; i < height * (cols / vector); i += Product::threads) {
      const int m = i / (cols / vector);
      const int n = i % (cols / vector) * vector;
      write_chunk(out + (m0 + m) * p.c_steps.row + (n0 + n) * p.c_steps.col,
                  shared + m * Product::template c_ld<true> + n, width - n, p.grid.c_aligned);
    }
  } else {
    product.template stage_result<false>(shared);
    for (int i = threadIdx.x; i < width * (rows / vector); i += Product::threads) {
      const int n = i / (rows / vector);
      const int m = i % (rows / vector) * vector;
      write_chunk(out + (m0 + m) * p.c_steps.row + (n0 + n) * p.c_steps.col,
                  shared + n * Product::template c_ld<false> + m, height - m, p.grid.c_aligned);
    }
  }
}

/// S = blocks of the sum of A B: a CTA takes some rows of a block row, and of the columns that the
/// row's blocks have, one after the other, some. So small blocks of a row share their rows of A.
template <class Product, int block, class Epilogue = NoEpilogue>
__device__ inline void sdd_tile(const SddArguments& p) {
  using T = typename Product::Element;
  extern __shared__ __align__(16) unsigned char memory[];
  T* shared = reinterpret_cast<T*>(memory);
  constexpr int vector = Product::vector;
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
    const auto load_a = [&](int step, int side, int k) -> Chunk<T> {
      const long long at = static_cast<long long>(step) * depth + k;
      if (at >= p.k || row0 + side >= block) return {left, 0};
      return {left + (m0 + side) * p.a_steps.row + at * p.a_steps.col,
              Product::a_is_along_k ? clamp_count(p.k - at, vector) : vector};
    };
    const auto load_b = [&](int step, int side, int k) -> Chunk<T> {
      const long long at = static_cast<long long>(step) * depth + k;
      const unsigned col = col0 + side;
      const int j = col / block;
      if (at >= p.k || j >= blocks.count) return {right, 0};
      const long long n = static_cast<long long>(blocks.position[j]) * block + col % block;
      return {right + at * p.b_steps.row + n * p.b_steps.col,
              Product::b_is_along_k ? clamp_count(p.k - at, vector) : vector};
    };
    const int steps = static_cast<int>((p.k + depth - 1) / depth);
    product.run(shared, steps, p.grid.a_aligned, p.grid.b_aligned, load_a, load_b);
  }

  T* out = static_cast<T*>(p.values) + offset_of(p.batch, 2, item);
  const int height = min(rows, block - row0);
  if constexpr (!same_type<Epilogue, NoEpilogue>) {
    product.each_pair([&](int r, int c, typename Product::M::Sum(&sums)[2]) {
      const int j = (col0 + c) / block;
      const bool inside = r < height && j < blocks.count;
      const int entry = min(j, blocks.count - 1), i = min(r, height - 1), k = (col0 + c) % block;
      const EpiloguePlace at{static_cast<int>(m0) + i, blocks.position[entry] * block + k,
                             static_cast<int>(item * p.order.heads + head), 2};
      const EpiloguePlace in{(blocks.first + entry) * block + row0 + i, k, static_cast<int>(item),
                             inside ? 2 : 0};
      typename Product::M::Sum out[1][2];
      finish_sums<Epilogue, 1>(p.epilogue, at, in, sums, out);
      sums[0] = out[0][0];
      sums[1] = out[0][1];
    });
  }
  product.template stage_result<true>(shared);
  for (int i = threadIdx.x; i < height * (cols / vector); i += Product::threads) {
    const int m = i / (cols / vector);
    const int n = i % (cols / vector) * vector;
    const unsigned col = col0 + n;
    const int j = col / block;
    if (j >= blocks.count) continue;
    T* to = out + static_cast<long long>(blocks.first + j) * (block * block) + (row0 + m) * block +
            col % block;
    write_chunk(to, shared + m * Product::template c_ld<true> + n, vector, p.grid.c_aligned);
  }
}

}  // namespace bs::cuda::device
