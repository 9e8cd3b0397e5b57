#pragma once
// One operand of a tile of sums: how its tiles lie in shared memory, how threads copy them there
// stage after stage, and how a warp reads fragments of them.
#include <bs/kernels/cuda/device/ptx/async_copy.cuh>
#include <bs/kernels/cuda/device/ptx/mma.cuh>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/gemm_element.cuh>

namespace bs::cuda::device {

/// `Side` rows of A or columns of B by `Depth`; lines of neighbours lie along the depth where
/// `AlongK`, else along the side. Chunks of 16 bytes exchange places within 128 bytes, so that what
/// a warp reads at once falls into distinct banks: rows of the matrices of ldmatrix (16 bits, and
/// wider elements along the depth in 32), or single elements of four neighbours of the depth.
template <class T, int Side, int Depth, bool AlongK, int Threads>
struct SwizzledTile {
  using Element = T;
  static constexpr bool along_k = AlongK;
  static constexpr int side = Side, depth = Depth;
  static constexpr int size = static_cast<int>(sizeof(T)), vector = 16 / size;
  static constexpr int lines = AlongK ? Side : Depth;
  static constexpr int line_bytes = (AlongK ? Depth : Side) * size, bytes = lines * line_bytes;
  static constexpr int chunks = line_bytes / 16;  // of a line
  static constexpr bool by_matrix = size == 2 || (size == 4 && AlongK);

  static constexpr int exchanged = chunks < 8 ? chunks : 8, span = 8 / exchanged;
  static constexpr int period = by_matrix ? 8 : 4;  // lines whose chunks lie differently
  static_assert(bytes % 1024 == 0 && (by_matrix || chunks >= 4));

  __device__ static constexpr unsigned offset(int line, int chunk) {
    const int exchange = by_matrix ? line / span % exchanged : line / span % (exchanged / 2) * 2;
    return static_cast<unsigned>(line * line_bytes + (chunk ^ exchange) * 16);
  }

  // Each thread copies the same chunk of every `pass`-th line.
  static constexpr int pass = Threads / chunks;
  static constexpr int vectors = lines > pass ? lines / pass : 1;
  static constexpr int places = pass < period && vectors > 1 ? period / pass : 1;
  static_assert(pass * chunks == Threads && (vectors == 1 || vectors * pass == lines));
};

/// Where an operand lies. Blocks of a list follow each other along the depth or the side.
template <class T>
struct OperandSource {
  const T* data;         ///< first of the side, at depth 0; of block 0 where there is a list
  long long line_step;   ///< elements from a line to the next
  long long sides;       ///< of the matrix, from the first on; or, known beforehand, enough
  int depth;             ///< of the matrix, where there is no list along it
  const int* list;       ///< which blocks; not read where they are consecutive, from `first` on
  int first, count;      ///< of the list
  long long block_step;  ///< elements from a block to the next
};

enum class Listed { nowhere, along_depth, consecutively_along_depth, along_side };

/// A thread's vectors of the tiles along the depth. Addresses move on by sums alone, without
/// branches, so that ptxas spreads them among products; entries of the list are read a stage ahead.
/// `whole`: the side ends nowhere within a tile. `aligned`: chunks lie at multiples of 16 bytes,
/// and are whole or empty.
template <class Tile, Listed listed, int block, bool whole, bool aligned>
class OperandVectors {
  using T = typename Tile::Element;
  static constexpr int pass = Tile::pass, vectors = Tile::vectors, vector = Tile::vector;
  static constexpr bool along_k = Tile::along_k;
  static constexpr bool by_side = listed == Listed::along_side;
  static constexpr bool by_depth = listed != Listed::nowhere && !by_side;
  static constexpr bool on_lines = listed != Listed::nowhere && along_k == by_side;
  static constexpr int stages_a_block = by_depth && block > Tile::depth ? block / Tile::depth : 1;
  static constexpr int blocks_a_stage = Tile::depth > block ? Tile::depth / block : 1;

