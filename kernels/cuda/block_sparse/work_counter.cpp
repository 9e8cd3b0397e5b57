#include <bs/kernels/cuda/block_sparse/work_counter.h>
#include <bs/lib/cuda/launch.h>

#include <atomic>
#include <map>
#include <mutex>

namespace bs::cuda {

namespace {

/// What far more launches than a GPU queues may ask for: words come round again after the kernel
/// that had them.
constexpr unsigned ring_size = 1U << 21;

struct Ring {
  int* words = nullptr;
  std::atomic<unsigned> taken = 0;

  explicit Ring(Device device) {
    const DeviceGuard guard(device);
    constexpr size_t bytes = size_t{ring_size} * sizeof(int);
    BS_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&words), bytes));
    BS_CUDA_CHECK(cudaMemset(words, 0, bytes));
    BS_CUDA_CHECK(cudaDeviceSynchronize());
  }
};

/// Lives as long as the program: the driver may be gone when statics are destroyed.
Ring& ring(Device device) {
  static std::mutex mutex;
  static auto* const rings = new std::map<int, Ring>;
  const std::lock_guard lock(mutex);
  return rings->try_emplace(device.index(), device).first->second;
}

}  // namespace

WorkCounter::WorkCounter(Stream stream, int words) {
  const auto count = static_cast<unsigned>(words);
  BS_CHECK(count <= most, "work counter: {} words are more than {}", words, most);
  if (is_captured(stream)) {
    owned_ = Tensor::empty({words}, i32, stream.device());
    words_ = owned_.data<int32_t>();
    fill_zero(words_, count * sizeof(int), stream);
    return;
  }
  Ring& r = ring(stream.device());
  unsigned at = r.taken;
  unsigned begin;
  do {  // what is left at the end of the ring may be too little: then on from its beginning
    begin = at % ring_size + count > ring_size ? at - at % ring_size + ring_size : at;
  } while (!r.taken.compare_exchange_weak(at, begin + count));
  words_ = r.words + begin % ring_size;
}

}  // namespace bs::cuda
