#include <bs/kernels/cuda/order/sort_pairs.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/order/sort_key.cuh>

#include <cub/device/device_radix_sort.cuh>

#include <algorithm>

namespace bs::cuda {

namespace {

template <class K>
void sort_keys(const KeyedPositions& pairs, const KeyedPositions& sorted, int from, int to,
               Stream stream) {
  const auto positions = [](const KeyedPositions& p) {
    return static_cast<uint32_t*>(p.positions.data());
  };
  const auto run = [&](void* space, size_t& bytes) {
    BS_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(
        space, bytes, static_cast<const K*>(pairs.keys.data()), static_cast<K*>(sorted.keys.data()),
        positions(pairs), positions(sorted), static_cast<int>(pairs.count()), from, to,
        native(stream)));
  };
  size_t bytes = 0;
  run(nullptr, bytes);
  const Tensor space = Tensor::empty({static_cast<int64_t>(bytes)}, u8, pairs.keys.device());
  run(space.data(), bytes);
}

template <class T>
__global__ void short_key_kernel(const T* x, ShortKey<T>* keys, uint32_t* positions, int64_t count,
                                 bool descending) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < count; e += step) {
    const ShortKey<T> key = short_key_of(x[e]);
    keys[e] = descending ? static_cast<ShortKey<T>>(~key) : key;
    positions[e] = static_cast<uint32_t>(e);
  }
}

}  // namespace

KeyedPositions KeyedPositions::of(const Tensor& positions, int key_bytes) {
  return {Tensor::empty({positions.numel() * key_bytes}, u8, positions.device()), positions};
}

void sort_pairs(const KeyedPositions& pairs, const KeyedPositions& sorted, int from, int to,
                Stream stream) {
  switch (pairs.key_bytes()) {
    case 2:
      return sort_keys<uint16_t>(pairs, sorted, from, to, stream);
    case 4:
      return sort_keys<uint32_t>(pairs, sorted, from, to, stream);
    default:
      return sort_keys<uint64_t>(pairs, sorted, from, to, stream);
  }
}

KeyedPositions sort_all(const Tensor& x, const Tensor& order, bool descending, Stream stream) {
  constexpr int threads = 256;
  const int64_t count = x.numel();
  const Device device = x.device();
  const int key_bytes = std::max(2, static_cast<int>(size_of(x.dtype())));
  const auto pairs = KeyedPositions::of(Tensor::empty({count}, i32, device), key_bytes);
  auto sorted = KeyedPositions::of(order, key_bytes);
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    short_key_kernel<D><<<grid_size(count, threads, device), threads, 0, native(stream)>>>(
        pointer<T>(x), static_cast<ShortKey<D>*>(pairs.keys.data()),
        static_cast<uint32_t*>(pairs.positions.data()), count, descending);
  });
  BS_CUDA_CHECK_LAUNCH("sort");
  sort_pairs(pairs, sorted, 0, 8 * static_cast<int>(size_of(x.dtype())), stream);
  return sorted;
}

}  // namespace bs::cuda
