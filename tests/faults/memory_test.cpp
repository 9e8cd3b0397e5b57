// Every allocation of a training step, of a save and of a load fails in turn. What must hold then:
// an error comes, nothing has changed, nothing leaks (ASan looks), and the next try gives the same
// bits as if nothing had been.
#include <bs/autograd/binary.h>
#include <bs/autograd/copy.h>
#include <bs/autograd/loss.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/tape.h>
#include <bs/autograd/view.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/fill.h>
#include <bs/lib/layout.h>
#include <bs/lib/npy.h>
#include <bs/lib/ordered_pool.h>
#include <bs/nn/checkpoint.h>
#include <bs/nn/lstm.h>
#include <bs/nn/optim/adafactor.h>
#include <bs/nn/optim/adamw.h>
#include <bs/nn/optim/clip_grad_norm.h>
#include <bs/nn/optim/ema.h>
#include <bs/nn/optim/lamb.h>
#include <bs/nn/optim/muon.h>
#include <bs/nn/optim/rmsprop.h>
#include <bs/nn/optim/sgd.h>
#include <bs/nn/state_dict.h>
#include <bs/nn/transformer.h>
#include <bs/tests/faults/memory_faults.h>
#include <bs/tests/support/fake_device.h>
#include <bs/tests/support/resource_scope.h>
#include <bs/tests/support/sanitized.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

/// Tries `all` points, or so many evenly spread ones, of which sanitizers see a seventh;
/// BS_TEST_FAULTS=all tries each.
template <class Try>
void for_points(int64_t all, int64_t most, Try&& attempt) {
  const char* const wanted = std::getenv("BS_TEST_FAULTS");
  const bool each = wanted && std::string(wanted) == "all";
  if (sanitized) most = std::max<int64_t>(1, sampled(most));
  const int64_t step = each ? 1 : std::max<int64_t>(1, all / most);
  for (int64_t point = all % step; point < all; point += step) {
    CAPTURE(point);
    attempt(point);
  }
}

std::string bytes_of(const std::vector<Tensor>& tensors) {
  std::string bytes;
  for (const Tensor& t : tensors) bytes.append(static_cast<const char*>(t.data()), t.bytes());
  return bytes;
}

Tensor counted(const Shape& shape, int64_t below) {
  const Tensor t = Tensor::empty(shape, i64);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<int64_t>()[i] = i * 7 % below;
  return t;
}

LayoutPtr causal(const patterns::Size& size) { return patterns::dense(size, {.causal = true}); }

/// Large enough that products, sequences and rows are divided among threads.
struct Model : nn::Module {
  nn::SparseTransformer transformer;
  nn::LSTM lstm{{.input = 64, .hidden = 128, .batch_first = true}};
  explicit Model(DType dtype)
      : transformer({.vocabulary = 64,
                     .context = 32,
                     .width = 64,
                     .layers = 1,
                     .heads = 2,
                     .block = 16,
                     .pattern = causal,
                     .dtype = dtype}) {
    register_module("transformer", transformer);
    register_module("lstm", lstm);
  }
};

enum class Rule { adafactor, adamw, lamb, muon, rmsprop, sgd };

struct Training {
  Model model;
  std::unique_ptr<optim::Optimizer> optimizer;
  Tensor tokens = counted({8, 32}, 61), targets = counted({8 * 32}, 59);

  explicit Training(DType dtype, Rule rule = Rule::adamw) : model(dtype) {
    using namespace optim;
    switch (rule) {  // two groups where they fit, and one rule that leaves out state
      case Rule::adafactor:
        optimizer = std::make_unique<Adafactor>(Adafactor::decay_groups(model, {}));
        return;
      case Rule::adamw:
        optimizer = std::make_unique<AdamW>(AdamW::decay_groups(model, {}));
        return;
      case Rule::lamb:
        optimizer = std::make_unique<Lamb>(Lamb::decay_groups(model, {}));
        return;
      case Rule::muon:
        optimizer = std::make_unique<Muon>(model);
        return;
      case Rule::rmsprop:
        optimizer = std::make_unique<RMSprop>(RMSprop::decay_groups(model, {.centered = true}));
        return;
      case Rule::sgd:
        optimizer = std::make_unique<Sgd>(Sgd::decay_groups(model, {.momentum = .9}));
    }
  }
  Variable forward() {
    optimizer->zero_grad();
    const Variable logits = view(model.transformer.forward(tokens), {8 * 32, 64});
    const Variable loss = cross_entropy(logits, targets);
    const Variable y = model.lstm.forward(view(cast(logits, f32), {8, 32, 64})).y;
    return cast(loss, f32) + mean(y * y);
  }
  void step() {
    forward().backward();
    const auto parameters = model.parameters();
    optimizer->step({.norm = optim::grad_norm(parameters), .max_norm = 1});
  }
  nn::TrainingState state() { return {.model = &model, .optimizer = optimizer.get()}; }
  std::string bytes() const {
    std::vector<Tensor> tensors;
    for (const Variable& p : model.parameters()) tensors.push_back(p.data());
    for (const auto& s : optimizer->state()) tensors.push_back(s.tensor);
    return bytes_of(tensors) + std::to_string(optimizer->steps());
  }
};

}  // namespace

