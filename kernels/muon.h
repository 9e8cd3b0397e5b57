#pragma once
/** @file Muon (Jordan et al., 2024): momentum made orthogonal, for matrices. */
#include <bs/kernels/parameter.h>

#include <cstdint>

namespace bs {

/** @brief One matrix and its state, of one shape, contiguous, updated in place. */
struct MuonParameter {
  Tensor value;     ///< floating, [rows, columns]
  Tensor gradient;  ///< of value's dtype, any strides; undefined: the parameter is left alone
  Tensor momentum;  ///< f32 (f64 for f64), zeros before the first step
  Tensor master;    ///< f32 copy of a 16-bit value, which the step is done on; else undefined

  static constexpr StateMembers<MuonParameter, 1> states = {&MuonParameter::momentum};
};

/** @brief How long a step is, beside its rate, for a matrix of r rows and c columns. */
enum class MuonLength : uint8_t {
  original,            ///< sqrt(max(1, r / c))
  match_rms_adamw,     ///< 0.2 sqrt(max(r, c)): rates and decays of AdamW can be kept
  spectral_unclamped,  ///< sqrt(r / c)
};

struct MuonOptions {
  double learning_rate = 1e-3;
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  std::array<double, 3> coefficients = {3.4445, -4.7750, 2.0315};
  double eps = 1e-7;
  int iterations = 5;
  MuonLength length = MuonLength::original;
  DType products = bf16;  ///< of the iterations; f64 parameters multiply in f64
};
/** @brief What the tensors of state are called. */
inline std::array<const char*, 1> state_names(const MuonOptions&) { return {"momentum"}; }

/** @brief Newton-Schulz iterations x = a x + (b A + c A^2) x with A = x x^T, from g / max(|g|,
 * eps): singular values come near 1, singular vectors stay. Of a matrix that is taller than wide
 * the transpose is taken.
 *  @param[in] g floating, [rows, columns]
 *  @return of g's shape and `dtype`, in which products are rounded
 *  @throws Error for another rank, and for iterations outside of [0, 100). */
Tensor newton_schulz(const Tensor& g, DType dtype, int iterations,
                     const std::array<double, 3>& coefficients, double eps);

/** @brief One step, with g the gradient after clipping:
 *  m += (1 - momentum) (g - m); u = nesterov ? g + momentum (m - g) : m;
 *  w = (1 - lr * decay) w - lr * length * newton_schulz(u).
 *  16-bit values are the rounded master; without a master they are stepped in f32 and rounded.
 *  @throws Error when a parameter is no matrix, shapes, dtypes, devices or layouts do not fit,
 *  or momentum is outside of [0, 1). Also when a rate, eps or decay is negative. */
void muon(std::span<const MuonParameter> parameters, const MuonOptions& options,
          const GradientClip& clip = {}, const Tensor& numbers = {});
/** @brief The same step, checked and with its memory, to be done later: new momenta and steps are
 *  computed, nothing has changed. */
PreparedStep prepared_muon(std::span<const MuonParameter> parameters, const MuonOptions& options,
                           const GradientClip& clip = {}, const Tensor& numbers = {});
/** @brief What depends on the rate. As a tensor of f64 on the parameters' device these are the last
 *  argument above, and a graph can go on from step to step. */
std::array<double, 2> muon_numbers(int64_t step, const MuonOptions& options);

}  // namespace bs
