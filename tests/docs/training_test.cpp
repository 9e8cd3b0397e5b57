// The code of docs/training.md; see snippets_test.cpp.
#include <bs/nn.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <functional>
#include <map>

namespace {

using namespace bs;

struct Gated : nn::Module {
  Variable gate;
  nn::Linear linear{{.in = 8, .out = 16}};
  Gated() {
    register_parameter("gate", gate, zeros({16}));
    register_module("linear", linear);
  }
  Variable forward(const Variable& x) const { return linear.forward(x) * sigmoid(gate); }
};

/// x^3, with a gradient of its own.
Variable cube(const Variable& x) {
  const Tensor value = x.data();
  return tape().record("cube", {x}, value * value * value,
                       [value](const Tensor& dy) { return Grads{3 * value * value * dy}; });
}

}  // namespace

TEST_CASE("training: modules by name") {
  const Gated model;
  CHECK(model.named_parameters()[0].name == "gate");
  CHECK(model.named_parameters()[1].name == "linear.weight");
  CHECK(model.forward(randn({4, 8})).shape() == Shape{4, 16});
}

TEST_CASE("training: modules that move") {
  std::vector<nn::Linear> experts;
  for (int64_t classes : {3, 7}) experts.push_back(nn::Linear({.in = 16, .out = classes}));
  CHECK(experts[0].parameter_count() == 17 * 3);
}

TEST_CASE("training: frozen parameters") {
  const Gated model;
  model.linear.weight.set_requires_grad(false);
  for (const nn::NamedVariable& p : optim::trainable(model)) std::puts(p.name.c_str());
  CHECK(optim::trainable(model).size() == 2);
}

TEST_CASE("training: a whole loop") {
  manual_seed(7);
  nn::Sequential model;
  model.add<nn::Linear>({.in = 8, .out = 32});
  model.add<nn::Dropout>({.p = 0.1});
  model.add<nn::GELU>();
  model.add<nn::Linear>({.in = 32, .out = 4});
  const Tensor inputs = randn({64, 8});
  const Tensor targets = argmax(inputs.slice(1, 0, 4), 1);

  const AdamWOptions options{.learning_rate = 1e-2, .weight_decay = 0.1};
  optim::AdamW optimizer(optim::decay_groups(model, options));
  const optim::LearningRateSchedule schedule{.highest = 1e-2, .warmup = 10, .steps = 100};
  const std::vector<Variable> parameters = model.parameters();
  for (int64_t step = 0; step < schedule.steps; ++step) {
    optimizer.zero_grad();
    cross_entropy(model.forward(inputs), targets).backward();
    optimizer.set_learning_rate(schedule.at(step));
    const Tensor norm = optim::grad_norm(parameters);
    optimizer.step({.norm = norm, .max_norm = 1, .skip_nonfinite = true});
  }

  const auto loss_of = [&] {
    model.eval();  // dropout off
    const NoGrad guard;
    const double loss = cross_entropy(model.forward(inputs), targets).data().item();
    model.train();
    return loss;
  };
  CHECK(loss_of() < 0.5);
  CHECK(tape().size() == 0);
}

TEST_CASE("training: a penalty of a gradient") {
  const nn::Linear model({.in = 3, .out = 2});
  const Variable x(randn({4, 3}), true);
  const Variable slope = differentiable_grad(sum(model.forward(x)), x);
  const Variable penalty = mean(slope * slope);
  penalty.backward();  // reaches the parameters
  // slope = the sum of the weight's rows, whatever x is.
  const Tensor rows = sum(model.weight.data(), 0, true).expand({2, 3});
  CHECK(allclose(model.weight.grad(), rows * (2. / 3)));
}

TEST_CASE("training: a step as one launch" * doctest::skip(!cuda_available())) {
  const Device device = Device::cuda();
  nn::Linear model({.in = 8, .out = 4, .device = device});
  optim::AdamW optimizer(model);
  const optim::LearningRateSchedule schedule{.highest = 1e-2, .warmup = 2, .steps = 8};
  const Tensor inputs = zeros({64, 8}, f32, device);
  Tensor loss;
  const auto compute = [&] {
    optimizer.zero_grad();
    const Variable y = mean(model.forward(inputs) * model.forward(inputs));
    y.backward();
    loss = y.data();
    optimizer.step();
  };
  cuda::Graph graph(device);
  for (int64_t step = 0; step < schedule.steps; ++step) {
    copy(randn({64, 8}, f32, device), inputs);  // the graph reads this tensor
    optimizer.set_learning_rate(schedule.at(step));
    if (step == 2) graph.capture(compute);
    if (graph.captured()) {
      graph.replay();
    } else {
      compute();  // makes tables and kernels
    }
  }
  CHECK(optimizer.steps() == schedule.steps);
  CHECK(loss.item() > 0);
}

