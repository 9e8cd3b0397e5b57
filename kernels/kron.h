#pragma once
/** @file Products with a Kronecker product of small factors, which is never formed.
 *
 *  y = x (W_N kron ... kron W_1) for x [..., P_N ... P_1] and factors W_i [P_i, Q_i]: the first
 *  factor acts on the fastest axis of a row. It takes sum(P_i) multiply-adds an element where the
 *  dense matrix takes prod(P_i). Neighbouring axes whose row part fits on the chip are one pass:
 * one read and one write, whatever their number. */
#include <bs/kernels/block_sparse_linear.h>

#include <vector>

namespace bs {

/** @brief Which axis of a row the first factor acts on. */
enum class KronOrder : uint8_t {
  first_fastest,  ///< x (W_N kron ... kron W_1)
  first_slowest   ///< x (W_1 kron ... kron W_N), the order of numpy.kron
};

struct KronOptions {
  KronOrder order = KronOrder::first_fastest;
  bool transposed = false;  ///< factors are [Q_i, P_i] and multiply as their transposes
  Activation activation = Activation::none;
  /** @brief Keep what lies between passes for backward, which else computes it once more. */
  bool keep_prefixes = false;
};

/** @brief What kron_matmul_kept computed. */
struct KronResult {
  Tensor y;
  Tensor before;  ///< the activation's argument, where backward starts from it (silu, both gelu)
  std::vector<Tensor> prefixes;  ///< between backward's passes, if kept
};

/** @brief y = f(x (W_N kron ... kron W_1) + bias).
 *  @param[in] x [..., K], floating, K the product of all P_i; any strides. With batched factors
 *    [groups, ..., K].
 *  @param[in] factors each [P_i, Q_i], or all [groups, P_i, Q_i]; x's dtype, any strides
 *  @param[in] bias [L], L the product of all Q_i, or undefined
 *  @return y [..., L], contiguous. Sums are kept in f32, in f64 for f64; what lies between factors
 *    is rounded to x's dtype on CUDA and between passes.
 *  @throws Error when shapes do not match, an extent of a factor is 0, or dtypes or devices differ.
 */
Tensor kron_matmul(const Tensor& x, const std::vector<Tensor>& factors, const Tensor& bias = {},
                   const KronOptions& options = {});
/** @brief The same with all that backward wants. */
KronResult kron_matmul_kept(const Tensor& x, const std::vector<Tensor>& factors,
                            const Tensor& bias = {}, const KronOptions& options = {});

/** @brief Gradients of kron_matmul; those not wanted are undefined. */
struct KronGrads {
  Tensor x;
  std::vector<Tensor> factors;
  Tensor bias;
};
/** @brief Which gradients of kron_matmul are wanted; no factors means all of them. */
struct KronWants {
  bool x = true;
  std::vector<bool> factors = {};
  bool bias = true;
};
/** @brief With e = dy f'(before): dx = e (W_N kron ... kron W_1)^T; dW_i is the sum over all but
 *  axis i of x with the factors before it applied, times e with those behind it. dbias sums e.
 *  @param[in] result of the forward with the same arguments */
KronGrads kron_matmul_backward(const Tensor& x, const std::vector<Tensor>& factors,
                               const KronResult& result, const Tensor& dy,
                               const KronOptions& options = {}, const KronWants& wants = {});

/** @brief The dense Kronecker product of two matrices: [m p, n q] from [m, n] and [p, q].
 *  @throws Error unless both are matrices of one dtype on one device. */
Tensor kron(const Tensor& a, const Tensor& b);
/** @name Gradients of y = kron(a, b)
 *  The sums of dy over the block of each element of a, times b, and over the blocks, times a.
 *  @{ */
Tensor kron_backward_a(const Shape& a_shape, const Tensor& b, const Tensor& dy);
Tensor kron_backward_b(const Tensor& a, const Shape& b_shape, const Tensor& dy);
/** @} */

/** @brief Extents of a factor: an axis of p elements becomes one of q. */
struct KronAxis {
  int64_t p = 1, q = 1;
};
/** @brief How the axes of a row, slowest first, are cut into passes, fastest first: the number of
 *  axes of each. `backward` needs more of the chip. */
struct KronPlan {
  std::vector<int> passes;
};

/** A pass takes x [groups, outer, prod P, inner] to y [groups, outer, prod Q, inner], contiguous.
 *  Factors, slowest first, are [groups, P, Q] of any strides, 0 for shared ones. `bias` is
 *  [prod Q, inner]. Undefined are: bias, before and dx where not wanted, any of dfactors, and x
 * where none of them is. Nothing is empty. */
BS_BACKENDS(void kron_plan(const std::vector<KronAxis>& axes, DType dtype, bool backward,
                           KronPlan& plan, Stream stream);
            void kron_pass(const Tensor& x, const std::vector<Tensor>& factors, const Tensor& bias,
                           Activation activation, const Tensor& before, const Tensor& y,
                           Stream stream);
            void kron_pass_backward(const Tensor& x, const std::vector<Tensor>& factors,
                                    const Tensor& dy, const Tensor& dx,
                                    const std::vector<Tensor>& dfactors, Stream stream))

}  // namespace bs