 public:
  /// Vectors of different lines may lie in so many different blocks.
  static constexpr int line_blocks = !on_lines || Tile::lines <= block ? 1
                                     : pass >= block                   ? vectors
                                                                       : Tile::lines / block;

  __device__ explicit OperandVectors(const OperandSource<T>& from)
      : source_(from),
        line_(static_cast<int>(threadIdx.x) / Tile::chunks),
        at_(static_cast<int>(threadIdx.x) % Tile::chunks * vector),
        lines_(along_k ? clamp(from.sides - line_, Tile::lines) : from.depth - line_),
        width_(along_k ? from.depth - at_ : clamp(from.sides - at_, vector)) {
    const int line = on_lines ? line_ % block : line_;
    const int at = listed != Listed::nowhere && !on_lines ? at_ % block : at_;
    from_ = from.data + line * from.line_step + at;
#pragma unroll
    for (int i = 0; i < Tile::places; ++i)
      shared_[i] = Tile::offset(line_ + i * pass, at_ / vector);
    read_list();
  }

  /// Copies the stage's, where `wanted`. Chunks that are not in the matrix become zeros.
  __device__ void copy(unsigned tile, bool wanted) const {
    wanted = wanted && (Tile::lines >= pass || line_ < Tile::lines);
    const T* from = address(0, entry_[0]);
#pragma unroll
    for (int p = 0; p < vectors; ++p) {
      int entry = entry_[line_block(p)];
      if constexpr (line_blocks > 1) {
        asm volatile("" : "+r"(entry));  // no product of it is kept in registers
        from = address(p, entry);
      }
      const bool there = has_line(p, entry);
      const unsigned to =
          tile + shared_[p % Tile::places] +
          static_cast<unsigned>(p / Tile::places * Tile::places * pass) * Tile::line_bytes;
      if constexpr (aligned) {
        copy_async_if<16>(wanted, to, from, there && (!has_width || width_ > 0));
      } else if constexpr (sizeof(T) >= 4) {
#pragma unroll
        for (int v = 0; v < vector; ++v)
          copy_async_if<sizeof(T)>(wanted, to + v * sizeof(T), from + v,
                                   there && (!has_width || width_ > v));
      } else if (wanted) {
        Neighbours<T, vector> values;
#pragma unroll
        for (int v = 0; v < vector; ++v)
          values.at[v] = there && (!has_width || width_ > v) ? from[v] : narrow<T>(0);
        write_shared(to, reinterpret_cast<const uint4&>(values));
      }
      if constexpr (line_blocks == 1) from += pass * source_.line_step;
    }
  }

  /// Goes on to the next stage.
  __device__ void advance() {
    if constexpr (by_depth) {
      ++stage_;
      read_list();
    } else {
      from_ += along_k ? Tile::depth : Tile::depth * source_.line_step;
      (along_k ? width_ : lines_) -= Tile::depth;
    }
  }

 private:
  // What ends within a tile: lines, and chunks of a line.
  static constexpr bool has_lines = along_k ? !whole : !by_depth;
  static constexpr bool has_width = along_k ? !by_depth : !whole;

  __device__ static int clamp(long long left, int most) {
    return left <= 0 ? 0 : left < most ? static_cast<int>(left) : most;
  }
  __device__ static constexpr int line_block(int p) {
    return line_blocks == 1 ? 0 : pass >= block ? p : p * pass / block;
  }
  /// Blocks of the stage: those of the list, or -1 beyond its end.
  __device__ void read_list() {
#pragma unroll
    for (int i = 0; i < line_blocks; ++i) {
      const int p = pass >= block ? i : i * (block / (pass < block ? pass : block));
      const int index = stage_ / stages_a_block * blocks_a_stage * by_depth +
                        (on_lines ? line_ + p * pass : at_) / block;
      entry_[i] = -1;
      if constexpr (listed == Listed::consecutively_along_depth) {
        if (index < source_.count) entry_[i] = source_.first + index;
      } else if constexpr (listed != Listed::nowhere) {
        if (index < source_.count) entry_[i] = __ldg(source_.list + index);
      }
    }
  }
  __device__ const T* address(int p, int entry) const {
    const int line = on_lines ? (pass >= block ? 0 : p * pass % block) : p * pass;
    const T* at = from_ + line * source_.line_step;
    if constexpr (stages_a_block > 1) {
      const int within = stage_ % stages_a_block * Tile::depth;
      at += along_k ? within : within * source_.line_step;
    }
    if constexpr (listed != Listed::nowhere) at += entry * source_.block_step;
    return at;
  }
  __device__ bool has_line(int p, int entry) const {
    return (listed == Listed::nowhere || entry >= 0) && (!has_lines || lines_ > p * pass);
  }

