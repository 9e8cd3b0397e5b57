#include <bs/kernels/block_sparse_conv2d_gathered.h>

namespace bs::cpu {

void block_sparse_conv2d(const Conv2dProblem& d, const Tensor& x, const SparseTensor& weight,
                         const Tensor& bias, const Tensor& y, Stream) {
  GatheredConv2d{d}.forward(x, weight, bias, y);
}

void block_sparse_conv2d_backward_x(const Conv2dProblem& d, const Tensor& dy,
                                    const SparseTensor& weight, const Tensor& dx, Stream) {
  GatheredConv2d{d}.backward_x(dy, weight, dx);
}

void block_sparse_conv2d_backward_w(const Conv2dProblem& d, const Tensor& x, const Tensor& dy,
                                    const SparseTensor& dweight, Stream) {
  GatheredConv2d{d}.backward_w(x, dy, dweight);
}

}  // namespace bs::cpu
