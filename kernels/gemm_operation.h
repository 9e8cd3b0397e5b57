#pragma once
/** @file Matrix products described in full: instruction, tiles, layouts, schedule and epilogue.
 * What PyCUTLASS' operations were; matmul chooses for you. docs/gemm_operation.md has examples. */
#include <bs/kernels/dispatch.h>
#include <bs/kernels/gemm_description.h>

#include <map>
#include <span>
#include <string>
#include <vector>

namespace bs {

/** @brief What one product is computed from and where its results go. All tensors are given; none
 *  is allocated. Results overlap neither each other nor what is read, but a matrix of the epilogue
 *  may be one of them: C and D may be one. */
struct GemmArguments {
  Tensor a;  ///< [m, k] or, batched, [batch, m, k]; a batch of one product's may be left out
  Tensor b;  ///< [k, n], likewise
  Tensor d;  ///< [m, n] or [batch, m, n]
  /** What the epilogue names.
   *  - Matrices: d's shape, any strides. Row vectors: [n] or [batch, n]; column vectors: [m] or
   *    [batch, m]. One without a batch serves all.
   *  - Reductions over rows: [m], over columns: [n], dense, with the batch in front. */
  std::map<std::string, Tensor> tensors = {};
  std::map<std::string, double> scalars = {};
  int slices = 1;  ///< parts of the depth, where the description has a SplitK
};

/** @brief A kernel for D = epilogue(A B), compiled for the GPU at hand on its first run. On the CPU
 * it is plain loops with the same roundings of what is multiplied. */
class GemmOperation {
 public:
  /** @throws Error that names what does not fit, for a description that no GPU can run. */
  explicit GemmOperation(GemmDescription description);

  /** @brief Queues one product, or one batch, on the current stream; does not wait for it.
   *  Tensors may be freed or reused by later work on the stream right away. The host takes some
   *  microseconds, and on the very first run 0.1 to 0.5 s of compilation, once a machine.
   *  @throws Error for shapes, dtypes, layouts, alignments, names or devices that do not fit, and
   *  for results that overlap what is read. */
  void run(const GemmArguments& arguments) const;
  /** @brief The same for several products, in mode array or grouped; scalars are those of the
   * first.
   */
  void run(std::span<const GemmArguments> products) const;

  const GemmDescription& description() const { return description_; }
  /** @brief The kernel as CUDA text. */
  const std::string& to_source() const { return source_; }
  /** @brief Names the kernel: its readable name, and a hash of its text. */
  const std::string& key() const { return key_; }

 private:
  GemmDescription description_;
  std::string source_, key_;
};

/** @brief One checked product as the twins take it. */
struct GemmTensors {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  Tensor a, b;                     ///< [batch, m, k], [batch, k, n]
  std::vector<Tensor> operands;    ///< [batch, m, n] each, repeated ones with stride 0; undefined:
                                   ///< not given, because its scalar is 0
  std::vector<Tensor> reductions;  ///< [batch, m] or [batch, n]
};
/** @brief What the front door hands to the twins: nothing is empty but the depth. */
struct GemmLaunch {
  const GemmOperation* operation = nullptr;
  std::vector<GemmTensors> products;
  std::vector<double> scalars;
  int slices = 1;
};

/** @brief Names a kernel: its readable name, and a hash of its text. */
std::string kernel_key(const std::string& name, const std::string& text);

BS_BACKENDS(void gemm_operation(const GemmLaunch& launch, Stream stream))

}  // namespace bs
