#include <bs/kernels/cuda/sparse_attention_kernels.cuh>

namespace bs::cuda::launch {

template void sparse_attention(const device::AttentionForward<__nv_bfloat16>&, int64_t,
                               cudaStream_t);
template void sparse_attention_backward(const device::AttentionBackward<__nv_bfloat16>&, int64_t,
                                        cudaStream_t);

}  // namespace bs::cuda::launch
