#pragma once
/** @file Convolutions described in full, beside GemmOperation; conv2d chooses for you.
 *  docs/gemm_operation.md has an example. */
#include <bs/kernels/conv2d.h>
#include <bs/kernels/conv2d_description.h>
#include <bs/kernels/dispatch.h>

#include <map>
#include <string>
#include <vector>

namespace bs {

/** @brief What one convolution is computed from, and where its result goes. Images and filters have
 *  their logical shapes, and lie channels-last, dense. None is allocated or copied. */
struct Conv2dArguments {
  Tensor a, b, d;              ///< by kind: the table at Conv2dDescription
  Conv2dOptions options = {};  ///< of one group
  /** What the epilogue names.
   *  - Matrices: d's shape, channels-last.
   *  - Row vectors: one number a channel of d; for wgrad [R S C].
   *  - Column vectors: one a pixel of d; for wgrad one a filter. */
  std::map<std::string, Tensor> tensors = {};
  std::map<std::string, double> scalars = {};
  int slices = 1;  ///< parts of the depth, where the description has a SplitK
};

/** @brief A kernel for d = epilogue(sums of a convolution), compiled for the GPU at hand on its
 *  first run. On the CPU it is plain loops with the same roundings of what is multiplied. */
class Conv2dOperation {
 public:
  /** @throws Error that names what does not fit, for a description that no GPU can run. */
  explicit Conv2dOperation(Conv2dDescription description);

  /** @brief Queues one convolution on the current stream; does not wait for it. As
   *  GemmOperation::run.
   *  @throws Error for shapes, dtypes, strides, alignments, channels that the iterator does not
   *  take, names or devices that do not fit. */
  void run(const Conv2dArguments& arguments) const;

  const Conv2dDescription& description() const { return description_; }
  /** @brief The kernel as CUDA text. */
  const std::string& to_source() const { return source_; }
  /** @brief Names the kernel: its readable name, and a hash of its text. */
  const std::string& key() const { return key_; }

 private:
  Conv2dDescription description_;
  std::string source_, key_;
};

/** @brief What the front door hands to the twins: nothing is empty. */
struct Conv2dLaunch {
  const Conv2dOperation* operation = nullptr;
  Conv2dProblem problem;
  Tensor a, b, d;                ///< [n][h][w][c] in their shapes: dense
  std::vector<Tensor> operands;  ///< of the epilogue, d first, as matrices [1, rows, columns];
                                 ///< undefined: not given, because its scalar is 0
  std::vector<double> scalars;
  int slices = 1;
};

BS_BACKENDS(void conv2d_operation(const Conv2dLaunch& launch, Stream stream))

}  // namespace bs
