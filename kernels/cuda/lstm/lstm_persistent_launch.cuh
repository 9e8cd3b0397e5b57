#pragma once
/** @file What the hosts of the persistent LSTM kernels, forward and backward, have in common. Both
 *  kernels are `Cta<T, KS, CB, rows>::run` of a struct that names its `Params` and its memory. */
#include <bs/kernels/cuda/lstm/lstm_persistent.h>
#include <bs/lib/cuda/gave_up.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/lstm/lstm_exchange.cuh>

#include <algorithm>
#include <array>
#include <iterator>
#include <mutex>
#include <span>
#include <utility>

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

/// Tells the kernels of a file, once a device, where to say that they gave up.
static void set_report(const char* name, Device of) {
  constexpr size_t most = 64;
  static auto* const flags = new std::array<std::once_flag, most>;
  std::call_once((*flags)[static_cast<size_t>(of.index())], [&] {
    const RelaxedCapture relaxed;
    const GaveUp to = gave_up_report(name, of);
    static_assert(sizeof to == sizeof(device::bs_gave_up));
    BS_CUDA_CHECK(cudaMemcpyToSymbol(device::bs_gave_up, &to, sizeof to));
  });
}

/// Clusters of `cluster` CTAs, each with all shared memory of a multiprocessor, that run at once.
template <class Cta>
int most_clusters(const DeviceProperties& device, unsigned cluster) {
  auto* kernel = persistent_kernel<Cta>;
  cudaLaunchAttribute size{};
  size.id = cudaLaunchAttributeClusterDimension;
  size.val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(cluster);
  config.blockDim = dim3(PersistentShape::threads);
  config.dynamicSmemBytes = static_cast<size_t>(device.shared_memory_optin);
  config.attrs = &size;
  config.numAttrs = 1;
  int clusters = 0;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           device.shared_memory_optin) == cudaSuccess &&
      cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess)
    return clusters;
  cudaGetLastError();
  return device.multiprocessors / static_cast<int>(cluster);
}

/// What the kernels of this file find on a device.
template <class Cta>
LstmHost host_of(Device device, unsigned cluster) {
  constexpr size_t most = 64;
  static auto* const flags = new std::array<std::once_flag, most>;
  static auto* const hosts = new std::array<LstmHost, most>;
  const auto slot = static_cast<size_t>(device.index());
  std::call_once((*flags)[slot], [&] {
    const RelaxedCapture relaxed;
    const DeviceGuard guard(device);
    LstmHost& host = (*hosts)[slot];
    cudaFuncAttributes kernel{};
    BS_CUDA_CHECK(cudaFuncGetAttributes(&kernel, persistent_kernel<Cta>));
    // Code for another GPU, brought to this one by the driver, lacks what came after that one.
    host.capability = kernel.ptxVersion;
    int cooperative = 0;
    BS_CUDA_CHECK(
        cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device.index()));
    host.cooperative = cooperative != 0;
    if (cluster > 1 && host.capability >= 90)
      host.pairs = most_clusters<Cta>(device_properties(device), cluster);
  });
  return (*hosts)[slot];
}

/// All CTAs of a cooperative launch run at once, which waiting for each other presumes.
template <class Cta>
void launch_persistent(const Together<typename Cta::Params>& all, const LstmDivision& d,
                       size_t directions, unsigned cluster, Stream stream) {
  set_report(Cta::backward ? "lstm_backward" : "lstm", stream.device());
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
constexpr bool fits_shared_memory = Cta::shared_bytes <= most_shared_bytes;

/// Directions as their parameters, as many at once as the division says, by one kernel.
template <class Cta, class Params>
void launch_directions(std::span<const Params> directions, const LstmDivision& d, unsigned cluster,
                       Stream stream) {
  if constexpr (fits_shared_memory<Cta>) {
    for (size_t i = 0; i < directions.size(); i += static_cast<size_t>(d.directions)) {
      const size_t count = std::min(static_cast<size_t>(d.directions), directions.size() - i);
      Together<Params> all{{}, d.splits, d.groups};
      for (size_t k = 0; k < count; ++k) all.at[k] = directions[i + k];
      launch_persistent<Cta>(all, d, count, cluster, stream);
    }
  } else {
    BS_THROW(Error, "lstm: a persistent kernel for groups of {} sequences wants {} bytes of memory",
             d.rows, Cta::shared_bytes);
  }
}

/// The same by the kernel of `size`, if it is that of so many cells and blocks; whether it is.
template <template <class, int, int, int> class Cta, class T, LstmSize size, class Params>
bool launch_size(std::span<const Params> directions, int64_t cells, const LstmDivision& d,
                 unsigned cluster, Stream stream) {
  constexpr int slices = size.cells / 128;
  const auto launch = [&]<int blocks>() {
    using Narrow = Cta<T, slices, blocks, 16>;
    using Wide = Cta<T, slices, blocks, 32>;
    static_assert(Narrow::shared_bytes ==
                  lstm_shared_bytes(Narrow::backward, size.cells, blocks, 16));
    static_assert(Wide::shared_bytes == lstm_shared_bytes(Wide::backward, size.cells, blocks, 32));
    if (d.rows == 16) {
      launch_directions<Narrow>(directions, d, cluster, stream);
    } else {
      launch_directions<Wide>(directions, d, cluster, stream);
    }
    return true;
  };
  if (cells != size.cells) return false;
  if constexpr (size.one)
    if (d.blocks == 1) return launch.template operator()<1>();
  if constexpr (size.two)
    if (d.blocks == 2) return launch.template operator()<2>();
  return false;
}

/// The same by whichever kernel it is.
template <template <class, int, int, int> class Cta, class T, class Params>
void run_persistent(std::span<const Params> directions, int64_t cells, const LstmDivision& d,
                    unsigned cluster, Stream stream) {
  const bool launched = [&]<size_t... i>(std::index_sequence<i...>) {
    return (launch_size<Cta, T, lstm_sizes[i]>(directions, cells, d, cluster, stream) || ...);
  }
  (std::make_index_sequence<std::size(lstm_sizes)>());
  BS_CHECK(launched, "lstm: there is no persistent kernel for {} cells in {} blocks a CTA", cells,
           d.blocks);
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
