#include <bs/kernels/block_sparse_matmul.h>
#include <bs/lib/cuda/launch.h>

namespace bs::cuda {

namespace launch {
// Instantiated in block_sparse_matmul_<dtype>.cu.
template <class T>
void dsd(const T* values, const T* b, T* c, const DsdProblem& p, cudaStream_t stream);
template <class T>
void sdd(const T* a, const T* b, T* values, const SddProblem& p, cudaStream_t stream);
}  // namespace launch

void dsd(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p,
         Stream stream) {
  visit_floating("dsd", b.dtype(), [&]<class T>(Type<T>) {
    launch::dsd<device_type<T>>(pointer<T>(values), pointer<T>(b), pointer<T>(c), p,
                                native(stream));
  });
}

void sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
         Stream stream) {
  visit_floating("sdd", a.dtype(), [&]<class T>(Type<T>) {
    launch::sdd<device_type<T>>(pointer<T>(a), pointer<T>(b), pointer<T>(values), p,
                                native(stream));
  });
}

}  // namespace bs::cuda
