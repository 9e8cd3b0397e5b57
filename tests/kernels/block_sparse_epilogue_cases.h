#pragma once
/** @file Products of random block-sparse operands, with what an epilogue's formula is put to. */
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/sparse_case.h>

#include <functional>
#include <string>
#include <vector>

namespace bs::test {

inline constexpr Transpose transposes[] = {{}, {.b = true}, {.a = true}, {.a = true, .b = true}};

/** @brief One product with all operands drawn at random. */
struct Case {
  const char* op;
  Mask mask;
  int64_t free;  ///< the extent that the layout does not tell
  Transpose t = {};
  Shape left = {}, right = {};  ///< leading axes
  bool whole = false;           ///< operands are -1, 0 and 1, so that any kernel's sums are exact

  bool is_sdd() const { return std::string(op) == "sdd"; }
};

struct Problem {
  Reference a, b;  ///< dense or values, as the op takes them
  Reference sums;  ///< dense result, or values
  std::function<Tensor(const ProductOptions&)> run = {};

  /** @brief Rows and columns of a matrix of the result, and the axes that count matrices. */
  int64_t m = 0, n = 0;
  Shape matrices = {};
};
Problem make(const Case& c, DType dtype);

/** @brief Values that are numbers of `dtype`. */
Reference drawn(const Shape& shape, uint64_t seed, DType dtype);

/** @brief -1, 0 and 1: sums of some thousand products of them are exact in f16, too. */
Reference whole_numbers(const Shape& shape, uint64_t seed);
/** @brief The same on the device under test. */
Tensor whole(const Shape& shape, uint64_t seed, DType dtype = f16);

inline Tensor turned(const Tensor& x, bool transposed) {
  return transposed ? x.transpose(0, 1) : x;
}

/** @brief A dtype, and whether TF32 may do for it. */
struct Mode {
  DType dtype;
  bool tf32 = false;
};
/** @brief Those of f32 that the device under test has kernels for. */
std::vector<Mode> modes_of_f32();

/** @brief Calls visit with layouts for which some GPUs have kernels of f32's own, in each mode and
 *  transposition. Take sizes in whole quads, and others. */
void each_large_f32(const std::function<void(const Mask&, Transpose)>& visit);

/** @brief Where an element of a result lies: the matrix it is of, its row and its column. */
struct Place {
  int64_t matrix, row, column;
};
/** @brief Of all elements of a result. */
std::vector<Place> places(const Case& c, const Reference& sums);

std::string describe(const Case& c, DType dtype);

}  // namespace bs::test
