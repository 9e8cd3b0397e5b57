// Streams, events and graphs.
#include <bs/tests/emulator/runtime/state.h>

#include <chrono>
#include <utility>

namespace bs::emulator {

namespace {

struct EventState {
  std::chrono::steady_clock::time_point recorded;
  Graph* captured_to = nullptr;
  StreamState* capture_of = nullptr;
};

EventState& state_of(cudaEvent_t event) { return *reinterpret_cast<EventState*>(event); }

template <class Handle, class Object>
Handle as_handle(Object* object) {
  return reinterpret_cast<Handle>(object);
}

}  // namespace

std::recursive_mutex& device_lock() {
  static auto* const lock = new std::recursive_mutex;
  return *lock;
}

StreamState& state_of(cudaStream_t stream) {
  static auto* const standard = new StreamState;
  const bool is_standard =
      stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
  return is_standard ? *standard : *reinterpret_cast<StreamState*>(stream);
}

bool is_captured(StreamState& stream) {
  if (stream.captured_to != nullptr && stream.capture_of->captured_to != stream.captured_to)
    stream.captured_to = nullptr;  // the capture that it had joined is over
  return stream.captured_to != nullptr;
}

void submit(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard guard(device_lock());
  StreamState& state = state_of(stream);
  if (is_captured(state)) {
    state.captured_to->work.push_back(std::move(work));
  } else {
    work();
  }
}

}  // namespace bs::emulator

using namespace bs::emulator;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = as_handle<cudaStream_t>(new StreamState);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete &state_of(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const bool captured = is_captured(state_of(stream));
  return noted(captured ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  submit(stream, [=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = as_handle<cudaEvent_t>(new EventState);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &state_of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  StreamState& state = state_of(stream);
  is_captured(state);
  state_of(event) = {std::chrono::steady_clock::now(), state.captured_to, state.capture_of};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::chrono::duration<float, std::milli> passed =
      state_of(end).recorded - state_of(begin).recorded;
  *milliseconds = passed.count();
  return cudaSuccess;
}
/// A stream that waits for one that is captured is captured with it.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const EventState& from = state_of(event);
  StreamState& state = state_of(stream);
  const bool goes_on =
      from.captured_to != nullptr && from.capture_of->captured_to == from.captured_to;
  if (goes_on && !is_captured(state)) {
    state.captured_to = from.captured_to;
    state.capture_of = from.capture_of;
  }
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  StreamState& state = state_of(stream);
  state.captured_to = new Graph;
  state.capture_of = &state;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = as_handle<cudaGraph_t>(std::exchange(state_of(stream).captured_to, nullptr));
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long*, cudaGraph_t* graph,
                                     const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
  StreamState& state = state_of(stream);
  *status = is_captured(state) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (graph != nullptr) *graph = as_handle<cudaGraph_t>(state.captured_to);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = as_handle<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const auto& work : reinterpret_cast<Graph*>(executable)->work) submit(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete reinterpret_cast<Graph*>(executable);
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  *count = reinterpret_cast<Graph*>(graph)->work.size();
  return cudaSuccess;
}
/// What a graph holds on to is kept for good: no graph lives longer than a test.
cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* pointer, cudaHostFn_t, unsigned,
                                 unsigned) {
  *object = as_handle<cudaUserObject_t>(static_cast<char*>(pointer));
  return cudaSuccess;
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t, cudaUserObject_t, unsigned, unsigned) {
  return cudaSuccess;
}

}  // extern "C"
