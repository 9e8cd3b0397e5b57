#include <bs/kernels/where.h>
#include <bs/kernels/cuda/elementwise.cuh>

namespace bs::cuda {

namespace {
struct Choose {
  template <class W>
  __device__ W operator()(bool condition, W a, W b) const {
    return condition ? a : b;
  }
};
}  // namespace

void where(const Tensor& condition, const Operand& a, const Operand& b, const Tensor& y,
           Stream stream) {
  visit_any(y.dtype(), [&]<class T>(Type<T>) {
    map<T, bool, T, T>("where", Choose{}, y, stream, condition, a, b);
  });
}

}  // namespace bs::cuda