TEST_CASE("training: steps of several shapes on one memory" * doctest::skip(!cuda_available())) {
  const Device device = Device::cuda();
  std::map<int64_t, cuda::Graph> graphs;  // by rows
  const cuda::Graph memory(device);       // records nothing: what it would work on is theirs
  const auto replay = [&](int64_t rows, const std::function<void()>& work) {
    cuda::Graph& graph = graphs.try_emplace(rows, device, memory).first->second;
    if (!graph.captured()) graph.capture(work);
    graph.replay();
  };
  std::map<int64_t, Tensor> sums;
  const Tensor x = full({8, 8}, 0.5, f32, device);
  for (int i = 0; i < 3; ++i)
    for (const int64_t rows : {8, 4}) {
      replay(rows, [&] { sums[rows] = sum(x.slice(0, 0, rows) * 2); });
      CHECK(sums[rows].item() == 8 * static_cast<double>(rows));
    }
}

TEST_CASE("training: clipping in a pass of its own") {
  const Variable w(randn({8, 8}), true);
  sum(w * w * 100).backward();
  const std::vector<Variable> parameters = {w};
  const Tensor before = optim::clip_grad_norm(parameters, 1.0);
  CHECK(before.item() > 1);
  CHECK(optim::grad_norm(parameters).item() == doctest::Approx(1).epsilon(1e-4));
}

TEST_CASE("training: the average of the weights") {
  nn::Linear model({.in = 4, .out = 4});
  const optim::Ema average(model, 0.999);
  model.weight.set_data(model.weight.data() + 1.0);
  average.update(1);
  const double last = sum(model.weight.data()).item();
  {
    const optim::AverageScope scope(average);  // the model computes with the averages here
    CHECK(sum(model.weight.data()).item() != last);
  }
  CHECK(sum(model.weight.data()).item() == last);
}

TEST_CASE("training: hooks") {
  const Variable x(ones({3}), true);
  double seen = 0;
  x.register_hook([&seen](const Tensor& gradient) {
    seen = sum(gradient).item();
    return gradient * 0.5;  // an undefined Tensor keeps the gradient as it is
  });
  sum(x * 2).backward();
  CHECK(seen == 6);
  CHECK(sum(x.grad()).item() == 3);
}

TEST_CASE("training: a function of your own, checked") {
  const Variable x(randn({5}, f64), true);
  gradcheck([](const std::vector<Variable>& in) { return cube(in[0]); }, {x});
}

TEST_CASE("training: batches made ahead") {
  data::Prefetcher<Tensor> batches(
      [](int64_t number) {
        Generator generator(static_cast<uint64_t>(number));
        return randn({16, 8}, f32, Device::cpu(), generator);
      },
      0, 2);
  const Tensor first = batches.next();
  CHECK(first.shape() == Shape{16, 8});
}

TEST_CASE("training: checkpoints") {
  const test::Scratch folder;
  const std::string path = folder / "run.safetensors";
  nn::Linear model({.in = 4, .out = 2});
  optim::AdamW optimizer(model);
  data::Loader loader(data::TextDataset::from(std::string(64, 'a')), {.batch = 1, .context = 8});

  const nn::TrainingState state{.model = &model,
                                .optimizer = &optimizer,
                                .generator = &default_generator(),
                                .loader = &loader,
                                .step = 100,
                                .metadata = {{"width", "4"}}};
  nn::save_checkpoint(path, state);

  const nn::Checkpoint checkpoint(path);
  checkpoint.restore(state);  // in place; an error lists what does not fit
  CHECK(checkpoint.step() == 100);
  CHECK(checkpoint.metadata().at("width") == "4");
}

TEST_CASE("training: TensorBoard") {
  const test::Scratch folder;
  const std::string runs = folder / "runs";
  const Tensor weight = randn({8, 8});

  SummaryWriter writer(runs + "/first");  // then: tensorboard --logdir runs
  for (int64_t step = 0; step < 3; ++step) writer.add_scalar("train/loss", 1.0, step);
  writer.add_histogram("weight", weight, 3);

  CHECK(folder.files() == 1);
}

TEST_CASE("training: arrays of NumPy") {
  const test::Scratch folder;
  const std::string path = folder / "x.npy";
  save_npy(path, arange(6));
  const Tensor x = load_npy(path);
  CHECK(x.shape() == Shape{6});
}

TEST_CASE("training: batches of different lengths") {
  const auto pattern = [](const patterns::Size& size) { return patterns::longformer(size); };
  const nn::SparseAttention attention({.width = 32, .heads = 2, .block = 16, .pattern = pattern});
  const Tensor lengths = Tensor::from<int64_t>({64, 40}, {2, 1});
  const Tensor mask = lt(arange(64), lengths);  // [batch, sequence], true for what may be seen
  const Variable y = attention.forward(randn({2, 64, 32}), mask);
  CHECK(y.shape() == Shape{2, 64, 32});
}
