#pragma once
/** @file What a gemm_operation's kernel reads beside its operands: their descriptions, and memory
 * for partial sums. */
#include <bs/kernels/gemm_operation.h>
#include <bs/kernels/cuda/device/gemm/gemm_params.cuh>

#include <cstddef>
#include <vector>

namespace bs::cuda {

/** @brief A product as the kernel sees it, in which rows of D lead: D itself or D's transpose. */
struct SeenGemm {
  GemmTensors p;
  TensorDescription a, b;
  bool a_rows, b_rows;  ///< whether the elements of a row are neighbours
  int rows, columns;    ///< of a tile

  SeenGemm(const GemmDescription& d, const GemmTensors& product);
  /** @brief Tiles, or clusters of them, of all batches. */
  int64_t tiles(const GemmDescription& d) const;
  int64_t steps(const GemmDescription& d) const;

 private:
  void no_depth();
};

/** @brief A [batch, rows, columns] operand of an epilogue that takes `vector` neighbours of a row
 * at a time. */
device::GemmOperand gemm_operand(const Tensor& t, Element element, int vector);

/** @brief The device memory of one launch: partial sums, counters, partial reductions, and where
 *  there are several products, tables of them. Taken from the pool, given back behind the launch.
 */
class GemmMemory {
 public:
  GemmMemory(const GemmDescription& d, const std::vector<SeenGemm>& products, int64_t tiles,
             int slices, int ctas, bool several);
  /** @brief Takes the memory and zeroes the counters on the stream. */
  void allocate(Stream stream);
  /** @brief Fills the operands' parts, where the kernel wants them split. */
  void split(Stream stream) const;
  /** @brief Fills in everything but scalars and counts; uploads the tables. */
  void describe(device::WarpgroupGemmParams& params, bool maps) const;
  /** @brief Partial results of reduction `r` of a product, [batch, parts, length]. */
  Tensor partial(size_t product, size_t r) const;

 private:
  struct Reduced {
    size_t at;
    Shape shape;
  };
  size_t add(size_t bytes);
  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(memory_.data()) + offset);
  }
  /// The parts of an operand [batch, side, depth], as a batch of twice as many.
  Tensor parts(const Tensor& x, size_t offset) const;
  template <class T>
  T* upload(size_t offset, const std::vector<T>& table) const;
  std::vector<device::GemmOperand> operands(size_t product) const;
  std::vector<device::GemmTile> schedule() const;

  const GemmDescription& d_;
  const std::vector<SeenGemm>& products_;
  bool several_, on_host_;
  int64_t tiles_;
  Stream stream_;
  Tensor memory_;
  size_t bytes_ = 0;
  size_t counters_ = 0, counter_bytes_ = 0, partials_ = 0;
  size_t parts_a_ = 0, parts_b_ = 0;
  size_t problems_ = 0, operand_table_ = 0, maps_ = 0, schedule_ = 0;
  std::vector<std::vector<Reduced>> reductions_;
};

}  // namespace bs::cuda
