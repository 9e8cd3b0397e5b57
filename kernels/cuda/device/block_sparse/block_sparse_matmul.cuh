#pragma once
// The block-sparse products on mma.sync (sm_80 and later): a CTA makes one tile of the result.
#include <bs/kernels/cuda/device/block_sparse/block_sparse_epilogue.cuh>
#include <bs/kernels/cuda/device/block_sparse/block_sparse_problem.cuh>
#include <bs/kernels/cuda/device/block_sparse/work_parts.cuh>
#include <bs/kernels/cuda/device/tile/tile_product.cuh>

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

/// Where in the lines of a finished tile, which lie by rows or by columns, a thread writes.
template <class Product, bool by_rows>
struct LinePlace {
  static constexpr int length = by_rows ? Product::cols : Product::rows;
  static constexpr int chunks = length / Product::vector, pass = Product::threads / chunks;
  static_assert(chunks * pass == Product::threads);
  int line = static_cast<int>(threadIdx.x) / chunks;
  int at = static_cast<int>(threadIdx.x) % chunks * Product::vector;

  /// The lines from its own to `lines`, `step` apart in global memory: 16 bytes of each, or fewer
  /// where only `left` elements are inside of the matrix; at once where `aligned`. (`left`
  /// comes as it is, not cut to 16 bytes' worth: ptxas 13.0 makes of the cut, and of a comparison
  /// with it, an instruction that never says yes.)
  template <class T, class Kept>
  __device__ void write(T* to, long long step, const Kept* from, int lines, int left,
                        bool aligned) const {
    constexpr int ld = Product::template c_ld<by_rows, Kept>;
    if (aligned && left >= Product::vector) {
#pragma unroll 4
      for (int i = line; i < lines; i += pass) copy(to + i * step, from + i * ld);
    } else {
#pragma unroll 1
      for (int i = line; i < lines; i += pass)
        for (int v = 0; v < Product::vector && v < left; ++v)
          to[i * step + v] = rounded<T>(from[i * ld + v]);
    }
  }

 private:
  template <class T, class Kept>
  __device__ static T rounded(Kept x) {
    if constexpr (same_type<T, Kept>) {
      return x;
    } else {
      return narrow<T>(x);
    }
  }
  template <class T, class Kept>
  __device__ static void copy(T* to, const Kept* from) {
    if constexpr (same_type<T, Kept>) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
      Neighbours<Kept, Product::vector> kept;
      kept.load(from);
      Neighbours<T, Product::vector> out;
#pragma unroll
      for (int v = 0; v < Product::vector; ++v) out.at[v] = rounded<T>(kept.at[v]);
      out.store(to);
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
  /// Leaves blocks [begin, end) of it.
  __device__ void keep(int begin, int end) {
    first += begin;
    count = end - begin;
    position += begin;
    if (number != nullptr) number += begin;
  }
};

/// Puts what the epilogue makes of a tile's sums in their place in shared memory, each thread of
/// those that it put there itself. `places(row, column, at, in)` tells where two neighbours are
/// (see finish_pair), `patch(row, column)` where a patch is. From registers, which have no index,
/// it would be written once for each patch: a compiler that reads ahead then runs out of them.
template <class Product, int block, bool by_rows, class Epilogue, class Places, class PatchAt>
__device__ inline void finish_tile(typename Product::Sum* shared,
                                   const BlockSparseEpilogueArguments& e, const Places& places,
                                   const PatchAt& patch_at) {
  using Sum = typename Product::Sum;
  static_assert(Product::template kept_bytes<by_rows, Sum> <= Product::shared_bytes);
  constexpr int side = side_of<block>, ld = Product::template c_ld<by_rows, Sum>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int c = 0; c < Product::warp_cols; c += side)
#pragma unroll
    for (int r = 0; r < Product::warp_rows; r += 16) {
      const int row0 = Product::first_row() + r, col0 = Product::first_col() + c;
      const EpiloguePatch patch = patch_at(row0, col0);
      PatchTotals<Epilogue, side> totals;
#pragma unroll
      for (int i = 0; i < side / 4; ++i) {
        const int row = row0 + lane / 4 + i % 2 * 8, col = col0 + lane % 4 * 2 + i / 2 * 8;
        Sum* const kept = shared + (by_rows ? row * ld + col : col * ld + row);
        constexpr int next = by_rows ? 1 : ld;
        EpiloguePlace at, in;
        places(row, col, at, in);
        const Sum sums[2] = {kept[0], kept[next]};
        Sum out[1][2];
        finish_pair<Epilogue, 1>(e, at, in, sums, out, i, patch, totals);
        kept[0] = out[0][0];
        kept[next] = out[0][1];
      }
      const GemmOperand* const partials = e.operands + Epilogue::operands;
      totals.store_columns(partials, patch);
      if (patch.columns > 0) totals.store_rows(partials, patch, patch.column / side);
    }
  __syncthreads();
}

