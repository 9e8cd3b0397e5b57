#include <bs/kernels/cuda/gemm_reduce.h>
#include <bs/lib/cuda/launch.h>

namespace bs::cuda {

namespace {

template <class T>
__global__ void reduce_parts(const T* partial, T* out, int parts, int64_t length, bool is_max) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= length) return;
  const T* p = partial + int64_t{blockIdx.y} * parts * length + i;
  T total = p[0];
#pragma unroll 8
  for (int part = 1; part < parts; ++part) {
    const T next = p[part * length];
    total = is_max ? (total > next || total != total ? total : next) : total + next;
  }
  out[int64_t{blockIdx.y} * length + i] = total;
}

}  // namespace

void gemm_reduce(const Tensor& partial, const Tensor& out, bool is_max, Stream stream) {
  constexpr int threads = 128;
  const int64_t length = out.size(1);
  const dim3 grid(static_cast<unsigned>(ceil_div(length, threads)),
                  static_cast<unsigned>(out.size(0)));
  const auto parts = static_cast<int>(partial.size(1));
  const auto launch = [&]<class T>(Type<T>) {
    reduce_parts<<<grid, threads, 0, native(stream)>>>(pointer<T>(partial), pointer<T>(out), parts,
                                                       length, is_max);
  };
  if (out.dtype() == f64) {
    launch(Type<double>{});
  } else {
    launch(Type<float>{});
  }
  BS_CUDA_CHECK_LAUNCH("gemm_reduce");
}

}  // namespace bs::cuda
