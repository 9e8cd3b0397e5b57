#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/gemm.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/strided.h>

namespace bs::cpu {

void matmul(const Tensor& a, const Tensor& b, const Tensor& c, Stream) {
  const int lead = c.rank() - 2;
  const StridedLoop<3> batch(
      c.shape().slice(0, lead),
      {a.strides().slice(0, lead), b.strides().slice(0, lead), c.strides().slice(0, lead)});
  const auto stride = [](const Tensor& x, int axis) { return x.strides()[axis]; };
  visit_floating("matmul", c.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    // Axes that all three step through evenly are one batch; what remains is walked here.
    for (int64_t i = 0; i < batch.numel(); i += batch.inner())
      parallel_gemm<W, T, T>(batch.inner(), c.size(-2), c.size(-1), a.size(-1), W(1),
                             a.data<T>() + batch.offset(0, i), batch.inner_stride(0), stride(a, -2),
                             stride(a, -1), b.data<T>() + batch.offset(1, i), batch.inner_stride(1),
                             stride(b, -2), stride(b, -1), W(0), c.data<T>() + batch.offset(2, i),
                             batch.inner_stride(2), stride(c, -2), stride(c, -1));
  });
}

}  // namespace bs::cpu
