#include <bs/kernels/block_float.h>
#include <bs/kernels/copy.h>

namespace bs {

Tensor block_float(const Tensor& x, BlockFloat format) {
  if (!is_floating(x.dtype()))
    detail::unsupported_dtype("block_float", x.dtype(), "f64, f32, f16 or bf16");
  BS_CHECK(x.rank() > 0, "block_float: a tensor of rank 0 has no blocks");
  BS_CHECK(format.block >= 1 && format.bits >= 2 && format.bits <= 24,
           "block_float: blocks of {} numbers of {} bits", format.block, format.bits);
  const Tensor dense = contiguous(x);
  Tensor y = Tensor::empty_like(dense);
  if (y.numel() > 0) BS_DISPATCH(y.device(), block_float, dense, y, format);
  return y;
}

}  // namespace bs
