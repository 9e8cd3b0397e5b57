#pragma once
// Host side of fused attention: tiles, shared memory and grids. Included by one source a dtype.
#include <bs/kernels/cuda/sparse_attention_config.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/sparse_attention_backward.cuh>

#include <type_traits>

namespace bs::cuda::launch {

/// Calls `f` with the tile of a pass as a type.
template <class T, AttentionPass pass, class F>
void with_attention_tile(const device::AttentionProblem& p, F&& f) {
  const auto with_whole = [&]<int Dim, bool Whole>(std::integral_constant<int, Dim>,
                                                   std::bool_constant<Whole>) {
    constexpr SparseAttentionTile tile = sparse_attention_tile(pass, sizeof(T), Dim, Whole);
    using Tile = device::AttentionTile<T, Dim, tile.cols, tile.ctas, Whole>;
    static_assert(Tile::rows == sparse_attention_rows(sizeof(T)));
    f(Tile{});
  };
  const auto with_dim = [&]<int Dim>(std::integral_constant<int, Dim> dim) {
    if constexpr (sizeof(T) == 2)
      if (sparse_attention_whole(sizeof(T), p.block)) return with_whole(dim, std::true_type{});
    with_whole(dim, std::false_type{});
  };
  switch (sparse_attention_dim(sizeof(T), p.head_dim)) {
    case 32:
      if constexpr (sizeof(T) == 2) return with_dim(std::integral_constant<int, 32>{});
      break;
    case 64:
      return with_dim(std::integral_constant<int, 64>{});
    case 96:
      if constexpr (sizeof(T) == 2) return with_dim(std::integral_constant<int, 96>{});
      break;
    default:
      return with_dim(std::integral_constant<int, 128>{});
  }
}

/// A CTA for every `Tile::rows` of `length` rows of `heads` heads.
template <class Tile, class Kernel, class Arguments>
void start_attention(const char* op, Kernel* kernel, int shared_bytes, int64_t length,
                     int64_t heads, const Arguments& arguments, cudaStream_t stream) {
  const int64_t ctas = ceil_div(length, Tile::rows) * heads;
  if (ctas == 0) return;
  BS_CHECK(ctas <= INT32_MAX, "{}: {} tiles are more than one launch can have", op, ctas);
  BS_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  kernel<<<static_cast<unsigned>(ctas), Tile::threads, shared_bytes, stream>>>(arguments);
  BS_CUDA_CHECK_LAUNCH(op);
}

template <class T>
void sparse_attention(const device::AttentionForward<T>& a, int64_t batch, cudaStream_t stream) {
  const device::AttentionProblem& p = a.problem;
  with_attention_tile<T, AttentionPass::forward>(p, [&]<class Tile>(Tile) {
    start_attention<Tile>("sparse_attention", device::sparse_attention_kernel<Tile>,
                          device::ForwardShared<Tile>::bytes, p.queries, batch * p.heads, a,
                          stream);
  });
}

template <class T>
void sparse_attention_backward(const device::AttentionBackward<T>& a, int64_t batch,
                               cudaStream_t stream) {
  constexpr const char* op = "sparse_attention_backward";
  constexpr int threads = 256;
  const device::AttentionProblem& p = a.problem;
  const int64_t rows = batch * p.heads * p.queries;
  if (rows > 0) {
    device::attention_rows_kernel<T>
        <<<static_cast<unsigned>(ceil_div(rows * 32, threads)), threads, 0, stream>>>(a, rows);
    BS_CUDA_CHECK_LAUNCH(op);
  }
  with_attention_tile<T, AttentionPass::query_gradient>(p, [&]<class Tile>(Tile) {
    start_attention<Tile>(op, device::query_gradient_kernel<Tile>, device::QueryShared<Tile>::bytes,
                          p.queries, batch * p.heads, a, stream);
  });
  with_attention_tile<T, AttentionPass::key_gradient>(p, [&]<class Tile>(Tile) {
    start_attention<Tile>(op, device::key_gradient_kernel<Tile>, device::KeyShared<Tile>::bytes,
                          p.keys, batch * (p.heads / p.group), a, stream);
  });
}

}  // namespace bs::cuda::launch
