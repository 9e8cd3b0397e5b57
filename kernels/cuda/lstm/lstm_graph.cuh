#pragma once
/** @file Steps of an LSTM captured in CUDA graphs. A graph names no tensor: it works on memory of
 *  its own, into which weights and states are brought, and finds the sequence through LstmArgs. So
 *  one capture serves all sequences of a shape, whatever their length and addresses. */
#include <bs/kernels/cuda/lstm/lstm_config.h>
#include <bs/lib/capturing.h>
#include <bs/lib/counted_memory.h>
#include <bs/lib/cuda/handles.h>
#include <bs/lib/cuda/pool.h>
#include <bs/kernels/cuda/lstm/lstm_enqueue.cuh>

#include <list>
#include <memory>
#include <span>
#include <vector>

namespace bs::cuda::recurrent {

/// The shape, and who may use the memory: a stream's work is in order.
struct GraphKey {
  void* stream;
  int device;
  LstmShape shape;
  int directions;
  bool backward;

  auto operator<=>(const GraphKey&) const = default;  // NOLINT(modernize-use-nullptr): its bug
};

/// Memory of the device's pool that graphs work on, counted with that of tensors. It goes back to
/// the pool behind the last of them.
class GraphMemory {
 public:
  GraphMemory(size_t bytes, Device device) : bytes_(bytes), device_(device) {
    const Stream stream = default_stream(device);
    data_ = allocate_counted(bytes, device_pool(device), stream);
    BS_CUDA_CHECK(cudaEventCreateWithFlags(&used_, cudaEventDisableTiming));
    BS_CUDA_CHECK(cudaEventRecord(used_, native(stream)));
  }
  ~GraphMemory() {
    const Stream stream = default_stream(device_);
    cudaStreamWaitEvent(native(stream), used_, 0);
    free_bytes(data_, bytes_, device_pool(device_), stream);
    cudaEventDestroy(used_);
  }
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  /// What comes on `stream` may use it.
  void wait(Stream stream) const { BS_CUDA_CHECK(cudaStreamWaitEvent(native(stream), used_, 0)); }
  /// What is on `stream` uses it.
  void use(Stream stream) const { BS_CUDA_CHECK(cudaEventRecord(used_, native(stream))); }

