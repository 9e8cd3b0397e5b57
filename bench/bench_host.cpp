// What an operation costs the host: the calls that it is made of, small operations one after the
// other, and steps of a small model. On a GPU the launches of a measurement fit its queue, so that
// the host waits for none of them.
#include <bs/autograd/activation.h>
#include <bs/autograd/binary.h>
#include <bs/autograd/block_sparse_matmul.h>
#include <bs/autograd/linear.h>
#include <bs/autograd/loss.h>
#include <bs/autograd/norm.h>
#include <bs/autograd/softmax.h>
#include <bs/autograd/sparse_attention.h>
#include <bs/autograd/tape.h>
#include <bs/bench/empty_kernel.h>
#include <bs/bench/record.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/random.h>
#include <bs/lib/memory.h>
#include <bs/lib/patterns.h>
#include <bs/lib/trace.h>
#include <bs/nn/optim/adamw.h>
#include <bs/nn/optim/clip_grad_norm.h>
#include <bs/nn/transformer.h>
#if BS_WITH_CUDA
#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/cuda/tensor_map.h>
#endif

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace bs;

namespace {

constexpr const char* help =
    "bench_host [options]\n"
    "  --sets a,b,...         of pieces, operations, steps; default all\n"
    "  --width N              of the model whose steps are timed, default 128\n"
    "  --layers N             default 2\n";

struct Case {
  std::string what;
  std::function<void()> work;
  int calls = 200;                   ///< as many as fit the device's queue
  int operations = 1;                ///< of a call
  std::function<void()> begin = {};  ///< before the calls, untimed
};

using Cases = std::vector<Case>;

/// Seconds of the host for an operation, the cases in turns.
void measure(const char* set, const Cases& cases, const bench::Settings& settings,
             bench::Record& record) {
  std::vector<std::vector<double>> seconds(cases.size());
  for (int run = 0; run < std::max(settings.measure.runs, 1); ++run)
    for (size_t i = 0; i < cases.size(); ++i) {
      if (cases[i].begin) cases[i].begin();
      const double call = bench::host_seconds(settings.device, cases[i].work, cases[i].calls);
      seconds[i].push_back(call / cases[i].operations);
    }
  for (size_t i = 0; i < cases.size(); ++i)
    record.add({.cell = {{"set", set}},
                .what = cases[i].what,
                .time = bench::summary(std::move(seconds[i]))});
}

#if BS_WITH_CUDA
void spin(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
  }
}

/// Questions that operations ask CUDA and the library.
void add_questions(Cases& cases, Stream stream) {
  const auto native = static_cast<cudaStream_t>(stream.handle());
  cases.push_back({"cudaGetDevice", [] {
                     int index = 0;
                     BS_CUDA_CHECK(cudaGetDevice(&index));
                   }});
  cases.push_back({"cudaStreamIsCapturing", [=] {
                     cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
                     BS_CUDA_CHECK(cudaStreamIsCapturing(native, &status));
                   }});
  cases.push_back(
      {"cudaThreadExchangeStreamCaptureMode twice", [] { const cuda::RelaxedCapture relaxed; }});
  cases.push_back({"cudaGetLastError", [] { BS_CUDA_CHECK(cudaGetLastError()); }});
  cases.push_back({"a range", [] { const TraceRange range("range"); }});
  cases.push_back({"current_stream", [=] {
                     if (current_stream(stream.device()) != stream) std::abort();
                   }});
  cases.push_back({"a tensor map", [x = ones({8, 64}, bf16, stream.device())] {
                     cuda::TiledTensor tiled{.element = cuda::TensorMapElement::bf16,
                                             .address = x.data(),
                                             .rank = 2,
                                             .swizzle = cuda::TensorMapSwizzle::bytes_128};
                     tiled.dims = {64, 8};
                     tiled.strides = {0, 128};
                     tiled.box = {64, 8};
                     cuda::encode_tiled("bench_host", tiled);
                   }});
}

/// Launches, memory, and both.
void add_launches(Cases& cases, Stream stream) {
  const Device device = stream.device();
  const auto native = static_cast<cudaStream_t>(stream.handle());
  cudaMemPool_t pool = nullptr;
  BS_CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, device.index()));
  uint64_t all = UINT64_MAX;
  BS_CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
  const auto of_cuda = [=] {
    void* memory = nullptr;
    BS_CUDA_CHECK(cudaMallocFromPoolAsync(&memory, 2048, pool, native));
    BS_CUDA_CHECK(cudaFreeAsync(memory, native));
  };
  const auto of_library = [=] {
    free_bytes(allocate_bytes(2048, stream), 2048, memory_resource(device), stream);
  };
  const auto launch = [=] { bench::launch_empty_extended(8, stream); };
  cases.push_back({"memory of CUDA's pool", of_cuda});
  cases.push_back({"memory of the library", of_library});
  cases.push_back({"launch of 8 bytes", launch});
  cases.push_back({"launch of 1024 bytes", [=] { bench::launch_empty_extended(1024, stream); }});
  cases.push_back({"launch by <<<>>> of 8 bytes", [=] { bench::launch_empty(8, stream); }});
  cases.push_back({"launch and memory of CUDA's pool", [=] {
                     of_cuda();
                     launch();
                   }});
  cases.push_back({"launch and memory of the library", [=] {
                     of_library();
                     launch();
                   }});
  for (const double wait : {1e-6, 4e-6})
    cases.push_back({format("launch and {} ns of waiting", wait * 1e9), [=] {
                       launch();
                       spin(wait);
                     }});
}

