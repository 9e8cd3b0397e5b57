#pragma once
/** @file What happens to the sums of a product before they are stored: an expression, written in
 * C++, printed into the kernel.
 *
 *  @code
 *  using namespace bs::epilogue;
 *  const Value t = scalar("alpha") * (accumulator() + row("bias", Element::f16));
 *  const GemmEpilogue e = GemmEpilogue(relu(t)).store("t", t, Element::f16);
 *  @endcode
 */
#include <bs/kernels/gemm_element.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace bs {

namespace epilogue {

enum class Unary : uint8_t {
  negate,
  relu,
  leaky_relu,
  tanh,
  sigmoid,
  silu,
  hardswish,
  gelu,
  gelu_tanh,
  clamp,
  exp,
  abs
};
enum class Binary : uint8_t { add, subtract, multiply, divide, maximum, minimum };

struct Node;
/** @brief A value an element of the result has on its way; copies name the same value, which is
 *  computed once however often it is used. */
class Value {
 public:
  Value(double constant);  // NOLINT(google-explicit-constructor): numbers are written as they are
  explicit Value(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  const std::shared_ptr<const Node>& node() const { return node_; }

 private:
  std::shared_ptr<const Node> node_;
};

/** @brief The sum of products. */
Value accumulator();
/** @brief A number given with the arguments of a run. */
Value scalar(const std::string& name);
/** @brief An element of a matrix of D's shape. In `scalar * tensor` it is not read, and need not be
 *  given, where the scalar is 0. */
Value tensor(const std::string& name, Element element);
/** @brief An element of a vector of n numbers, the same for all rows: a bias of columns. */
Value row(const std::string& name, Element element);
/** @brief An element of a vector of m numbers, the same for all columns. */
Value column(const std::string& name, Element element);

Value operator+(const Value& x, const Value& y);
Value operator-(const Value& x, const Value& y);
Value operator*(const Value& x, const Value& y);
Value operator/(const Value& x, const Value& y);
Value operator-(const Value& x);
Value maximum(const Value& x, const Value& y);
Value minimum(const Value& x, const Value& y);

/** @name Activations; NaN stays NaN.
 *  @{ */
Value relu(const Value& x);
Value leaky_relu(const Value& x, double slope);
Value tanh(const Value& x);
Value sigmoid(const Value& x);
Value silu(const Value& x);       ///< x sigmoid(x)
Value hardswish(const Value& x);  ///< x min(max(x + 3, 0), 6) / 6
Value gelu(const Value& x);       ///< x (1 + erf(x / sqrt 2)) / 2
Value gelu_tanh(const Value& x);  ///< by tanh(sqrt(2/pi) (x + 0.044715 x^3))
Value clamp(const Value& x, double low, double high);
Value exp(const Value& x);
Value abs(const Value& x);
/** @} */

/** @brief One value of a flattened expression; earlier steps are named by their numbers. */
struct Step {
  enum class Kind : uint8_t { accumulator, constant, scalar, load, unary, binary };
  Kind kind = Kind::accumulator;
  uint8_t op = 0;                ///< a Unary or a Binary
  int x = -1, y = -1;            ///< steps
  int slot = -1;                 ///< number of the scalar or of the operand
  int guard = -1;                ///< scalar of value 0 that makes this load unneeded; -1: none
  double first = 0, second = 0;  ///< the constant; slope; bounds

  bool operator==(const Step&) const = default;
};

/** @brief A tensor that the epilogue reads or writes. */
struct Operand {
  enum class Kind : uint8_t { tensor, row, column };
  std::string name;
  Kind kind = Kind::tensor;
  Element element = Element::f32;
  int stored = -1;  ///< the step it takes; -1: it is read
};

/** @brief A sum or maximum over the rows or columns of a value. */
struct Reduction {
  std::string name;
  bool over_columns = true;  ///< one number a row; else one a column
  bool is_max = false;
  int step = -1;
};

}  // namespace epilogue

/** @brief All that is done with the sums: what is stored as D, what is stored besides, and what is
 *  reduced. A graph: what is used twice is computed once, also when it was written twice.
 *
 *  Everything is computed in f32 (f64 for sums of f64), and applied once to the finished sum,
 *  however the depth was split. */
class GemmEpilogue {
 public:
  /** @brief D = `d`; its element type is that of the description's D. */
  explicit GemmEpilogue(const epilogue::Value& d);
  /** @brief D = alpha * sum. */
  GemmEpilogue();
  /** @brief D = alpha * sum + beta * C, with scalars "alpha" and "beta" and the tensor "c". */
  static GemmEpilogue linear_combination(Element c);

