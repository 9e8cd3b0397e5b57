#pragma once
/** @file Gradients against central differences: the test of every differentiable function. */
#include <bs/autograd/variable.h>

#include <functional>
#include <string>
#include <vector>

namespace bs {

struct GradCheckOptions {
  double eps = 1e-6;  ///< step of the differences, to both sides
  /** An entry is right when |gradient - difference| <= atol + rtol * |difference|. */
  double atol = 1e-6;
  double rtol = 1e-5;
  int64_t full = 4096;  ///< entries of an input's Jacobian up to which all are compared
  int samples = 8;      ///< beyond that: random projections of each input's Jacobian
  uint64_t seed = 0;    ///< of the projections
};

/** @brief The entry of a Jacobian, or a projection of it, that was furthest off. */
struct GradCheckEntry {
  int input = -1;       ///< -1 when there was nothing to compare
  int64_t element = 0;  ///< of the input, in row-major order; of a projection: its number
  int64_t output = -1;  ///< element of the output; -1 for a projection
  double gradient = 0;
  double difference = 0;
  double error = 0;  ///< |gradient - difference|
  double allowed = 0;
};
std::string to_string(const GradCheckEntry& entry);

/** @brief Compares the gradients that the tape finds for `function` with central differences.
 *
 *  Small Jacobians are compared entry by entry. Of larger ones J the numbers u' J v / sqrt(m n) are
 *  compared for random signs u and v. Each takes two calls of the function.
 *  @param[in] function the same result for the same inputs; f64; smooth within eps of the inputs
 *  @param[in] inputs those that require a gradient are checked and must be f64; the others, absent
 *  ones included, are passed on. Nothing of them changes.
 *  @return the entry furthest off
 *  @throws Error showing that entry when it is off by more than allowed, or when the function's
 *  results differ from call to call. */
GradCheckEntry gradcheck(const std::function<Variable(const std::vector<Variable>&)>& function,
                         const std::vector<Variable>& inputs, const GradCheckOptions& options = {});

}  // namespace bs