/// Puts a finished tile into shared memory and returns where: rounded, or if there is an epilogue
/// what that makes of it, not rounded yet.
template <class Product, int block, bool by_rows, class Epilogue, class Places, class PatchAt>
__device__ inline auto* stage_tile(Product& product, unsigned char* memory,
                                   const BlockSparseEpilogueArguments& e, const Places& places,
                                   const PatchAt& patch_at) {
  if constexpr (same_type<Epilogue, NoEpilogue>) {
    auto* const kept = reinterpret_cast<typename Product::Element*>(memory);
    product.template stage_result<by_rows>(kept);
    return kept;
  } else {
    auto* const kept = reinterpret_cast<typename Product::Sum*>(memory);
    product.template stage_result<by_rows>(kept);
    finish_tile<Product, block, by_rows, Epilogue>(kept, e, places, patch_at);
    return kept;
  }
}

/// Which tile of dsd is which: from a row of a block row, and from a column on.
template <class Product>
struct DsdTile {
  int row0, row;
  long long column;
  unsigned item;

  __device__ DsdTile(const DsdArguments& p, unsigned index) {
    row0 = static_cast<int>(index % p.grid.row_tiles) * Product::rows;
    index /= p.grid.row_tiles;
    row = p.lines[index % p.order.lines];
    index /= p.order.lines;
    column = static_cast<long long>(index % p.grid.col_tiles) * Product::cols;
    item = index / p.grid.col_tiles;
  }
};

/// What a CTA of dsd has: a tile.
template <class Product, int block, bool cut>
struct DsdWork {
  const DsdTile<Product> place;

  __device__ DsdWork(const DsdArguments& p, unsigned tile) : place(p, tile) {}
  __device__ const DsdTile<Product>& tile(const DsdArguments&) const { return place; }
  __device__ void keep(BlockRow&) {}
  __device__ bool finish(const DsdArguments&, Product&) const { return true; }
};

/// Where long tiles are cut: a part of one. The sums want all registers, so that which part it is
/// lies in shared memory, and is looked up anew for each use.
template <class Product, int block>
struct DsdWork<Product, block, true> {
  static constexpr int of_step = Product::depth > block ? Product::depth / block : 1;  // blocks
  WorkPiece& piece;
  int before = 0;  ///< steps of the products before

  /// Parts are handed out in the order in which CTAs begin, so that one waits only for such as have
  /// begun.
  __device__ DsdWork(const DsdArguments& p, unsigned) : piece(shared()) {
    if (threadIdx.x == 0) {
      const int work = atomicAdd(p.next, 1);
      if (work + 1 == static_cast<int>(gridDim.x)) *p.next = 0;
      piece = p.split.pieces[work];
    }
    __syncthreads();
  }
  __device__ DsdTile<Product> tile(const DsdArguments& p) const {
    return {p, static_cast<unsigned>(piece.item)};
  }
  __device__ void keep(BlockRow& blocks) {
    const int steps = (blocks.count + of_step - 1) / of_step;
    const int begin = min(max(piece.begin - before, 0), steps);
    const int end = min(max(piece.end - before, 0), steps);
    blocks.keep(begin * of_step, min(end * of_step, blocks.count));
    before += steps;
  }
  __device__ bool finish(const DsdArguments& p, Product& product) const {
    bool started = true;
    return finish_parts<1>(p.split, piece, 0, product.flat(), started);
  }

 private:
  __device__ static WorkPiece& shared() {
    __shared__ WorkPiece memory;
    return memory;
  }
};

/// Where a tile of dsd begins, and how much of it is inside of C.
struct DsdPlace {
  long long row, column;
  unsigned item;
  int height, width;
};

