#include <bs/tests/calls/call_recorder.h>
#include <cuda_runtime_api.h>

#include <mutex>
#include <set>

namespace bs::test {

namespace {

struct Calls {
  std::mutex mutex;
  bool recording = false;
  std::vector<std::string> waits;
  int foreign_frees = 0, frees = 0;
  std::set<void*> of_graphs;  ///< memory taken while its stream was captured, also before
};

Calls& calls() {
  static auto* const all = new Calls;  // the library frees until the process ends
  return *all;
}

void note_wait(const char* name) {
  Calls& c = calls();
  const std::lock_guard lock(c.mutex);
  if (c.recording) c.waits.emplace_back(name);
}

bool captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

bool pageable(const void* pointer) {
  cudaPointerAttributes attributes{};
  return cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess &&
         attributes.type == cudaMemoryTypeUnregistered;
}

}  // namespace

CallRecorder::CallRecorder() {
  Calls& c = calls();
  const std::lock_guard lock(c.mutex);
  c.recording = true;
  c.waits.clear();
  c.foreign_frees = c.frees = 0;
}

CallRecorder::~CallRecorder() {
  const std::lock_guard lock(calls().mutex);
  calls().recording = false;
}

std::vector<std::string> CallRecorder::waits() const {
  const std::lock_guard lock(calls().mutex);
  return calls().waits;
}

int CallRecorder::foreign_frees() const {
  const std::lock_guard lock(calls().mutex);
  return calls().foreign_frees;
}

int CallRecorder::frees() const {
  const std::lock_guard lock(calls().mutex);
  return calls().frees;
}

}  // namespace bs::test

// NOLINTBEGIN(bugprone-reserved-identifier): names that the linker gives
#define BS_NOTED(call, parameters, arguments) \
  extern "C" {                                \
  cudaError_t __real_##call parameters;       \
  cudaError_t __wrap_##call parameters;       \
  cudaError_t __wrap_##call parameters {      \
    bs::test::note_wait(#call);               \
    return __real_##call arguments;           \
  }                                           \
  }

BS_NOTED(cudaDeviceSynchronize, (), ())
BS_NOTED(cudaStreamSynchronize, (cudaStream_t stream), (stream))
BS_NOTED(cudaEventSynchronize, (cudaEvent_t event), (event))
BS_NOTED(cudaMalloc, (void** pointer, size_t bytes), (pointer, bytes))
BS_NOTED(cudaFree, (void* pointer), (pointer))
BS_NOTED(cudaHostAlloc, (void** pointer, size_t bytes, unsigned flags), (pointer, bytes, flags))
BS_NOTED(cudaMallocHost, (void** pointer, size_t bytes), (pointer, bytes))
BS_NOTED(cudaFreeHost, (void* pointer), (pointer))
BS_NOTED(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t bytes), (pool, bytes))
BS_NOTED(cudaMemcpy, (void* to, const void* from, size_t bytes, cudaMemcpyKind kind),
         (to, from, bytes, kind))
BS_NOTED(cudaMemset, (void* to, int value, size_t bytes), (to, value, bytes))
BS_NOTED(cudaMemcpyToSymbol,
         (const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind),
         (symbol, from, bytes, offset, kind))

extern "C" {
cudaError_t __real_cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t);
cudaError_t __wrap_cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t);
cudaError_t __real_cudaMallocFromPoolAsync(void**, size_t, cudaMemPool_t, cudaStream_t);
cudaError_t __wrap_cudaMallocFromPoolAsync(void**, size_t, cudaMemPool_t, cudaStream_t);
cudaError_t __real_cudaFreeAsync(void*, cudaStream_t);
cudaError_t __wrap_cudaFreeAsync(void*, cudaStream_t);

cudaError_t __wrap_cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream) {
  if (bs::test::pageable(to) || bs::test::pageable(from))
    bs::test::note_wait("cudaMemcpyAsync of pageable memory");
  return __real_cudaMemcpyAsync(to, from, bytes, kind, stream);
}

cudaError_t __wrap_cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool,
                                           cudaStream_t stream) {
  const cudaError_t status = __real_cudaMallocFromPoolAsync(pointer, bytes, pool, stream);
  if (status == cudaSuccess && bs::test::captured(stream)) {
    const std::lock_guard lock(bs::test::calls().mutex);
    bs::test::calls().of_graphs.insert(*pointer);
  }
  return status;
}

cudaError_t __wrap_cudaFreeAsync(void* pointer, cudaStream_t stream) {
  {
    bs::test::Calls& c = bs::test::calls();
    const bool into_graph = bs::test::captured(stream);
    const std::lock_guard lock(c.mutex);
    const bool own = c.of_graphs.erase(pointer) > 0;
    c.frees += c.recording ? 1 : 0;
    c.foreign_frees += c.recording && into_graph && !own ? 1 : 0;
  }
  return __real_cudaFreeAsync(pointer, stream);
}
}
// NOLINTEND(bugprone-reserved-identifier)
