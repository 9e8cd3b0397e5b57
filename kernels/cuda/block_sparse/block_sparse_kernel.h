#pragma once
/** @file What the kernels of the block-sparse products have in common, by whichever instruction
 * they multiply: what each is emitted from, its name and text, and the shape of its launches. */
#include <bs/kernels/block_sparse_matmul_problem.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/dtype.h>
#include <bs/lib/tensor.h>

#include <compare>
#include <string>

namespace bs::cuda {

/** @brief What every kernel is emitted from; each kind adds what it tells apart besides. */
struct ProductKernel {
  bool sampled = false;  ///< sdd, else dsd
  DType dtype = f16;
  int block = 0;
  bool a_along_k = false, b_along_k = false;  ///< neighbours along the depth are side by side
  bool c_by_columns = false;  ///< neighbours along the rows of C are; of sdd, blocks are turned
  std::string epilogue = {};  ///< its epilogue_key
  auto operator<=>(const ProductKernel&) const = default;  // NOLINT(modernize-use-nullptr): its bug
};
ProductKernel kernel_of(const DsdProblem& p, DType dtype);
/** @param[in] turned strips are of B's columns: the kernel computes the transpose */
ProductKernel kernel_of(const SddProblem& p, DType dtype, bool turned = false);

/** @brief How the CTAs of a kernel are launched. */
struct KernelLaunch {
  int threads = 0, shared_bytes = 0;
  int ctas = 1;     ///< that a multiprocessor is to hold at a time
  Shape sums = {};  ///< partial sums of a slot
  DType sums_dtype = f32;
  int counters = 2;        ///< zeros of the launch
  int arrivals = 0;        ///< and of each slot
  bool persistent = true;  ///< CTAs take one item after the other; else each has one
  bool turned = false;     ///< the kernel computes the transpose of the result
  int reduced_rows = 0, reduced_columns = 0;  ///< that it reduces by itself to one number
};

/** @brief What the text of a kernel has that others' has not, in the order in which it comes. */
struct KernelText {
  std::string header;  ///< in device/block_sparse
  std::string ahead;   ///< before the epilogue's text
  std::string types;   ///< behind that; has `type`, which tells `threads` and `shared_bytes`
  std::string type;
  std::string factors;    ///< in the kernel's name: what it multiplies
  std::string variant;    ///< at the end of the name
  std::string parameter;  ///< type and name
  std::string body;
};
jit::Source source_of(const ProductKernel& kernel, const KernelLaunch& launch,
                      const KernelText& text, const GemmEpilogue* epilogue);

}  // namespace bs::cuda