/// Writes a tile of C, or of its transpose, line by line, to `out` and on.
template <class Product, int block, bool by_rows, class Epilogue>
__device__ inline void write_dsd(Product& product, unsigned char* memory, const DsdArguments& p,
                                 const DsdPlace& to, typename Product::Element* out) {
  const auto* const kept = stage_tile<Product, block, by_rows, Epilogue>(
      product, memory, p.epilogue,
      [&](int r, int c, EpiloguePlace& at, EpiloguePlace& in) {
        at = {static_cast<int>(to.row) + min(r, to.height - 1),
              static_cast<int>(to.column) + min(c, to.width - 1), static_cast<int>(to.item),
              to.width - c == 1 ? 1 : 2};
        in = at;
        in.count = r < to.height ? to.width - c : 0;
      },
      [&](int r, int c) {
        return EpiloguePatch{static_cast<int>(to.row) + r, static_cast<int>(to.column) + c,
                             static_cast<int>(to.item), to.height - r, to.width - c};
      });
  const LinePlace<Product, by_rows> own;
  own.write(out + own.at, by_rows ? p.c_steps.row : p.c_steps.col, kept + own.at,
            by_rows ? to.height : to.width, (by_rows ? to.width : to.height) - own.at,
            p.grid.c_aligned);
}

/// C = sum of op(S) B: a CTA takes some rows of a block row and some columns, of a part of the
/// depth where long rows are cut. Product's A lies along the depth where S is not transposed.
/// `by_rows`, which only kernels with an epilogue know beforehand: C's rows lie side by side, else
/// its columns.
template <class Product, int block, class Epilogue = NoEpilogue, bool by_rows = true,
          bool cut = false>
__device__ inline void dsd_tile(const DsdArguments& p, unsigned tile = blockIdx.x) {
  using T = typename Product::Element;
  extern __shared__ __align__(1024) unsigned char memory[];
  constexpr int rows = Product::rows, cols = Product::cols, depth = Product::depth;
  DsdWork<Product, block, cut> work(p, tile);

  Product product;
  const unsigned terms = count_of(p.sum);
  for (unsigned term = 0; term < terms; ++term) {
    const DsdTile<Product>& at = work.tile(p);
    const int head = static_cast<int>(offset_of(p.batch, 3, at.item) + offset_of(p.sum, 2, term));
    const T* s = static_cast<const T*>(p.values) + offset_of(p.batch, 0, at.item) +
                 offset_of(p.sum, 0, term);
    const T* dense =
        static_cast<const T*>(p.b) + offset_of(p.batch, 1, at.item) + offset_of(p.sum, 1, term);
    BlockRow blocks(p.order, head, at.row);
    work.keep(blocks);
    constexpr Listed listed =
        Product::TileA::along_k ? Listed::consecutively_along_depth : Listed::along_depth;
    OperandVectors<typename Product::TileA, listed, block, rows <= block, Product::aligned>
        vectors_a({.data = s + (Product::TileA::along_k ? at.row0 * block : at.row0),
                   .line_step = block,
                   .sides = block - at.row0,
                   .depth = 0,
                   .list = blocks.number,
                   .first = blocks.first,
                   .count = blocks.count,
                   .block_step = block * block});
    OperandVectors<typename Product::TileB, Listed::along_depth, block, false, Product::aligned>
        vectors_b({.data = dense + at.column * p.b_steps.col,
                   .line_step = line_step(p.b_steps, !Product::TileB::along_k),
                   .sides = p.n - at.column,
                   .depth = 0,
                   .list = blocks.position,
                   .first = 0,
                   .count = blocks.count,
                   .block_step = block * p.b_steps.row});
    product.run(memory, (blocks.count * block + depth - 1) / depth, vectors_a, vectors_b);
  }
  if (!work.finish(p, product)) return;

  const DsdTile<Product>& at = work.tile(p);
  T* out = static_cast<T*>(p.c) + offset_of(p.batch, 2, at.item);
  const DsdPlace to{static_cast<long long>(at.row) * block + at.row0, at.column, at.item,
                    min(rows, block - at.row0), clamp_count(p.n - at.column, cols)};
  out += to.row * p.c_steps.row + to.column * p.c_steps.col;
  if (!same_type<Epilogue, NoEpilogue> ? by_rows : p.c_steps.col == 1) {
    write_dsd<Product, block, true, Epilogue>(product, memory, p, to, out);
  } else {
    write_dsd<Product, block, false, Epilogue>(product, memory, p, to, out);
  }
}

/// Where a tile of sdd lies: in a row of blocks, at a row of that and at a column of all that its
/// blocks have.
template <class Product, int block>
struct SddPlace {
  int row0, col0, row, head;
  unsigned item;

  __device__ SddPlace(const SddArguments& p, unsigned index) {
    col0 = static_cast<int>(index % p.grid.col_tiles) * Product::cols;
    index /= p.grid.col_tiles;
    row0 = static_cast<int>(index % p.grid.row_tiles) * Product::rows;
    index /= p.grid.row_tiles;
    row = static_cast<int>(index % p.order.lines);
    index /= p.order.lines;
    head = static_cast<int>(index % p.order.heads);
    item = index / p.order.heads;
  }
  __device__ int height() const { return min(Product::rows, block - row0); }
};