TEST_CASE("faults: a thread that fails ends its region with an error") {
  for (const int team : {1, 2, 4}) {
    CHECK_THROWS_AS(parallel_each(100, team,
                                  [](int64_t i) {
                                    if (i == 57) throw std::bad_alloc();
                                  }),
                    std::bad_alloc);
    CHECK_THROWS_AS(cpu::parallel_for(1000, 1,
                                      [](int64_t begin, int64_t end) {
                                        if (begin <= 999 && 999 < end) throw std::bad_alloc();
                                      }),
                    std::bad_alloc);
  }
}

TEST_CASE("faults: memory missing at any point of a training step") {
  for (const Rule rule :
       {Rule::adafactor, Rule::adamw, Rule::lamb, Rule::muon, Rule::rmsprop, Rule::sgd}) {
    CAPTURE(static_cast<int>(rule));
    // Pieces of bf16 are converted.
    Training training(rule == Rule::sgd || rule == Rule::lamb ? f32 : bf16, rule);
    const Scratch folder;
    nn::save_checkpoint(folder / "start", training.state());
    const nn::Checkpoint start(folder / "start");
    const std::string before = training.bytes();
    training.step();  // takes what threads keep
    const std::string after = training.bytes();
    REQUIRE(after != before);
    start.restore(training.state());
    const int64_t points = allocations_of([&] { training.step(); });
    REQUIRE(training.bytes() == after);

    int64_t tried = 0, failed = 0;
    for_points(points, 40, [&](int64_t point) {
      start.restore(training.state());
      ++tried;
      if (!runs_out(point, [&] { training.step(); })) return;  // threads kept more than before
      ++failed;
      Tape::current().clear();
      CHECK(training.bytes() == before);
      training.step();
      CHECK(training.bytes() == after);
    });
    MESSAGE(tried, " of ", points, " points tried, ", failed, " errors");
    CHECK(failed > tried * 9 / 10);
  }
}

TEST_CASE("faults: any allocation of a training step that a device refuses") {
  FakeDevice device;
  device.capacity = 1 << 30;
  OrderedPool pool(Device::cpu(), device);
  const ResourceScope scope(Device::cpu(), pool);
  {
    Training training(bf16);
    const Scratch folder;
    nn::save_checkpoint(folder / "start", training.state());
    const nn::Checkpoint start(folder / "start");
    training.step();  // takes what threads keep
    const std::string after = training.bytes();
    start.restore(training.state());
    training.optimizer->zero_grad();
    const std::string before = training.bytes();
    const int64_t taken = device.count("take"), held = device.held();
    training.step();
    REQUIRE(training.bytes() == after);
    const int64_t points = device.count("take") - taken;

    const auto step_refused = [&](int64_t point, int64_t times) {
      start.restore(training.state());
      device.granted = point;
      device.refused = times;
      training.step();
    };
    for_points(points, 200, [&](int64_t point) {
      step_refused(point, 1);  // the pool waits, gives back what is cached, and asks once more
      CHECK(training.bytes() == after);
      CHECK_THROWS_AS(step_refused(point, 2), OutOfMemory);
      CHECK(training.bytes() == before);
      Tape::current().clear();
      training.optimizer->zero_grad();
      CHECK(device.held() == held);
      training.step();
      CHECK(training.bytes() == after);
    });
    MESSAGE(points, " allocations of a step on a device");
  }
  CHECK(device.held() == 0);
  CHECK(device.freed_twice == 0);
}

TEST_CASE("faults: backward and step report what they lack as OutOfMemory") {
  Training training(bf16);
  training.step();
  const std::string before = training.bytes();
  const auto backward = [&] {
    const Variable loss = training.forward();
    const MemoryFault none;
    loss.backward();
    return none.count();
  };
  int64_t failed = 0;
  for_points(backward(), 100, [&](int64_t point) {
    Tape::current().clear();
    const Variable loss = training.forward();
    failed += reports(point, [&] { loss.backward(); });
    CHECK(training.bytes() == before);
  });
  CHECK(failed > 0);
  const auto step = [&] { training.optimizer->step(); };
  const Scratch folder;
  nn::save_checkpoint(folder / "start", training.state());
  const nn::Checkpoint start(folder / "start");
  backward();
  const int64_t points = allocations_of(step);
  CHECK(points > 0);
  for (int64_t point = 0; point < points; ++point) {
    CAPTURE(point);
    start.restore(training.state());
    CHECK(reports(point, step));
    CHECK(training.bytes() == before);
  }
}

