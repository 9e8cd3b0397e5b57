#pragma once
/** @file Gradients of reductions in one pass: what the front doors of reduce.h and vector_norm.h
 *  call. */
#include <bs/kernels/dispatch.h>
#include <bs/kernels/reduce.h>

namespace bs {

/** @brief What the gradient of a reduction reads and writes. Over one run of axes of a dense x it
 *  is seen as [outer, n, inner], of which n is reduced. */
struct ReducedOperands {
  Tensor x, dx;
  bool one_run = false;
  Shape kept;  ///< that of x, with extent 1 along what was reduced

  /** @throws Error naming `op` unless x is floating and the axes are its own. */
  ReducedOperands(const char* op, const Tensor& x, const Axes& axes);
  /** @brief A result or its gradient as twins take it: dense, of x's dtype and shape `kept`.
   *  @throws Error naming `op` unless it has as many elements and is on x's device. */
  Tensor result(const char* op, const Tensor& y) const;
};

/// x and dx are floating and lie alike. y and dy are dense and of their dtype, with extent 1 along
/// what was reduced. So are `mean` and `count`, in the dtype of sums: of one run of axes they are
/// undefined, and twins find them.
BS_BACKENDS(
    /// dx = scale dy (x - mean)
    void var_backward(const Tensor& x, const Tensor& dy, const Tensor& mean, const Tensor& dx,
                      double scale, Stream stream);
    /// dx = scale dy / y (x - mean), and 0 where y is 0
    void stddev_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& mean,
                         const Tensor& dx, double scale, Stream stream);
    /// dx = dy / count where x is y, which `count` elements are, else 0
    void extremum_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& count,
                           const Tensor& dx, Stream stream);
    /// dx = dy x / y, and 0 where y is 0
    void vector_norm_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& dx,
                              Stream stream);
    /// dx = dy exp(x - y), and 0 where x is -infinity
    void logsumexp_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& dx,
                            Stream stream))

}  // namespace bs