  const OperandSource<T> source_;
  const T* from_;  // the first vector, if its block is the first
  int line_, at_;
  int lines_, width_;  // from the first vector to the end of the matrix
  int entry_[line_blocks];
  int stage_ = 0;
  unsigned shared_[Tile::places];
};

/// What a lane holds of 16 of a side by one step of the depth: 32 bytes of it, for f64 128. In the
/// order of A's (side half, depth part) 00 10 01 11 ..., or B's 00 01 10 11 ...
template <class T>
struct Fragment {
  unsigned r[4];
};
template <>
struct Fragment<double> {
  double r[8];
};

/// Reads fragments of a warp's part of a tile.
template <class Tile, bool is_b>
class FragmentReader {
  using T = typename Tile::Element;

 public:
  __device__ FragmentReader(int side0, int lane) {
    const int matrix = lane / 8, row = lane % 8;
    const int side = (is_b ? matrix / 2 : matrix % 2) * 8, part = is_b ? matrix % 2 : matrix / 2;
    if constexpr (Tile::by_matrix && Tile::along_k) {
      offset_ = Tile::offset(side0 + side + row, part);
    } else if constexpr (Tile::by_matrix) {
      offset_ = Tile::offset(part * 8 + row, (side0 + side) / Tile::vector);
    } else if constexpr (Tile::along_k) {
      offset_ = Tile::offset(side0 + lane / 4, lane % 4 / 2) + lane % 2 * sizeof(T);
    } else {
      offset_ = Tile::offset(lane % 4, (side0 + lane / 4) / Tile::vector) +
                lane / 4 % Tile::vector * sizeof(T);
    }
  }

  /// 16 of the side from 16 i on, step `step` of the depth. Chunks' places are exclusive ors, which
  /// those of further ones change in bits that are zero so far.
  __device__ void read(Fragment<T>& f, unsigned tile, int i, int step) const {
    const unsigned at = tile + offset_;
    constexpr unsigned line = Tile::line_bytes;
    if constexpr (Tile::by_matrix && Tile::along_k) {
      load_matrix_x4<false>(f.r, (at ^ static_cast<unsigned>(step * 32)) + i * 16 * line);
    } else if constexpr (Tile::by_matrix) {
      load_matrix_x4<true>(f.r, (at ^ static_cast<unsigned>(i * 32)) + step * 16 * line);
    } else {
      constexpr int count = sizeof(f.r) / sizeof(f.r[0]), parts = count / 2;
      constexpr unsigned half = 8 * sizeof(T);  // bytes of eight neighbours along the side
#pragma unroll
      for (int r = 0; r < count; ++r) {
        const int side = is_b ? r / parts : r % 2, part = is_b ? r % parts : r / 2;
        read_shared(f.r[r],
                    Tile::along_k
                        ? (at ^ static_cast<unsigned>(part * 32)) + (i * 16 + side * 8) * line
                        : (at ^ (i * 2 + side) * half) + (step * parts + part) * 4 * line);
      }
    }
  }

 private:
  __device__ static void read_shared(unsigned& x, unsigned at) {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(at));
  }
  __device__ static void read_shared(double& x, unsigned at) {
    asm volatile("ld.shared.f64 %0, [%1];" : "=d"(x) : "r"(at));
  }

  unsigned offset_;
};

}  // namespace bs::cuda::device