TEST_CASE("faults: an OutOfMemory names the operation") {
  const Scratch folder;
  const auto text_of = [](auto&& work) {
    for (int64_t point = 0; point < 100; ++point) {
      const MemoryFault fault(point);
      try {
        work();
      } catch (const OutOfMemory& e) {
        return std::string(e.what());
      }
    }
    return std::string();
  };
  const Tensor x = counted({4}, 5);
  const std::string path = folder / "x";
  const std::string expected = "save_npy: " + path + ": the host has no memory";
  CHECK(text_of([&] { save_npy(path, x); }).starts_with(expected));
  save_npy(path, x);
  const Tensor mask = ones({4, 4}, boolean);
  CHECK(
      text_of([&] { Layout::from_mask(mask, 16); }).starts_with("layout: the host has no memory"));
}

TEST_CASE("faults: memory missing at any point of a save") {
  Training training(f32);
  const Scratch folder;
  const std::string path = folder / "run";
  nn::TrainingState state = training.state();
  nn::save_checkpoint(path, state);
  const std::string old = read_file(path);
  state.step = 5;
  nn::save_checkpoint(folder / "whole", state);
  const std::string whole = read_file(folder / "whole");
  const int64_t points = allocations_of([&] { nn::save_checkpoint(folder / "other", state); });
  int64_t did_without = 0;
  for_points(points, 100, [&](int64_t point) {
    state.step = 5;
    if (reports(point, [&] { nn::save_checkpoint(path, state); })) {
      CHECK(read_file(path) == old);
    } else {  // stable_sort can do without memory
      CHECK(read_file(path) == whole);
      state.step = 0;
      nn::save_checkpoint(path, state);
      ++did_without;
    }
    CHECK(folder.files() == 3);
  });
  MESSAGE(points, " points of a save, ", did_without, " of those tried did without");
  CHECK(did_without <= 3);
  state.step = 5;
  nn::save_checkpoint(path, state);
  CHECK(read_file(path) == whole);
}

TEST_CASE("faults: memory missing at any point of a load") {
  Training saved(f32), loaded(f32);
  const Scratch folder;
  const std::string path = folder / "run";
  nn::save_checkpoint(path, saved.state());
  const std::string before = loaded.bytes(), after = saved.bytes();
  REQUIRE(before != after);
  const auto load = [&] { nn::Checkpoint(path).restore(loaded.state()); };
  const int64_t points = allocations_of([&] { nn::Checkpoint(path).restore(saved.state()); });
  for_points(points, 150, [&](int64_t point) {
    CHECK(reports(point, load));
    CHECK(loaded.bytes() == before);
  });
  MESSAGE(points, " points of a load");
  load();
  CHECK(loaded.bytes() == after);
}

TEST_CASE("faults: memory missing at any point of load_state_dict") {
  Model from(f32), into(bf16);
  nn::StateDict state = nn::state_dict(from), own = nn::state_dict(into), start;
  for (const auto& [name, tensor] : own) start.emplace(name, clone(tensor));
  // The last square one is to become its own transpose, which needs a copy in between.
  bool turned = false;
  for (auto it = own.rbegin(); it != own.rend() && !turned; ++it) {
    const Tensor& t = it->second;
    turned = t.rank() == 2 && t.size(0) == t.size(1);
    if (turned) state[it->first] = t.transpose(0, 1);
  }
  REQUIRE(turned);
  const auto bytes = [&] {
    std::vector<Tensor> tensors;
    for (const auto& [name, tensor] : own) tensors.push_back(tensor);
    return bytes_of(tensors);
  };
  const std::string before = bytes();
  const auto load = [&] { nn::load_state_dict(into, state); };
  const int64_t points = allocations_of(load);
  const std::string after = bytes();
  REQUIRE(after != before);
  nn::load_state_dict(into, start);
  REQUIRE(bytes() == before);
  for_points(points, 150, [&](int64_t point) {
    CHECK(reports(point, load));
    CHECK(bytes() == before);
  });
  MESSAGE(points, " points of load_state_dict");
  load();
  CHECK(bytes() == after);
}

TEST_CASE("faults: memory missing while averages take the weights' place") {
  Training training(bf16);
  const optim::Ema average(training.model, .5);
  training.step();
  const std::string before = training.bytes();
  const auto scope = [&] { const optim::AverageScope averaged(average); };
  const int64_t points = allocations_of(scope);
  CHECK(training.bytes() == before);
  for (int64_t point = 0; point < points; ++point) {
    CAPTURE(point);
    runs_out(point, scope);
    CHECK(training.bytes() == before);
  }
}
