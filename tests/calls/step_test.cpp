#include <bs/autograd/loss.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/lib/cuda/pool.h>
#include <bs/lib/graph.h>
#include <bs/lib/ordered_pool.h>
#include <bs/lib/patterns.h>
#include <bs/lib/stream_pool.h>
#include <bs/lib/tensor.h>
#include <bs/nn/optim/adamw.h>
#include <bs/nn/optim/clip_grad_norm.h>
#include <bs/nn/rnnt.h>
#include <bs/nn/transformer.h>
#include <bs/tests/calls/call_recorder.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/guarded_memory.h>
#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace bs;
using test::CallRecorder;

namespace {

using Calls = std::vector<std::string>;

/// Clips, and changes what is trained.
void update(nn::Module& net, optim::AdamW& optimizer, const Variable& loss) {
  loss.backward();
  optimizer.step({.norm = optim::grad_norm(net.parameters()), .max_norm = 1});
}

struct Transformer {
  explicit Transformer(Device device)
      : net({.vocabulary = 64,
             .context = 128,
             .width = 64,
             .layers = 2,
             .heads = 2,
             .block = 16,
             .pattern =
                 [](const patterns::Size& size) {
                   return patterns::fixed(size, {.local_blocks = 2, .causal = true});
                 },
             .dropout = 0.1,
             .rope_base = 10000,
             .dtype = bf16,
             .device = device}),
        optimizer(optim::decay_groups(net, AdamWOptions{})),
        tokens(zeros({4, 128}, i32, device)) {}

  void feed(int step) { copy(full({4, 128}, step, i32).to(tokens.device()), tokens); }
  void compute() {
    optimizer.zero_grad();
    update(net, optimizer, cross_entropy(net.forward(tokens), tokens));
  }

  nn::SparseTransformer net;
  optim::AdamW optimizer;
  Tensor tokens;
};

struct Speech {
  explicit Speech(Device device)
      : net({.features = 16,
             .encoder_hidden = 64,
             .pre_layers = 1,
             .post_layers = 1,
             .prediction_hidden = 64,
             .prediction_layers = 1,
             .joint = 64,
             .classes = 32,
             .dtype = bf16,
             .device = device}),
        optimizer(optim::decay_groups(net, AdamWOptions{})),
        features(zeros({4, 20, 16}, bf16, device)),
        lengths(Tensor::from<int64_t>({20, 20, 12, 6}).to(device)),
        targets(zeros({4, 5}, i32, device)),
        target_lengths(Tensor::from<int64_t>({5, 3, 4, 2}).to(device)) {}

  void feed(int step) {
    copy(full({4, 20, 16}, 0.1 * step, bf16).to(features.device()), features);
    copy(full({4, 5}, step, i32).to(targets.device()), targets);
  }
  void compute() {
    optimizer.zero_grad();
    update(net, optimizer,
           net.loss({features, lengths, targets, target_lengths}, {.packed = false}));
  }

  nn::RNNT net;
  optim::AdamW optimizer;
  Tensor features, lengths, targets, target_lengths;
};

/// Feeds and computes `count` steps.
template <class Training, class Compute>
void run(Training& training, int count, const Compute& compute) {
  for (int i = 0; i < count; ++i) {
    training.feed(i);
    compute();
  }
}

/// What steps call, one by one.
template <class Training>
void check_steps() {
  const Device device = test::test_device();
  const test::Unguarded memory(device);
  Training training(device);
  const auto step = [&] { training.compute(); };
  run(training, 2, step);  // kernels are loaded
  synchronize(device);
  run(training, 8, step);  // and memory is taken, for more than is under way later
  synchronize(device);
  const CallRecorder recorder;
  run(training, 3, step);
  CHECK(recorder.waits() == Calls{});
  CHECK(recorder.foreign_frees() == 0);
}

/// What a graph of a step calls, as it is captured and as it is replayed.
template <class Training>
void check_graph() {
  const Device device = test::test_device();
  const test::Unguarded memory(device);
  Training training(device);
  const auto step = [&] { training.compute(); };
  run(training, 2, step);  // kernels are loaded
  synchronize(device);
  cuda::Graph graph(device);
  {
    const CallRecorder recorder;
    graph.capture(step);
    CHECK(recorder.foreign_frees() == 0);
  }
  const auto replay = [&] { graph.replay(); };
  run(training, 8, replay);
  synchronize(device);
  const CallRecorder recorder;
  run(training, 3, replay);
  CHECK(recorder.waits() == Calls{});
}

}  // namespace

TEST_CASE("calls: the recorder sees what the library calls") {
  const CallRecorder recorder;
  CHECK(recorder.waits() == Calls{});
  if (cuda_available()) {
    const Device device = Device::cuda(0);
    const test::Unguarded memory(device);
    {
      const StreamGuard on(next_stream(device));
      Tensor::empty({1000}, u8, device);
    }
    CHECK(recorder.frees() == 1);
    for (const size_t more : {0, 1})  // of the library's own stream, which keeps both
      Tensor::empty({static_cast<int64_t>(OrderedPool::most_small + more)}, u8, device);
    CHECK(recorder.frees() == 1);
    synchronize(device);
    CHECK(recorder.waits() == Calls{"cudaStreamSynchronize"});
  } else {  // without a driver there are no events to wait for, so it waits for all
    const Stream none(Device::cuda(0), nullptr);
    cuda::follow(none, {Device::cuda(0), const_cast<CallRecorder*>(&recorder)});
    CHECK(recorder.waits() == Calls{"cudaDeviceSynchronize"});
  }
}

TEST_CASE("calls: a step of a transformer waits for nothing") { check_steps<Transformer>(); }

TEST_CASE("calls: a step of a transducer waits for nothing") { check_steps<Speech>(); }

TEST_CASE("calls: a graph of a transformer's step waits for nothing" *
          doctest::skip(!test::test_device().is_cuda())) {
  check_graph<Transformer>();
}

TEST_CASE("calls: a graph of a transducer's step waits for nothing" *
          doctest::skip(!test::test_device().is_cuda())) {
  check_graph<Speech>();
}
