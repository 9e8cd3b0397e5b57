#pragma once
/** @file Descriptions of products by few words, integer matrices for them, and the list of commands
 *  that PyCUTLASS' examples consist of. */
#include <bs/kernels/gemm_operation.h>

#include <string>
#include <vector>

namespace bs::test {

/** @brief The instruction of the table with these properties. */
MathInstruction math(Element a, Element accumulator, OpClass op_class = OpClass::tensor_op,
                     MathOperation operation = MathOperation::multiply_add);

/** @brief A description with C (and D) of one element type: D = alpha A B + beta C.
 *  @param[in] layouts of A, B and D: "rcr" is row, column, row. Alignment is 16 bytes. */
GemmDescription describe(const MathInstruction& instruction, std::array<int, 3> threadblock,
                         int stages, std::array<int, 3> warps, const std::string& layouts,
                         Element d);

/** @brief One command: a description and what it is run on. */
struct GemmCase {
  std::string name;
  GemmDescription description;
  int64_t m = 512, n = 256, k = 128;
  double alpha = 1, beta = 0.5;
  int slices = 1;
};

/** @brief PyCUTLASS' examples with linear epilogues and one product. */
std::vector<GemmCase> example_cases();
/** @brief The portable kernel's other instructions and layouts. */
std::vector<GemmCase> portable_cases();
/** @brief Kernels of warpgroups. */
std::vector<GemmCase> warpgroup_cases();

/** @brief A matrix (or a batch of them) on the device under test, and its values. */
struct Matrix {
  Element element = Element::f32;
  Shape shape;
  std::vector<double> values;  ///< in row-major order
  Tensor tensor;               ///< the view that a product takes

  /** @brief Integers from `low` to `high`, or poison where they are to be computed. */
  static Matrix integers(Element element, const Shape& shape, MatrixLayout layout, uint64_t seed,
                         int low, int high);
  static Matrix poison(Element element, const Shape& shape, MatrixLayout layout);
  /** @brief The elements as they are now, in row-major order. */
  std::vector<double> read() const;
  double at(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * shape[-1] + j)]; }
};

/** @brief Sums of products, exact for integers. */
std::vector<double> product(const Matrix& a, const Matrix& b);

/** @brief A description that most tests vary: f16, small tiles, C and D of `d`. */
GemmDescription small_gemm(const std::string& layouts = "rcr", Element d = Element::f16);
/** @brief The value as it is stored. */
double rounded(Element e, double x);

/** @brief Integer operands of D = alpha A B + beta C, D poisoned; sums of them are exact. */
struct Linear {
  Matrix a, b, c, d;

  Linear(const GemmDescription& description, const Shape& batch, int64_t m, int64_t n, int64_t k,
         uint64_t seed);
  GemmArguments arguments(double alpha, double beta, int slices = 1) const;
  /** @brief Compares D bit for bit with sums made here. */
  void check(double alpha, double beta) const;
};

}  // namespace bs::test