/// Writes the blocks of a tile of S, row by row.
template <class Product, int block, class Epilogue>
__device__ inline void write_sdd(Product& product, unsigned char* memory, const SddArguments& p,
                                 const SddPlace<Product, block>& to, const BlockRow& blocks) {
  const auto* const kept = stage_tile<Product, block, true, Epilogue>(
      product, memory, p.epilogue,
      [&](int r, int c, EpiloguePlace& at, EpiloguePlace& in) {
        const int j = (to.col0 + c) / block, k = (to.col0 + c) % block;
        const int entry = min(j, blocks.count - 1), i = to.row0 + min(r, to.height() - 1);
        at = {to.row * block + i, blocks.position[entry] * block + k,
              static_cast<int>(to.item * p.order.heads + to.head), 2};
        in = {(blocks.first + entry) * block + i, k, static_cast<int>(to.item),
              r < to.height() && j < blocks.count ? 2 : 0};
      },
      [&](int r, int c) {
        const int j = (to.col0 + c) / block;
        return EpiloguePatch{(blocks.first + j) * block + to.row0 + r, (to.col0 + c) % block,
                             static_cast<int>(to.item), j < blocks.count ? to.height() - r : 0,
                             j < blocks.count ? block : 0};
      });
  const LinePlace<Product, true> own;
  const unsigned col = to.col0 + own.at;
  const int j = col / block;
  if (j >= blocks.count) return;
  typename Product::Element* const out =
      static_cast<typename Product::Element*>(p.values) + offset_of(p.batch, 2, to.item) +
      static_cast<long long>(blocks.first + j) * (block * block) + to.row0 * block + col % block;
  own.write(out, block, kept + own.at, to.height(), Product::vector, p.grid.c_aligned);
}

/// S = blocks of the sum of A B: a CTA takes some rows of a block row, and of the columns that the
/// row's blocks have, one after the other, some. So small blocks of a row share their rows of A.
template <class Product, int block, class Epilogue = NoEpilogue>
__device__ inline void sdd_tile(const SddArguments& p) {
  using T = typename Product::Element;
  extern __shared__ __align__(1024) unsigned char memory[];
  constexpr int rows = Product::rows, cols = Product::cols, depth = Product::depth;
  // Beside an epilogue the last registers would keep addresses in the list of blocks over all
  // terms, and the place until the end: both are told anew.
  constexpr bool anew = !same_type<Epilogue, NoEpilogue>;
  const SddPlace<Product, block> at(p, blockIdx.x);
  const BlockRow blocks(p.order, at.head, at.row);
  if (at.col0 >= blocks.count * block) return;

  Product product;
  const long long m0 = static_cast<long long>(at.row) * block + at.row0;
  const unsigned terms = count_of(p.sum);
  for (unsigned term = 0; term < terms; ++term) {
    const int* position = blocks.position;
    if constexpr (anew) asm volatile("" : "+l"(position));
    const T* left = static_cast<const T*>(p.a) + offset_of(p.batch, 0, at.item) +
                    offset_of(p.sum, 0, term) + at.head * p.a_head;
    const T* right = static_cast<const T*>(p.b) + offset_of(p.batch, 1, at.item) +
                     offset_of(p.sum, 1, term) + at.head * p.b_head;
    OperandVectors<typename Product::TileA, Listed::nowhere, block, rows <= block, Product::aligned>
        vectors_a({.data = left + m0 * p.a_steps.row,
                   .line_step = line_step(p.a_steps, Product::TileA::along_k),
                   .sides = block - at.row0,
                   .depth = p.k});
    OperandVectors<typename Product::TileB, Listed::along_side, block, true, Product::aligned>
        vectors_b({.data = right + at.col0 % block * p.b_steps.col,
                   .line_step = line_step(p.b_steps, !Product::TileB::along_k),
                   .sides = cols,
                   .depth = p.k,
                   .list = position + at.col0 / block,
                   .first = 0,
                   .count = blocks.count - at.col0 / block,
                   .block_step = block * p.b_steps.col});
    product.run(memory, (p.k + depth - 1) / depth, vectors_a, vectors_b);
  }

  if constexpr (anew) {
    unsigned index = blockIdx.x;
    asm volatile("" : "+r"(index));
    const SddPlace<Product, block> to(p, index);
    write_sdd<Product, block, Epilogue>(product, memory, p, to, {p.order, to.head, to.row});
  } else {
    write_sdd<Product, block, Epilogue>(product, memory, p, at, blocks);
  }
}

}  // namespace bs::cuda::device
