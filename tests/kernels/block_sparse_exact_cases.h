#pragma once
/** @file Products of whole numbers at the sizes of fast kernels: what a dense product gives, bit
 * for bit. */
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/tests/support/sparse_case.h>

#include <random>

namespace bs::test {

/** @brief A layout of which one row has most columns, and others few. */
Mask unequal_rows(int rows, int cols, int block, std::mt19937& random);

/** @brief A layout of rows, and so columns, of `kinds` kinds, in turn: those of one kind have the
 *  same columns, and none that others have. */
Mask alike_rows(int heads, int rows, int cols, int kinds, int block);

/** @brief Checks sdd, dsd and dds of -1, 0 and 1 against dense products in the same `dtype`.
 *  @param[in] n columns of dsd's right operand, rows of dds' left one; @param[in] k depth of sdd */
void check_as_dense(const Mask& mask, int64_t n, int64_t k, Transpose t, DType dtype);

/** @brief The same of two of each of them for every head; and of the gradient of a right operand
 * that all heads share, which is summed over them. */
void check_heads_as_dense(const Mask& mask, int64_t n, int64_t k, Transpose t, DType dtype);

}  // namespace bs::test