/// What CUDA's runtime and the library take for the parts of an operation.
Cases pieces(Device device) {
  const Stream stream = current_stream(device);
  const auto matrix = [&] { return ones({8, 64}, f32, device); };
  const Tensor x = matrix(), y = matrix(), z = matrix();
  Cases cases;
  add_questions(cases, stream);
  add_launches(cases, stream);
  cases.push_back({"add to what is there", [=] { cuda::add(x, y, z, stream); }});
  cases.push_back({"add of tensors", [=] { static_cast<void>(add(x, y)); }});
  return cases;
}
#endif

/// Forward unrecorded, forward recorded and backward of chains of one operation.
void add_chain(Cases& cases, const std::string& what, const Variable& x,
               const std::function<Variable(const Variable&)>& step, int launches = 1) {
  constexpr int steps = 8;
  const int calls = std::max(64 / launches, 4);
  const auto forward = [=] {
    Variable y = x;
    for (int i = 0; i < steps; ++i) y = step(y);
    return y;
  };
  cases.push_back({what,
                   [=] {
                     const NoGrad no_grad;
                     forward();
                   },
                   calls, steps});
  cases.push_back({what + ", recorded", [=] { forward(); }, calls, steps});
  const auto ends = std::make_shared<std::vector<Variable>>();
  const Tensor dy = ones(x.shape(), x.dtype(), x.device());
  cases.push_back({what + ", backward",
                   [=] {
                     ends->back().backward(dy);
                     ends->pop_back();
                   },
                   calls / 2, steps,
                   [=] {
                     ends->clear();
                     for (int i = 0; i <= calls / 2; ++i) ends->push_back(forward());
                     synchronize(x.device());
                   }});
}

Cases operations(const bench::Settings& settings) {
  const auto variable = [&](const Shape& shape) {
    return Variable(randn(shape, settings.dtype, settings.device), true);
  };
  const Variable x = variable({8, 64}), y = variable({8, 64}), weight = variable({64}),
                 bias = variable({64}), matrix = variable({64, 64}), wide = variable({128, 128}),
                 q = variable({1, 2, 128, 64}), k = variable({1, 2, 128, 64}),
                 v = variable({1, 2, 128, 64});
  const LayoutPtr causal =
      patterns::fixed({.rows = 4, .cols = 4, .block = 32}, {.local_blocks = 2, .causal = true});
  const SparseVariable s{causal, variable({causal->nnz(), 32, 32})};
  Cases cases;
  add_chain(cases, "add", x, [=](const Variable& h) { return add(h, y); });
  add_chain(cases, "add a row", x, [=](const Variable& h) { return add(h, bias); });
  add_chain(cases, "gelu", x, [](const Variable& h) { return gelu(h); });
  add_chain(cases, "softmax", x, [](const Variable& h) { return softmax(h); });
  add_chain(
      cases, "layer_norm", x, [=](const Variable& h) { return layer_norm(h, weight, bias); }, 2);
  add_chain(
      cases, "linear", x, [=](const Variable& h) { return linear(h, matrix, bias); }, 4);
  add_chain(
      cases, "dsd", wide, [=](const Variable& h) { return dsd(s, h); }, 4);
  add_chain(
      cases, "sparse_attention", q,
      [=](const Variable& h) { return sparse_attention(h, k, v, causal); }, 8);
  return cases;
}

/// A step of training, whole and in parts.
struct Training {
  Training(const bench::Settings& settings, int width, int layers)
      : net({.vocabulary = 256,
             .context = 128,
             .width = width,
             .layers = layers,
             .heads = width / 64,
             .block = 32,
             .pattern =
                 [](const patterns::Size& size) {
                   return patterns::fixed(size, {.local_blocks = 2, .causal = true});
                 },
             .dtype = settings.dtype,
             .device = settings.device}),
        optimizer(optim::decay_groups(net, AdamWOptions{})),
        tokens(zeros({2, 128}, i32, settings.device)) {}

  void forward() { loss = cross_entropy(net.forward(tokens), tokens); }
  void update() {
    optimizer.step({.norm = optim::grad_norm(net.parameters()), .max_norm = 1});
    optimizer.zero_grad();
  }

  nn::SparseTransformer net;
  optim::AdamW optimizer;
  Tensor tokens;
  Variable loss;
};

Cases steps(const bench::Settings& settings, int width, int layers) {
  const auto training = std::make_shared<Training>(settings, width, layers);
  const auto step = [=] {
    training->forward();
    training->loss.backward();
    training->update();
  };
  for (int i = 0; i < 3; ++i) step();
  return {{"step: forward", [=] { training->forward(); }, 2}, {"step: whole", step, 2}};
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Arguments arguments(argc, argv, help);
  const bench::Settings settings(arguments);
  std::vector<std::string> sets = {"pieces", "operations", "steps"};
  int width = 128, layers = 2;
  arguments.read("--sets", sets);
  arguments.read("--width", width);
  arguments.read("--layers", layers);
  arguments.finish();
  bench::Record record("host", settings);
  for (const std::string& set : sets) {
    if (set == "operations") measure("operations", operations(settings), settings, record);
    if (set == "steps") measure("steps", steps(settings, width, layers), settings, record);
#if BS_WITH_CUDA
    if (set == "pieces" && settings.device.is_cuda())
      measure("pieces", pieces(settings.device), settings, record);
#endif
  }
  record.write();
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