  /** @brief Stores a value as the tensor `name` of D's shape besides.
   *  @throws Error when the name is taken, as for the reductions. */
  GemmEpilogue& store(const std::string& name, const epilogue::Value& value, Element element);
  /** @name Finished reductions, f32 (f64 for sums of f64)
   *  Over each row (m numbers) or over each column (n numbers); summed in a fixed order.
   *  @{ */
  GemmEpilogue& row_sum(const std::string& name, const epilogue::Value& value);
  GemmEpilogue& row_max(const std::string& name, const epilogue::Value& value);
  GemmEpilogue& column_sum(const std::string& name, const epilogue::Value& value);
  GemmEpilogue& column_max(const std::string& name, const epilogue::Value& value);
  /** @} */

  const std::vector<epilogue::Step>& steps() const { return steps_; }
  /** @brief What is read and stored; the first is D itself, named "d". */
  const std::vector<epilogue::Operand>& operands() const { return operands_; }
  const std::vector<std::string>& scalars() const { return scalars_; }
  const std::vector<epilogue::Reduction>& reductions() const { return reductions_; }
  /** @brief Tells D's element type, which the description knows. */
  void set_d(Element element) { operands_.front().element = element; }

  static constexpr size_t most_operands = 12, most_scalars = 12, most_reductions = 4;

 private:
  using Known = std::map<const epilogue::Node*, int>;  // steps of nodes met before
  int add(const epilogue::Value& value);
  int add(const epilogue::Node& node, Known& known);
  int add_inner(const epilogue::Node& node, Known& known);
  int add_leaf(const epilogue::Node& node);
  int add_step(const epilogue::Step& step);
  int operand(const epilogue::Node& node);
  void check_new(const std::string& name) const;
  GemmEpilogue& reduce(const std::string& name, const epilogue::Value& value, bool over_columns,
                       bool is_max);
  std::vector<epilogue::Step> steps_;
  std::vector<epilogue::Operand> operands_;
  std::vector<std::string> scalars_;
  std::vector<epilogue::Reduction> reductions_;
};

/** @brief The expression, one value a line: what keys and messages show. */
std::string to_string(const GemmEpilogue& epilogue);

/** @brief Bytes that tell one epilogue's text from another's; names do not matter. */
std::string key(const GemmEpilogue& epilogue);

/** @brief The numbers that an epilogue's scalars have, in their order.
 *  @throws Error in the name of `op` where one is missing, or one too many is given. */
std::vector<double> scalars_of(const char* op, const GemmEpilogue& epilogue,
                               const std::map<std::string, double>& given);
/** @brief Whether operand number `operand` is read: not if all that does is times a scalar of 0. */
bool reads(const GemmEpilogue& epilogue, size_t operand, const std::vector<double>& scalars);

/** @brief CUDA text of `struct Epilogue`, for kernels that include device/gemm_epilogue.cuh. It is
 *  applied to neighbours of a row of sums. It loads and computes, then hands a `store` what is
 *  stored, D first, and reductions their values. Where all results are floats of 16 bits or less,
 *  it takes the GPU's approximations of functions. Their error is far below that of the results.
 *  @param[in] accumulator element of the sums
 *  @param[in] transposed whether the kernel computes D's transpose, so that rows are its columns */
std::string to_source(const GemmEpilogue& epilogue, Element accumulator, bool transposed);

}  // namespace bs
