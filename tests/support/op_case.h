#pragma once
/** @file States a differentiable operation once, and tests it in every way there is. */
#include <bs/autograd/variable.h>
#include <bs/tests/support/reference.h>

#include <functional>
#include <string>
#include <vector>

namespace bs::test {

using Variables = std::vector<Variable>;
using References = std::vector<Reference>;

/** @brief One operation with sample inputs. */
struct OpCase {
  std::string name;
  std::vector<Shape> inputs;                              ///< floating inputs, drawn at random
  std::function<Variable(const Variables&)> op;           ///< the differentiable operation
  std::function<Reference(const References&)> reference;  ///< naive loops in double, written anew
  /** Range inputs are drawn from; set it to stay away from kinks and poles. */
  double low = -1, high = 1;
  /** Steps of the output dtype's precision allowed, relative to the largest reference value, or to
   *  `terms` where that is more. */
  double steps = 16;
  double terms = 0;  ///< the size of terms in the output's sums, where these may cancel
  bool differentiable = true;
  std::vector<DType> dtypes = {f64, f32, f16, bf16};
};

/** @brief Checks, on the device under test: the forward of every dtype against the reference (on
 *  inputs rounded to that dtype); f64 gradients against central differences of the reference; the
 *  gradients of the other dtypes against those of f64; two runs bit for bit; inputs unchanged. */
void check_op(const OpCase& op_case);

/** @brief Checks a function of each element, f in double, on shapes without, with few and with many
 *  elements drawn from [low, high]. */
void check_function(const char* name, Variable (*op)(const Variable&), double (*f)(double),
                    double low = -2, double high = 2);

/** @brief Checks shape and every element; `what` names the value in messages. NaN is far from all.
 */
void check_close(const std::string& what, const Reference& actual, const Reference& expected,
                 double tolerance);
/** @brief The largest magnitude; 0 of nothing. */
double largest(const Reference& r);

/** @brief Distance of 1 to the next value of `dtype`. */
double epsilon(DType dtype);

}  // namespace bs::test
