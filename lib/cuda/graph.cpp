#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/cuda/upload.h>
#include <bs/lib/graph.h>
#include <bs/lib/recording.h>

namespace bs::cuda {

/// What graphs that share memory have in common: it, and the order of their replays.
struct Graph::Memory {
  explicit Memory(Device on) : device(on) {
    const DeviceGuard guard(device);
    const RelaxedCapture relaxed;
    BS_CUDA_CHECK(cudaEventCreateWithFlags(&last, cudaEventDisableTiming));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (cudaEventDestroy(last) != cudaSuccess) cudaGetLastError();  // at exit: no driver
  }

  /// The one that recordings work on, or a new one of `stream` where there is none.
  std::shared_ptr<Arena> arena_on(Stream stream) {
    std::shared_ptr<Arena> found = arena.lock();
    if (!found) arena = found = Arena::make(memory_resource(device), stream);
    return found;
  }
  /// What comes on `stream` is behind the last replay.
  void follow(Stream stream) const {
    if (stream != last_stream) BS_CUDA_CHECK(cudaStreamWaitEvent(native(stream), last, 0));
  }
  /// What comes before on `stream` is before the next replay.
  void mark(Stream stream) {
    BS_CUDA_CHECK(cudaEventRecord(last, native(stream)));
    last_stream = stream;
  }
  /// The same, and whatever was to be before it already.
  void include(Stream stream) {
    follow(stream);
    mark(stream);
  }
  void wait() const {
    if (cudaEventSynchronize(last) != cudaSuccess) cudaGetLastError();
  }

  Device device;
  std::weak_ptr<Arena> arena;  ///< of the recordings
  cudaEvent_t last = nullptr;  ///< after the last replay
  Stream last_stream;
};

struct Graph::State {
  State(Device on, std::shared_ptr<Memory> works_on) : device(on), memory(std::move(works_on)) {
    const DeviceGuard guard(device);
    const RelaxedCapture relaxed;
    BS_CUDA_CHECK(cudaStreamCreateWithFlags(&recorder, cudaStreamNonBlocking));
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    clear();
    if (cudaStreamDestroy(recorder) != cudaSuccess) cudaGetLastError();
  }

  void clear() {
    const RelaxedCapture relaxed;
    if (executable) {
      memory->wait();
      if (cudaGraphExecDestroy(executable) != cudaSuccess) cudaGetLastError();
    }
    executable = nullptr;
    recording.reset();
    nodes = 0;
  }

  Device device;
  std::shared_ptr<Memory> memory;
  cudaStream_t recorder = nullptr;  ///< nothing ever runs on it
  cudaGraphExec_t executable = nullptr;
  std::unique_ptr<Recording> recording;
  size_t nodes = 0;
};

namespace {

/// A graph until it is made executable.
struct Template {
  cudaGraph_t graph = nullptr;
  Template() = default;
  Template(const Template&) = delete;
  Template& operator=(const Template&) = delete;
  ~Template() {
    if (graph) cudaGraphDestroy(graph);
  }
};

/// Ends the capture also where an operation throws; the first error is the one that counts.
void record(cudaStream_t recorder, Template& to, const std::function<void()>& work) {
  BS_CUDA_CHECK(cudaStreamBeginCapture(recorder, cudaStreamCaptureModeRelaxed));
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(recorder, &to.graph);
    cudaGetLastError();
    throw;
  }
  BS_CUDA_CHECK(cudaStreamEndCapture(recorder, &to.graph));
}

}  // namespace

Graph::Graph(Device device) {
  BS_CHECK(device.is_cuda(), "graph: of {}, which has none", device);
  check_usable("graph", device);
  state_ = std::make_unique<State>(device, std::make_shared<Memory>(device));
}

Graph::Graph(Device device, const Graph& beside) {
  BS_CHECK(device == beside.state_->device, "graph: of {}, on memory of one of {}", device,
           beside.state_->device);
  state_ = std::make_unique<State>(device, beside.state_->memory);
}

Graph::~Graph() = default;

void Graph::capture(const std::function<void()>& work) {
  State& s = *state_;
  const DeviceGuard guard(s.device);
  const Stream stream = current_stream(s.device);
  BS_CHECK(!is_captured(stream), "graph: the current stream of {} is captured already", s.device);
  s.clear();
  memory_resource(s.device).trim();
  const std::shared_ptr<Arena> arena = s.memory->arena_on(stream);
  auto recording = std::make_unique<Recording>(s.device, stream, arena);
  Template made;
  {
    const StreamGuard on({s.device, s.recorder});
    const Recording::Scope scope(*recording);
    record(s.recorder, made, work);
  }
  BS_CUDA_CHECK(cudaGraphGetNodes(made.graph, nullptr, &s.nodes));
  const RelaxedCapture relaxed;
  BS_CUDA_CHECK(cudaGraphInstantiate(&s.executable, made.graph, 0));
  s.recording = std::move(recording);
  s.memory->include(arena->stream());  // new chunks
  s.memory->include(stream);
}

void Graph::replay() {
  State& s = *state_;
  BS_CHECK(s.executable, "graph: replayed before anything was recorded");
  const DeviceGuard guard(s.device);
  const Stream stream = current_stream(s.device);
  BS_CHECK(!is_captured(stream), "graph: replayed while {} is captured", s.device);
  s.memory->follow(stream);
  const std::span<const uint64_t> words = s.recording->refresh();
  copy_to_device(s.recording->words(), words.data(), words.size_bytes(), stream);
  BS_CUDA_CHECK(cudaGraphLaunch(s.executable, native(stream)));
  s.memory->mark(stream);
}

bool Graph::captured() const { return state_->executable != nullptr; }
int64_t Graph::nodes() const { return static_cast<int64_t>(state_->nodes); }
int64_t Graph::bytes() const { return state_->recording ? state_->recording->bytes() : 0; }

}  // namespace bs::cuda
