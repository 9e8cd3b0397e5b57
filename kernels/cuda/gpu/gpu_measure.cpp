#include <bs/kernels/cuda/gpu/gpu_measure.h>
#include <bs/lib/check.h>
#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/handles.h>
#include <bs/lib/cuda/jit_cache.h>
#include <bs/lib/cuda/runtime.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <limits>

namespace bs::cuda {

namespace {

constexpr int threads = 512, ctas_per_multiprocessor = 2;  // of the kernel that reads lines
constexpr int side = 4096;                                 // of the products
constexpr size_t matrix_bytes = size_t{4} * side * side;   // of f32
constexpr size_t memory = 3 * matrix_bytes;

/// Stays on a multiprocessor for so many cycles.
constexpr const char* clock_code = R"(
extern "C" __global__ void gpu_clock(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {}
}
)";
/// Reads pieces of 16 bytes that L2 has, each CTA others at a time. `mask` + 1 is a power of two.
constexpr const char* lines_code = R"(
extern "C" __global__ void gpu_lines(const uint4* from, uint4* to, unsigned mask, int rounds) {
  unsigned at = blockIdx.x * 977u * blockDim.x + threadIdx.x;
  unsigned sum = 0;
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < 8; ++i, at += blockDim.x) {
      const uint4 piece = __ldcg(from + (at & mask));
      sum |= piece.x ^ piece.y ^ piece.z ^ piece.w;
    }
  }
  if (sum != 0) to->x = sum;
}
)";

/// Memory, a stream and two events of its own.
class Bench {
 public:
  explicit Bench(Device device) : device_(device), guard_(device) {}
  ~Bench() { release(); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void open() {
    BS_CUDA_CHECK(cudaMalloc(&memory_, memory));
    BS_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (cudaEvent_t& event : events_) BS_CUDA_CHECK(cudaEventCreate(&event));
    // Neither zero, which takes less power, nor so large that sums overflow.
    BS_CUDA_CHECK(cudaMemsetAsync(memory_, 0x3c, memory, stream_));
  }
  Stream stream() const { return {device_, stream_}; }
  cudaStream_t native() const { return stream_; }
  std::byte* at(size_t offset) const { return static_cast<std::byte*>(memory_) + offset; }

  /// The least of several times, in nanoseconds, that `work()` takes the GPU behind `before()`.
  template <class Work, class Before>
  double time(const Work& work, const Before& before) const {
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 6; ++i) {
      before();
      BS_CUDA_CHECK(cudaEventRecord(events_[0], stream_));
      work();
      BS_CUDA_CHECK(cudaEventRecord(events_[1], stream_));
      BS_CUDA_CHECK(cudaEventSynchronize(events_[1]));
      float milliseconds = 0;
      BS_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]));
      if (i > 0) best = std::min(best, 1e6 * double{milliseconds});  // the first loads kernels
    }
    return best;
  }

  template <class Work>
  double time(const Work& work) const {
    return time(work, [] {});
  }

 private:
  void release() noexcept {
    for (cudaEvent_t event : events_)
      if (event) cudaEventDestroy(event);
    if (stream_) cudaStreamDestroy(stream_);
    if (memory_) cudaFree(memory_);
  }

  Device device_;
  RelaxedCapture relaxed_;
  DeviceGuard guard_;
  void* memory_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t events_[2] = {};
};

/// A dense product of bf16, or of f32 rounded to TF32.
void multiply(const Bench& bench, bool half) {
  const float one = 1, zero = 0;
  const cudaDataType_t type = half ? CUDA_R_16BF : CUDA_R_32F;
  BS_CUBLAS_CHECK(cublas().gemm(
      cublas_handle(bench.stream()), CUBLAS_OP_T, CUBLAS_OP_N, side, side, side, &one, bench.at(0),
      type, side, bench.at(matrix_bytes), type, side, &zero, bench.at(2 * matrix_bytes), type, side,
      half ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_GEMM_DEFAULT));
}

void stay(const Bench& bench, long long cycles) {
  const jit::Kernel& kernel = jit::kernel(measuring_sources()[0], bench.stream().device());
  jit::launch(kernel, {.grid = {1}, .block = {1}}, bench.stream(), cycles);
}

/// Cycles a nanosecond, right behind a product.
double clock_of(const Bench& bench) {
  constexpr long long cycles = 1'000'000;
  const double both = bench.time([&] { stay(bench, 2 * cycles); }, [&] { multiply(bench, true); });
  const double one = bench.time([&] { stay(bench, cycles); }, [&] { multiply(bench, true); });
  return static_cast<double>(cycles) / (both - one);
}

