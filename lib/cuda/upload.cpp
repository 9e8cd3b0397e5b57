#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/cuda/pool.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/cuda/upload.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace bs::cuda {

namespace {

/// Pinned memory that one copy after the other is made from.
struct Chunk {
  static constexpr size_t bytes = size_t{1} << 18;
  void* memory = nullptr;
  cudaEvent_t copied = nullptr;  ///< passed once the last of them was made
};

/// What copies to one device are made from. CUDA is never called with the lock held, since the
/// driver calls give().
class StagingPool {
 public:
  /// Lives as long as the program: the driver may be gone when statics are destroyed.
  static StagingPool& of(Device device) {
    static std::mutex mutex;
    static auto* const pools = new std::map<int, StagingPool>;
    const std::lock_guard lock(mutex);
    return (*pools)[device.index()];
  }

  /// One that no copy is under way from.
  Chunk take() {
    const RelaxedCapture relaxed;
    const Chunk oldest = pop();
    if (oldest.memory && passed(oldest.copied)) return oldest;
    std::vector<Chunk> fresh = pin();
    const std::lock_guard lock(mutex_);
    const Chunk taken = fresh.back();
    fresh.pop_back();
    if (oldest.memory) free_.push_front(oldest);
    free_.insert(free_.begin(), fresh.begin(), fresh.end());
    return taken;
  }

  /// Takes it back; copies from it come before its event.
  void give(const Chunk& chunk) {
    const std::lock_guard lock(mutex_);
    free_.push_back(chunk);
  }

 private:
  Chunk pop() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return {};
    const Chunk chunk = free_.front();
    free_.pop_front();
    return chunk;
  }
  static bool passed(cudaEvent_t event) {
    const cudaError_t status = cudaEventQuery(event);
    if (status == cudaSuccess) return true;
    cudaGetLastError();  // or it would be the next launch's
    if (status != cudaErrorNotReady) BS_CUDA_CHECK(status);
    return false;
  }
  /// Some at once: most of the time it takes, a millisecond for these, is for the call.
  static std::vector<Chunk> pin() {
    std::vector<Chunk> chunks(8);
    void* memory = nullptr;
    BS_CUDA_CHECK(cudaHostAlloc(&memory, chunks.size() * Chunk::bytes, cudaHostAllocDefault));
    for (Chunk& chunk : chunks) {
      chunk.memory = memory;
      memory = static_cast<std::byte*>(memory) + Chunk::bytes;
      BS_CUDA_CHECK(cudaEventCreateWithFlags(&chunk.copied, cudaEventDisableTiming));
    }
    return chunks;
  }

  std::mutex mutex_;
  std::deque<Chunk> free_;  ///< those given back last are last
};

cudaGraph_t captured_graph(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
#if CUDART_VERSION >= 13000
  BS_CUDA_CHECK(cudaStreamGetCaptureInfo(native(stream), &status, nullptr, &graph));
#else
  BS_CUDA_CHECK(cudaStreamGetCaptureInfo_v2(native(stream), &status, nullptr, &graph));
#endif
  return graph;
}

/// Leaves it to a graph, which gives it back when it and all that was made of it are gone.
void leave_to(cudaGraph_t graph, StagingPool& pool, const Chunk& chunk) {
  struct Loan {
    StagingPool& pool;
    Chunk chunk;
  };
  auto loan = std::make_unique<Loan>(Loan{pool, chunk});
  const auto end = [](void* ended) {
    const std::unique_ptr<Loan> own(static_cast<Loan*>(ended));
    own->pool.give(own->chunk);
  };
  cudaUserObject_t object = nullptr;
  BS_CUDA_CHECK(cudaUserObjectCreate(&object, loan.get(), end, 1, cudaUserObjectNoDestructorSync));
  static_cast<void>(loan.release());  // the object ends it
  BS_CUDA_CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
}

}  // namespace

// Where a call fails the chunk is not given back: a copy from it may be under way.
void copy_to_device(void* to, const void* from, size_t bytes, Stream stream) {
  if (bytes == 0) return;
  const DeviceGuard guard(stream.device());
  StagingPool& pool = StagingPool::of(stream.device());
  const cudaGraph_t graph = is_captured(stream) ? captured_graph(stream) : nullptr;
  for (size_t at = 0; at < bytes; at += Chunk::bytes) {
    const size_t part = std::min(Chunk::bytes, bytes - at);
    const Chunk chunk = pool.take();
    std::memcpy(chunk.memory, static_cast<const std::byte*>(from) + at, part);
    BS_CUDA_CHECK(cudaMemcpyAsync(static_cast<std::byte*>(to) + at, chunk.memory, part,
                                  cudaMemcpyHostToDevice, native(stream)));
    if (graph) {
      leave_to(graph, pool, chunk);
    } else {
      BS_CUDA_CHECK(cudaEventRecord(chunk.copied, native(stream)));
      pool.give(chunk);
    }
  }
}

Tensor upload_words(std::span<const std::byte> words, Device device) {
  Tensor to = Tensor::empty({static_cast<int64_t>(words.size() / sizeof(int32_t))}, i32, device);
  if (words.empty()) return to;
  if (device.is_cpu()) {
    std::memcpy(to.data(), words.data(), words.size());
  } else {
    copy_to_device(to.data(), words.data(), words.size(), current_stream(device));
  }
  return to;
}

struct Milestone::Event {
  Stream stream;
  cudaEvent_t event = nullptr;
  std::atomic<bool> passed = false;

  explicit Event(Stream on) : stream(on) {
    const DeviceGuard guard(on.device());
    BS_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    BS_CUDA_CHECK(cudaEventRecord(event, native(on)));
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    // Tables go with the milestone, back to the stream that made them: behind what others do. A
    // capture would take the waits into its graph; the pool frees nothing into one.
    if (!goes_into_graph(stream))
      for (const Stream& user : users_)
        if (!goes_into_graph(user)) follow(stream, user);
    if (cudaEventDestroy(event) != cudaSuccess) cudaGetLastError();  // at exit: no driver
  }
  /// Whether the stream used the tables last, so that note() has nothing to do.
  bool is_last(Stream user) const {
    return last_user_.load(std::memory_order_relaxed) == user.handle();
  }
  /// Another stream than the one that made them uses the tables.
  void note(Stream user) {
    if (is_last(user)) return;
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(users_, user) == users_.end()) users_.push_back(user);
    last_user_.store(user.handle(), std::memory_order_relaxed);
  }

 private:
  std::atomic<void*> last_user_{stream.handle()};  // the maker is none, and null is a stream
  std::mutex mutex_;
  std::vector<Stream> users_;
};

Milestone::Milestone(Stream stream) {
  if (stream.device().is_cpu()) return;
  BS_CHECK(!is_captured(stream),
           "layout: tables of a layout cannot be made while {} is captured: run once before",
           stream.device());
  event_ = std::make_shared<Event>(stream);
}

void Milestone::wait(Stream stream) const {
  if (!event_ || event_->stream == stream) return;
  if (event_->passed && event_->is_last(stream)) return;
  if (is_captured(stream)) return;
  event_->note(stream);
  if (event_->passed) return;
  // Another thread's capture of any of its streams would refuse the query, and be ended by it.
  const cudaError_t status = [&] {
    const RelaxedCapture relaxed;
    return cudaEventQuery(event_->event);
  }();
  if (status == cudaSuccess) {
    event_->passed = true;
    return;
  }
  if (status != cudaErrorNotReady) BS_CUDA_CHECK(status);
  cudaGetLastError();
  BS_CUDA_CHECK(cudaStreamWaitEvent(native(stream), event_->event));
}

}  // namespace bs::cuda
