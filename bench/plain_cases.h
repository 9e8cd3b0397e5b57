#pragma once
/** @file Operations that move bytes, as problems to check and to time. */
#include <bs/lib/tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace bs::bench {

/** @brief Extents of all problems: matrices [rows, columns], seen as [4, rows / 4, columns / 64,
 * 64] where an operation has four axes. Cases that extents do not divide into are left out. */
struct PlainSize {
  int64_t rows = 16384;
  int64_t columns = 4096;
};

/** @brief One operation on operands of one layout. */
struct PlainCase {
  std::string what;    ///< "gelu_backward"
  std::string layout;  ///< "contiguous", "transposed", "row", ...
  double bytes = 0;    ///< read and written, each element once; whole sectors where strides skip
  double flops = 0;    ///< of products; 0 where only bytes count
  std::function<std::vector<Tensor>()> run;
};

/** @brief The problems of a set of plain_sets(), or of "sizes": a case or a few for each kind of
 *  kernel. The same size and dtype give the same operands on every device.
 *  @throws Error for a set that does not exist. */
std::vector<PlainCase> plain_cases(const std::string& set, const PlainSize& size, DType dtype,
                                   Device device);

/** @brief Names of all sets. */
const std::vector<std::string>& plain_sets();

}  // namespace bs::bench
