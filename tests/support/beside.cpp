#include <bs/tests/support/beside.h>

#include <bs/lib/check.h>
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>

#if BS_WITH_CUDA
#include <bs/lib/cuda/check.h>
#endif

#include <stop_token>
#include <thread>

namespace bs::test {

namespace {

/// A stream of a GPU; none in a build without CUDA.
class OwnedStream {
 public:
  explicit OwnedStream(Device device) : device_(device) {
#if BS_WITH_CUDA
    BS_CUDA_CHECK(cudaSetDevice(device.index()));
    BS_CUDA_CHECK(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking));
#else
    BS_THROW(Error, "test: no stream of {} without CUDA", device);
#endif
  }
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  ~OwnedStream() {
#if BS_WITH_CUDA
    cudaStreamDestroy(handle_);
#endif
  }
  Stream stream() const {
#if BS_WITH_CUDA
    return {device_, handle_};
#else
    return {};
#endif
  }

 private:
  Device device_;
#if BS_WITH_CUDA
  cudaStream_t handle_ = nullptr;
#endif
};

}  // namespace

struct OtherStream::State {
  explicit State(Device device) : owned(device), guard(owned.stream()) {}
  OwnedStream owned;
  StreamGuard guard;
};

OtherStream::OtherStream(Device device) : state_(std::make_unique<State>(device)) {}
OtherStream::~OtherStream() = default;

struct BusyStream::State {
  explicit State(Device device)
      : from(Tensor::empty({1 << 20}, u8, device)),
        to(Tensor::empty_like(from)),
        owned(device),
        thread([this](const std::stop_token& stop) { run(stop); }) {}

  void run(const std::stop_token& stop) const {
    const StreamGuard guard(owned.stream());
    while (!stop.stop_requested()) {
      for (int i = 0; i < 32; ++i) copy_bytes(from, to);
      owned.stream().synchronize();
    }
  }

  Tensor from, to;
  OwnedStream owned;
  std::jthread thread;  // the last: it ends before what it uses
};

BusyStream::BusyStream(Device device) : state_(std::make_unique<State>(device)) {}
BusyStream::~BusyStream() = default;

}  // namespace bs::test
