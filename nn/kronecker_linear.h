#pragma once
/** @file The fully connected layer whose weight is a Kronecker product of small factors. */
#include <bs/autograd/kron.h>
#include <bs/nn/module.h>

#include <string>
#include <vector>

namespace bs::nn {

/** @brief Extents of one factor. */
struct KroneckerExtents {
  int64_t in = 1, out = 1;
  bool operator==(const KroneckerExtents&) const = default;
};

/** @brief Factors for a layer from `in` to `out` features: `count` of them, as equal as the
 * divisors of both widths allow. Large parts of one width meet large parts of the other. */
std::vector<KroneckerExtents> kronecker_factors(int64_t in, int64_t out, int count = 2);

struct KroneckerLinearOptions {
  int64_t in = 0;
  int64_t out = 0;
  int count = 2;                               ///< of factors, chosen by kronecker_factors
  std::vector<KroneckerExtents> factors = {};  ///< or these, the first on the fastest axis
  bool bias = true;
  Activation activation = Activation::none;
  /** Keeps what lies between the passes of a forward, some activations, for its backward, which
   *  else computes it once more. It matters to rows of several passes only. */
  bool keep_prefixes = false;
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief y = f(x (W_N kron ... kron W_1) + b) for x [..., in]; see kernels/kron.h.
 *
 *  Starts with normal factors of variance 1 / (3 in)^(1 / N). Their products, the entries of the
 *  weight, have the variance 1 / (3 in) of Linear's. A bias starts in +-1 / sqrt(in). */
class KroneckerLinear : public Module {
 public:
  using Options = KroneckerLinearOptions;
  /** @throws Error unless the extents of the factors multiply to the widths. */
  explicit KroneckerLinear(const Options& options);
  Variable forward(const Variable& x) const;

  /** @brief Draws factors whose products have this standard deviation. */
  void init_normal(double deviation) const;
  /** @brief Sets the factors to those whose product comes close to a dense weight [out, in], as
   *  Linear has it. It uses alternating least squares (Van Loan and Pitsianis, 1993). Each factor
   * in turn is the best one for the others. With two factors the result is the best there is.
   *  @return |weight - product| / |weight|, by Frobenius' norm */
  double fit(const Tensor& weight, int sweeps = 30) const;
  /** @brief The dense weight [out, in]. */
  Tensor weight() const;
  const std::vector<KroneckerExtents>& extents() const { return extents_; }

  std::vector<Variable> factors;  ///< [in_i, out_i], the first on the fastest axis
  Variable bias;                  ///< [out], or undefined

 private:
  std::vector<KroneckerExtents> extents_;
  Activation activation_;
  bool keep_prefixes_;
};

/** @brief As of any module, and what a dense layer of these widths has. */
std::string to_string(const KroneckerLinear& layer);

}  // namespace bs::nn
