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
  const auto matrices = [&]<class E>(Type<E>, const Tensor& x, int operand, int64_t i) {
    Matrices<E> all = matrix_of<E>(x);
    all.data += batch.offset(operand, i);
    all.batch = batch.inner_stride(operand);
    return all;
  };
  const GemmShape shape{batch.inner(), c.size(-2), c.size(-1), a.size(-1)};
  visit_floating("matmul", c.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    // Axes that all three step through evenly are one batch; what remains is walked here.
    for (int64_t i = 0; i < batch.numel(); i += batch.inner())
      gemm<W, T, T>(shape, matrices(Type<const T>{}, a, 0, i), matrices(Type<const T>{}, b, 1, i),
                    W(0), matrices(Type<T>{}, c, 2, i));
  });
}

}  // namespace bs::cpu