double copy_rate_of(const Bench& bench) {
  constexpr size_t bytes = memory / 2;
  return 2.0 * bytes / bench.time([&] {
    BS_CUDA_CHECK(cudaMemcpyAsync(bench.at(bytes), bench.at(0), bytes, cudaMemcpyDeviceToDevice,
                                  bench.native()));
  });
}

/// A kernel alone, with what tells its time.
double launch_of(const Bench& bench) {
  return bench.time([&] { stay(bench, 0); });
}

/// Nanoseconds in which a multiprocessor gets a line.
double line_of(const Bench& bench, const Gpu& gpu) {
  const jit::Kernel& kernel = jit::kernel(measuring_sources()[1], bench.stream().device());
  auto* const from = reinterpret_cast<const uint4*>(bench.at(0));
  auto* const to = reinterpret_cast<uint4*>(bench.at(2 * matrix_bytes));
  unsigned pieces = 1;
  while (int64_t{16} * 2 * pieces <= std::min<int64_t>(gpu.l2_bytes / 4, matrix_bytes)) pieces *= 2;
  const unsigned mask = pieces - 1;
  const dim3 grid(static_cast<unsigned>(ctas_per_multiprocessor * gpu.multiprocessors));
  const auto work = [&](int rounds) {
    return bench.time([&] {
      jit::launch(kernel, {.grid = grid, .block = {threads}}, bench.stream(), from, to, mask,
                  rounds);
    });
  };
  constexpr int rounds = 200;
  constexpr double lines = double{ctas_per_multiprocessor} * rounds * 8 * threads * 16 / 128;
  return (work(2 * rounds) - work(rounds)) / lines;
}

/// 0 where `number()` fails.
template <class Number>
double or_none(const Number& number) {
  try {
    return number();
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace

std::vector<jit::Source> measuring_sources() {
  return {{"gpu_clock", clock_code, {}}, {"gpu_lines", lines_code, {}}};
}

Gpu asked_gpu(Device device) {
  const DeviceProperties& p = device_properties(device);
  Gpu gpu;
  gpu.multiprocessors = p.multiprocessors;
  gpu.capability = p.capability;
  gpu.shared_bytes = p.shared_memory_optin;
  gpu.l2_bytes = p.l2_bytes;
  gpu.memory_bytes = gpu.free_bytes = p.memory_bytes;
  gpu.memory_rate = p.memory_rate / 1e9;
  return gpu;
}

GpuKey gpu_key(Device device) {
  const DeviceProperties& p = device_properties(device);
  cudaDeviceProp all{};
  GpuKey key{.capability = p.capability, .multiprocessors = p.multiprocessors};
  BS_CUDA_CHECK(cudaGetDeviceProperties(&all, device.index()));
  BS_CUDA_CHECK(cudaDeviceGetAttribute(&key.clock, cudaDevAttrClockRate, device.index()));
  BS_CUDA_CHECK(cudaDriverGetVersion(&key.driver));
  key.name = all.name;
  return key;
}

Measured measure_gpu(Device device) {
  Bench bench(device);
  const Gpu gpu = asked_gpu(device);
  try {
    bench.open();
  } catch (const Error&) {
    return {};
  }
  const double clock = or_none([&] { return clock_of(bench); });
  const auto cycles = [&](auto&& nanoseconds) {
    return or_none([&] { return nanoseconds() * clock; });
  };
  const auto products = [&](bool half) {
    constexpr double count = double{side} * side * side;
    return or_none([&] {
      return count / (bench.time([&] { multiply(bench, half); }) * clock * gpu.multiprocessors);
    });
  };
  return plausible({clock, or_none([&] { return copy_rate_of(bench); }),
                    or_none([&] { return launch_of(bench); }),
                    cycles([&] { return line_of(bench, gpu); }), products(true), products(false)});
}

GpuModel model_of(Device device) {
  if (device.is_cpu()) return stand_in_model();
  const Gpu asked = asked_gpu(device);
  const GpuKey key = gpu_key(device);
  if (is_in_table(key)) return table_model(asked);
  const std::string file = measured_file(key);
  if (const std::optional<std::string> text = jit::load_text(file))
    if (const std::optional<Measured> kept = parse_measured(*text, key))
      return measured_model(asked, *kept);
  const Measured measured = measure_gpu(device);
  if (is_complete(measured)) jit::store_text(file, format_measured(key, measured));
  return measured_model(asked, measured);
}

}  // namespace bs::cuda
