// A training step of nn::RNNT, an LSTM transducer: forward, loss, backward, clipping, AdamW. Work
// counted: products of the LSTMs (8 H (I + H) FLOP a step and cell) and of the layers around the
// joint, forward and twice that backward.
#include <bs/autograd/binary.h>
#include <bs/bench/record.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/device_rates.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/random.h>
#include <bs/lib/graph.h>
#include <bs/lib/integers.h>
#include <bs/lib/profiler.h>
#include <bs/nn/optim/adamw.h>
#include <bs/nn/optim/clip_grad_norm.h>
#include <bs/nn/rnnt.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <sstream>

using namespace bs;

namespace {

constexpr const char* help =
    "bench_rnnt [options]\n"
    "  --cases BxTxU,...       utterances, frames of features, tokens\n"
    "  --encoder N             cells of an encoder layer, default 1024\n"
    "  --prediction N          cells of a prediction layer, default 512\n"
    "  --joint N               width of the joint, default 512\n"
    "  --classes N             default 1024\n"
    "  --dropout 0|1           as the configuration `testing` has it, default 1\n"
    "  --split N               parts of the batch whose logits are in memory at a time, default "
    "1\n"
    "  --graph 0|1             a step as one launch, with padded rows, default 0\n"
    "  --profile 0|1           print where the time of a step goes, default 0\n";

struct Case {
  int64_t batch = 0, frames = 0, tokens = 0;
};

Case parse(const std::string& text) {
  Case c;
  char x = 0;
  std::istringstream in(text);
  in >> c.batch >> x >> c.frames >> x >> c.tokens;
  BS_CHECK(!in.fail() && c.batch > 0 && c.frames > 0 && c.tokens > 0, "bench_rnnt: {} is not BxTxU",
           text);
  return c;
}

Tensor normal(const Shape& shape, DType dtype, Device device) {
  return cast(randn(shape, f32, device), dtype);
}

nn::RNNTBatch batch_of(const Case& c, const nn::RNNTOptions& o) {
  return {.features = normal({c.batch, c.frames, o.features}, o.dtype, o.device),
          .lengths = full({c.batch}, static_cast<double>(c.frames), i64),
          .targets = randint(0, o.classes - 1, {c.batch, c.tokens}, i32, o.device),
          .target_lengths = full({c.batch}, static_cast<double>(c.tokens), i64)};
}

/// The loss of a small batch, and the gradient of a layer that all of it flows through, against
/// those of the same model on the CPU in f64, which the tests hold to naive loops.
void check(nn::RNNT& model) {
  nn::RNNTOptions options = model.options();
  const nn::RNNTBatch batch = batch_of({2, 8, 3}, options);
  options.dtype = f64;
  options.device = Device::cpu();
  nn::RNNT exact(options);
  const auto from = model.parameters(), to = exact.parameters();
  for (size_t i = 0; i < from.size(); ++i)
    to[i].set_data(cast(from[i].data().to(Device::cpu()), f64));
  model.eval();
  exact.eval();
  const Variable actual = model.loss(batch);
  const Variable expected =
      exact.loss({.features = cast(batch.features.data().to(Device::cpu()), f64),
                  .lengths = batch.lengths,
                  .targets = batch.targets.to(Device::cpu()),
                  .target_lengths = batch.target_lengths});
  actual.backward();
  expected.backward();
  const double allowed = is_low_precision(model.options().dtype) ? 0.03 : 1e-4;
  const double loss = actual.data().item(), truth = expected.data().item();
  BS_CHECK(std::abs(loss - truth) <= allowed * truth, "bench_rnnt: the loss is {}, not {}", loss,
           truth);
  const double norm = optim::grad_norm(std::vector{model.joint_enc.weight}).item();
  const double true_norm = optim::grad_norm(std::vector{exact.joint_enc.weight}).item();
  BS_CHECK(std::abs(norm - true_norm) <= 2 * allowed * true_norm,
           "bench_rnnt: the gradient's norm is {}, not {}", norm, true_norm);
  model.zero_grad();
  model.train();
}

/// FLOP of a forward pass.
double flops_of(const Case& c, const nn::RNNTOptions& o) {
  const auto lstm = [](int64_t steps, int64_t input, int64_t hidden, int layers) {
    const auto h = static_cast<double>(hidden);
    return 8 * static_cast<double>(steps) * h *
           (static_cast<double>(input) + h + (layers - 1) * 2 * h);
  };
  const int64_t stacked = ceil_div(c.frames, o.stack);
  const auto product = [](int64_t rows, int64_t in, int64_t out) {
    return 2 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  };
  return lstm(c.batch * c.frames, o.features, o.encoder_hidden, o.pre_layers) +
         lstm(c.batch * stacked, o.stack * o.encoder_hidden, o.encoder_hidden, o.post_layers) +
         lstm(c.batch * (c.tokens + 1), o.prediction_hidden, o.prediction_hidden,
              o.prediction_layers) +
         product(c.batch * stacked, o.encoder_hidden, o.joint) +
         product(c.batch * (c.tokens + 1), o.prediction_hidden, o.joint) +
         product(c.batch * stacked * (c.tokens + 1), o.joint, o.classes);
}

/// Where the time of a step goes.
void profile(const std::function<void()>& step) {
  step();
  Profiler profiler;
  step();
  profiler.stop();
  std::printf("%s\n", profiler.table({.rows = 0, .by_shape = true, .rates = device_rates}).c_str());
}

/// How a case is run.
struct Way {
  int split = 1, graph = 0, profile = 0;
};

void run(const Case& c, nn::RNNTOptions options, const Way& way, const bench::Settings& s,
         bench::Record& record) {
  nn::RNNT model(options);
  check(model);
  optim::AdamW optimizer(model, {.learning_rate = 1e-4});
  nn::RNNTBatch batch = batch_of(c, options);
  if (way.graph)
    for (Tensor* lengths : {&batch.lengths, &batch.target_lengths})
      *lengths = lengths->to(s.device);
  const auto losses = [&] {
    return model.loss(batch, {.split = way.split, .packed = way.graph == 0});
  };
  const auto step = [&] {
    optimizer.zero_grad();
    losses().backward();
    optimizer.step({.norm = optim::grad_norm(model.parameters()), .max_norm = 1});
  };
  const auto forward = [&] {
    const NoGrad no_grad;
    losses();
  };
  if (way.profile) profile(step);
  std::optional<cuda::Graph> graph;
  if (way.graph) {
    step();
    graph.emplace(s.device).capture(step);
  }
  const auto timings =
      bench::interleave(s.device, {forward, [&] { graph ? graph->replay() : step(); }}, s.measure);
  const Json::Object cell = {{"batch", c.batch},
                             {"frames", c.frames},
                             {"tokens", c.tokens},
                             {"encoder", options.encoder_hidden},
                             {"prediction", options.prediction_hidden},
                             {"joint", options.joint},
                             {"classes", options.classes},
                             {"dropout", options.joint_dropout > 0},
                             {"dtype", to_string(s.dtype)}};
  const double flops = flops_of(c, options);
  record.add({.cell = cell, .what = "forward", .time = timings[0], .flops = flops});
  record.add({.cell = cell, .what = "step", .time = timings[1], .flops = 3 * flops});
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Arguments arguments(argc, argv, help);
  const bench::Settings settings(arguments);
  nn::RNNTOptions options = nn::RNNTOptions::testing();
  std::vector<std::string> cases = {"32x400x50"};
  int dropout = 1;
  Way way;
  arguments.read("--cases", cases);
  arguments.read("--encoder", options.encoder_hidden);
  arguments.read("--prediction", options.prediction_hidden);
  arguments.read("--joint", options.joint);
  arguments.read("--classes", options.classes);
  arguments.read("--dropout", dropout);
  arguments.read("--split", way.split);
  arguments.read("--graph", way.graph);
  arguments.read("--profile", way.profile);
  arguments.finish();
  if (dropout == 0)
    options.encoder_dropout = options.prediction_dropout = options.joint_dropout = 0;
  options.dtype = settings.dtype;
  options.device = settings.device;
  bench::Record record("rnnt", settings);
  for (const std::string& text : cases) run(parse(text), options, way, settings, record);
  record.write();
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
