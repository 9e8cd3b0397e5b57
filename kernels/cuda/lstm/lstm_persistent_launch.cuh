#pragma once
/** @file What the hosts of the persistent LSTM kernels, forward and backward, have in common. Both
 *  kernels are `Cta<T, KS, CB, rows>::run` of a struct that names its `Params` and its memory. */
#include <bs/kernels/cuda/lstm/lstm_persistent.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/lstm/lstm_exchange.cuh>

namespace bs::cuda::recurrent {

using device::PersistentShape;

/// Directions and parts of their groups side by side, by blockIdx.y.
template <class Params>
struct Together {
  Params at[2];
  int splits, groups;
};

template <class Cta>
__global__ void __launch_bounds__(PersistentShape::threads, 1)
    persistent_kernel(const __grid_constant__ Together<typename Cta::Params> all) {
  const int direction = static_cast<int>(blockIdx.y) / all.splits;
  const int split = static_cast<int>(blockIdx.y) % all.splits;
  Cta::run(all.at[direction], split * all.groups, all.groups);
}

/// All CTAs of a cooperative launch run at once, which waiting for each other presumes.
template <class Cta>
void launch_persistent(const Together<typename Cta::Params>& all, const LstmDivision& d,
                       size_t directions, unsigned cluster, Stream stream) {
  auto* kernel = persistent_kernel<Cta>;
  BS_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Cta::shared_bytes));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeCooperative;
  attributes[0].val.cooperative = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(d.ctas),
                        static_cast<unsigned>(directions) * static_cast<unsigned>(d.splits));
  config.blockDim = dim3(PersistentShape::threads);
  config.dynamicSmemBytes = Cta::shared_bytes;
  config.stream = native(stream);
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  BS_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, all));
}

template <class Cta>
constexpr bool fits_shared_memory = Cta::shared_bytes <= 227 * 1024;

/// Directions as their parameters, as many at once as the division says.
template <template <class, int, int, int> class Cta, class T, class Params>
void run_persistent(std::span<const Params> directions, int64_t cells, const LstmDivision& d,
                    unsigned cluster, Stream stream) {
  const auto run = [&]<int KS, int CB>() {
    for (size_t i = 0; i < directions.size(); i += static_cast<size_t>(d.directions)) {
      const size_t count = std::min(static_cast<size_t>(d.directions), directions.size() - i);
      Together<Params> all{{}, d.splits, d.groups};
      for (size_t k = 0; k < count; ++k) all.at[k] = directions[i + k];
      if (d.rows == 16) {
        launch_persistent<Cta<T, KS, CB, 16>>(all, d, count, cluster, stream);
      } else if constexpr (fits_shared_memory<Cta<T, KS, CB, 32>>) {
        launch_persistent<Cta<T, KS, CB, 32>>(all, d, count, cluster, stream);
      }
    }
  };
  const bool wide = d.blocks == 2;
  switch (cells) {
    case 128:
      return run.template operator()<1, 1>();
    case 256:
      return run.template operator()<2, 1>();
    case 512:
      return run.template operator()<4, 1>();
    case 768:
      return wide ? run.template operator()<6, 2>() : run.template operator()<6, 1>();
    case 1024:
      return wide ? run.template operator()<8, 2>() : run.template operator()<8, 1>();
    case 1536:
      return run.template operator()<12, 2>();
    default:
      return run.template operator()<16, 2>();
  }
}

/// Makes words that others will wait for `unwritten`.
inline void clear_words(const Tensor& words, Stream stream) {
  BS_CUDA_CHECK(cudaMemsetAsync(words.data(), 0xff, words.bytes(), native(stream)));
}

inline const long long* lengths_of(const LSTMSteps& s) {
  static_assert(sizeof(long long) == sizeof(int64_t));
  return s.lengths.defined() ? static_cast<const long long*>(s.lengths.data()) : nullptr;
}

}  // namespace bs::cuda::recurrent
