#pragma once
/** @file What a matrix product's kernel is: tiles, layouts, schedule and epilogue, before any sizes
 *  are known. */
#include <bs/kernels/gemm_epilogue.h>
#include <bs/kernels/math_instruction.h>

#include <array>
#include <string>

namespace bs {

/** @brief How one CTA computes its tile of D. */
struct TileDescription {
  std::array<int, 3> threadblock = {128, 128, 32};  ///< rows, columns, depth of one stage
  int stages = 3;                                   ///< stages of shared memory in flight
  std::array<int, 3> warps = {2, 2, 1};  ///< how warps divide the tile; of the depth: sliced
  MathInstruction math;
  /** Warpgroup only: CTAs along rows and columns that share what they load. */
  std::array<int, 2> cluster = {1, 1};
  /** Warpgroup only, 1 to 8: CTAs that take a part of the depth of each tile. They add their sums
   *  through distributed shared memory, in a fixed order. For few tiles of much depth. */
  int cluster_k = 1;

  /** @brief Threads of a CTA; with those that only copy, for warpgroups. */
  int threads() const;
  /** @brief CTAs of a cluster. */
  int cluster_ctas() const { return cluster[0] * cluster[1] * cluster_k; }
  bool operator==(const TileDescription&) const = default;
};

enum class MatrixLayout : uint8_t { row_major, column_major };

/** @brief One of A, B and D. Leading dimension and batch stride are those of the tensors of a run.
 */
struct TensorDescription {
  Element element = Element::f16;
  MatrixLayout layout = MatrixLayout::row_major;
  /** Elements to whose multiples the address, the leading dimension and the batch stride are
   *  aligned; 16 bytes at most, which is the fastest. The extents need not be. */
  int alignment = 8;

  bool operator==(const TensorDescription&) const = default;
};

/** @brief In which order tiles are computed. identityN: down panels of N columns of tiles.
 *  stream_k: the depth of all tiles is divided evenly among the CTAs. */
enum class Swizzle : uint8_t { identity1, identity2, identity4, identity8, stream_k };
/** @brief Whether a run may divide the depth into slices. Partial sums are kept in full precision
 *  and added in the order of the slices; the epilogue is applied once. `serial`: one after the
 *  other, memory for one sum a tile. `parallel`: memory for all, added by a second kernel. */
enum class SplitK : uint8_t { none, serial, parallel };
/** @brief One product; `batch` of one shape at even distances; of one shape anywhere; of any
 *  shapes. */
enum class GemmMode : uint8_t { gemm, batched, array, grouped };
/** @brief Grouped: who finds out which tile belongs to which product. */
enum class GemmScheduler : uint8_t { device, host };

/** @brief D = epilogue(A B), everything but the sizes. */
struct GemmDescription {
  TileDescription tile;
  TensorDescription a, b, d;
  GemmEpilogue epilogue;
  Swizzle swizzle = Swizzle::identity1;
  SplitK split_k = SplitK::none;
  GemmMode mode = GemmMode::gemm;
  GemmScheduler scheduler = GemmScheduler::device;

  /** @brief Whether the kernel computes D's transpose, since rows lead in it. */
  bool transposed() const { return d.layout == MatrixLayout::column_major; }
};

/** @brief Throws an Error that says what does not fit, with the values, unless some GPU can do it.
 */
void check(const GemmDescription& description);
/** @brief Dynamic shared memory of a CTA in bytes. */
int shared_bytes(const GemmDescription& description);
/** @brief Whether operands are split into two tf32 numbers each before the kernel, into memory of
 * their own, with the depth contiguous: fast_f32 of warpgroups. */
bool splits_operands(const GemmDescription& description);
/** @brief Whether the kernel stores D by the copy engine, in boxes. It does for warpgroups, one
 *  product or batch. D has 16 or 32 bits, is aligned to 16 bytes, and nothing else is stored. Not
 *  where CTAs share a tile's depth, nor where stages leave no shared memory for boxes. */
bool stores_boxes(const GemmDescription& description);
/** @brief Numbers that a CTA keeps while the parts of its tile are put together. */
int64_t partial_elements(const GemmDescription& description);
/** @brief Columns of D (rows, where it is transposed) that one partial result of a reduction
 *  covers. */
int reduction_chunk(const GemmDescription& description);

/** @brief Threads of a CTA of the kernel that adds up the slices of SplitK::parallel. */
constexpr int join_threads = 256;
/** @brief Slices that one warp of it adds up by itself; more are shared by those of a CTA. */
constexpr int join_alone = 16;
/** @brief Warps of that kernel that one tile takes, or CTAs where slices are shared. */
int join_jobs(const GemmDescription& description);
/** @brief Its CTAs.
 *  @throws Error for counts that are negative, or of no product */
int64_t join_ctas(const GemmDescription& description, int64_t tiles, int slices);

/** @brief The kernel's name, which tells types, tile and layouts. */
std::string kernel_name(const GemmDescription& description);
/** @brief The kernel as CUDA text: depends on nothing but the description. */
std::string to_source(const GemmDescription& description);
/** @name The kernel that adds up the slices of SplitK::parallel
 *  @{ */
std::string join_name(const GemmDescription& description);
std::string to_join_source(const GemmDescription& description);
/** @} */
/** @name The kernel that stores of D only blocks that exist, of `block` rows and columns
 *  D is of 16 bits, row_major, in boxes (stores_boxes), its depth in one piece.
 *  @{ */
std::string blocks_name(const GemmDescription& description, int block);
std::string to_blocks_source(const GemmDescription& description, int block);
/** @} */
/** @brief Who fills the stages of a kernel of warpgroups, where it is not with boxes of matrices.
 */
struct GemmLoaderText {
  std::string header;  ///< "conv/conv2d_loader", in kernels/cuda/device
  std::string loader;  ///< a template of it, as gemm_loader.cuh and gemm_portable.cuh have them
  std::string params;  ///< what the kernel is given
};
/** @name The kernel `name` of a description with another loader, and the one that adds slices up
 *  @{ */
std::string to_loader_source(const GemmDescription& description, const std::string& name,
                             const GemmLoaderText& loader);
std::string to_loader_join_source(const GemmDescription& description, const std::string& name,
                                  const GemmLoaderText& loader);
/** @} */
/** @brief CUDA's word for an element type, of device/gemm_element.cuh. */
std::string device_type(Element element);

std::string to_string(MatrixLayout layout);
std::string to_string(Swizzle swizzle);
std::string to_string(SplitK split);
std::string to_string(GemmMode mode);
std::string to_string(const TileDescription& tile);
std::string to_string(const TensorDescription& tensor);

}  // namespace bs