 private:
  size_t bytes_;
  Device device_;
  void* data_ = nullptr;
  cudaEvent_t used_ = nullptr;
};

/// A stream that nothing runs on: captures need one, and one more a branch.
class CaptureStream {
 public:
  CaptureStream() {
    const RelaxedCapture relaxed;
    BS_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    BS_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  ~CaptureStream() {
    cudaEventDestroy(event_);
    cudaStreamDestroy(stream_);
  }
  CaptureStream(const CaptureStream&) = delete;
  CaptureStream& operator=(const CaptureStream&) = delete;
  cudaStream_t get() const { return stream_; }
  /// What comes on `other` waits for all that is on this stream.
  void before(const CaptureStream& other) const {
    BS_CUDA_CHECK(cudaEventRecord(event_, stream_));
    BS_CUDA_CHECK(cudaStreamWaitEvent(other.stream_, event_, 0));
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

/// What cuBLAS takes for itself on this device by default; a graph must bring its own.
inline constexpr size_t blas_workspace = size_t{32} << 20;

template <class T>
class GraphPlan {
 public:
  explicit GraphPlan(const GraphKey& key) : key_(key) {}
  ~GraphPlan() {
    for (cudaGraphExec_t graph : graphs_)
      if (graph) cudaGraphExecDestroy(graph);
  }
  GraphPlan(const GraphPlan&) = delete;
  GraphPlan& operator=(const GraphPlan&) = delete;

  const GraphKey& key() const { return key_; }
  bool known = false;  ///< has run before, step by step

  /// A direction's memory: buffers of the steps, and copies of its weights.
  struct Branch {
    LstmBuffers<T> buffers;
    T *hh = nullptr, *hr = nullptr;
    std::byte* workspace = nullptr;
  };
  const std::vector<Branch>& branches() {
    if (!memory_) place();
    return branches_;
  }

  /// Runs `steps` of all branches on `stream`; everything they need is in place.
  void run(int64_t steps, Stream stream) {
    for (size_t i = 0; i < std::size(lstm_chunks); ++i)
      for (; steps >= lstm_chunks[i]; steps -= lstm_chunks[i]) {
        if (!graphs_[i]) graphs_[i] = capture(lstm_chunks[i]);
        BS_CUDA_CHECK(cudaGraphLaunch(graphs_[i], native(stream)));
      }
    if (steps > 0) {
      const LstmQueue queue = queue_on(stream);  // a capture had the handle
      for (const Branch& b : branches_) enqueue(b, static_cast<int>(steps), queue);
    }
  }
  /// After the last that is queued of a run.
  void done(Stream stream) const { memory_->use(stream); }

 private:
  void place() {
    const LstmShape& s = key_.shape;
    const auto lay = [&](std::byte* memory) {
      size_t at = 0;
      branches_.assign(static_cast<size_t>(key_.directions), {});
      for (Branch& b : branches_) {
        b.workspace = memory + at;
        at += blas_workspace;
        at += b.buffers.place(s, key_.backward, memory + at);
        const auto take = [&](T*& pointer, int64_t count) {
          pointer = reinterpret_cast<T*>(memory + at);
          at += (static_cast<size_t>(count) * sizeof(T) + 255) / 256 * 256;
        };
        take(b.hh, 4 * s.cells * s.width);
        take(b.hr, s.projects ? s.width * s.cells : 0);
      }
      return at;
    };
    memory_ = std::make_unique<GraphMemory>(lay(nullptr), Device::cuda(key_.device));
    lay(memory_->data());
    memory_->wait({Device::cuda(key_.device), key_.stream});
  }

  void enqueue(const Branch& b, int steps, const LstmQueue& q) const {
    if (key_.backward) {
      enqueue_backward<T>(key_.shape, b.buffers, b.hh, b.hr, 0, steps, q);
    } else {
      enqueue_forward<T>(key_.shape, b.buffers, b.hh, b.hr, 0, steps, q);
    }
    advance<<<1, 1, 0, q.stream>>>(b.buffers.args, key_.backward ? -steps : steps);
    BS_CUDA_CHECK_LAUNCH("lstm");
  }

  cudaGraphExec_t capture(int steps) const {
    std::vector<std::unique_ptr<CaptureStream>> streams;
    for (size_t i = 0; i < branches_.size(); ++i)
      streams.push_back(std::make_unique<CaptureStream>());
    const CaptureStream& origin = *streams.front();
    const Device device = Device::cuda(key_.device);
    const Capturing capturing(device);
    cudaGraph_t graph = nullptr;
    BS_CUDA_CHECK(cudaStreamBeginCapture(origin.get(), cudaStreamCaptureModeThreadLocal));
    try {
      for (size_t i = 1; i < branches_.size(); ++i) origin.before(*streams[i]);
      for (size_t i = 0; i < branches_.size(); ++i) {
        const Stream stream(device, streams[i]->get());
        const LstmQueue queue = queue_on(stream);
        BS_CUBLAS_CHECK(
            cublas().set_workspace(queue.handle, branches_[i].workspace, blas_workspace));
        enqueue(branches_[i], steps, queue);
      }
      for (size_t i = 1; i < branches_.size(); ++i) streams[i]->before(origin);
    } catch (...) {
      cudaStreamEndCapture(origin.get(), &graph);
      if (graph) cudaGraphDestroy(graph);
      throw;
    }
    BS_CUDA_CHECK(cudaStreamEndCapture(origin.get(), &graph));
    cudaGraphExec_t executable = nullptr;
    const RelaxedCapture relaxed;
    const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    BS_CUDA_CHECK(status);
    return executable;
  }

  GraphKey key_;
  std::unique_ptr<GraphMemory> memory_;
  std::vector<Branch> branches_;
  cudaGraphExec_t graphs_[std::size(lstm_chunks)] = {};
};

template <class T>
std::list<GraphPlan<T>>& graph_plans() {
  thread_local std::list<GraphPlan<T>> plans;
  return plans;
}

/// The calling thread's plans, the latest first; few are kept.
template <class T>
GraphPlan<T>& graph_plan(const GraphKey& key) {
  constexpr size_t most = 16;
  std::list<GraphPlan<T>>& plans = graph_plans<T>();
  for (auto at = plans.begin(); at != plans.end(); ++at)
    if (at->key() == key) {
      plans.splice(plans.begin(), plans, at);
      return plans.front();
    }
  if (plans.size() == most) plans.pop_back();
  return plans.emplace_front(key);
}

}  // namespace bs::cuda::recurrent
