#include <bs/autograd/binary.h>
#include <bs/autograd/dropout.h>
#include <bs/autograd/loss.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/sparse_attention.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/random.h>
#include <bs/kernels/transducer_joint.h>
#include <bs/lib/graph.h>
#include <bs/lib/patterns.h>
#include <bs/lib/recording.h>
#include <bs/nn/linear.h>
#include <bs/nn/optim/adafactor.h>
#include <bs/nn/optim/adam.h>
#include <bs/nn/optim/adamw.h>
#include <bs/nn/optim/clip_grad_norm.h>
#include <bs/nn/optim/ema.h>
#include <bs/nn/optim/lamb.h>
#include <bs/nn/optim/lion.h>
#include <bs/nn/optim/muon.h>
#include <bs/nn/optim/rmsprop.h>
#include <bs/nn/optim/sgd.h>
#include <bs/nn/transformer.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/guarded_memory.h>
#include <doctest/doctest.h>

#include <cstring>
#include <future>
#include <memory>
#include <utility>
#include <vector>

using namespace bs;

namespace {

using Bytes = std::vector<char>;

Bytes bytes_of(const Tensor& x) {
  const Tensor host = x.to(Device::cpu());
  Bytes bytes(host.bytes());
  std::memcpy(bytes.data(), host.data(), bytes.size());
  return bytes;
}

LayoutPtr causal(const patterns::Size& size) {
  return patterns::fixed(size, {.local_blocks = 2, .causal = true});
}

/// A layer that is dropped out of, under an optimiser: a step of training.
class Training {
 public:
  template <class Optimizer>
  Training(Device device, std::unique_ptr<Optimizer> (*make)(const nn::Module&))
      : device_(device), generator_(11) {
    manual_seed(5);
    first_ = std::make_unique<nn::Linear>(nn::LinearOptions{.in = 24, .out = 40, .device = device});
    optimizer_ = make(*first_);
    average_ = std::make_unique<optim::Ema>(*first_, 0.9);
    inputs = zeros({16, 24}, f32, device);
  }

  void compute() {
    optimizer_->zero_grad();
    const Variable y = dropout(first_->forward(inputs), 0.3, generator_);
    const Variable wanted = rand({16, 40}, f32, device_, generator_);
    const Variable difference = y - wanted;
    const Variable loss_value = mean(difference * difference);
    loss_value.backward();
    loss = loss_value.data();
    norm = optim::grad_norm(first_->parameters());
    optimizer_->step({.norm = norm, .max_norm = 0.5});
    average_->update(*optimizer_);
  }
  void feed(int step) {
    Generator batch(static_cast<uint64_t>(100 + step));
    copy(randn({16, 24}, f32, device_, batch), inputs);
    optimizer_->set_learning_rate(0.01 / (step + 1));
  }
  std::vector<Bytes> state() const {
    std::vector<Bytes> all{bytes_of(loss), bytes_of(norm)};
    for (const Variable& p : first_->parameters()) all.push_back(bytes_of(p.data()));
    for (const auto& named : optimizer_->state()) all.push_back(bytes_of(named.tensor));
    for (const auto& named : average_->state()) all.push_back(bytes_of(named.tensor));
    return all;
  }
  int64_t steps() const { return optimizer_->steps(); }
  RandomState random() const { return generator_.state(); }

  Tensor inputs, loss, norm;

 private:
  Device device_;
  Generator generator_;
  std::unique_ptr<nn::Linear> first_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<optim::Ema> average_;
};

template <class Optimizer, class Options>
std::unique_ptr<Optimizer> make(const nn::Module& module) {
  Options options;
  if constexpr (std::is_same_v<Options, SgdOptions>) options.momentum = 0.9;
  if constexpr (std::is_same_v<Options, MuonOptions>) {
    return std::make_unique<Optimizer>(module, options);
  } else {
    return std::make_unique<Optimizer>(optim::decay_groups(module, options));
  }
}

template <class Optimizer, class Options>
void check_replays() {
  const Device device = test::test_device();
  Training eager(device, make<Optimizer, Options>), graphed(device, make<Optimizer, Options>);
  cuda::Graph graph(device);
  for (int step = 0; step < 6; ++step) {
    eager.feed(step);
    eager.compute();
    graphed.feed(step);
    if (step == 2) graph.capture([&] { graphed.compute(); });
    if (step < 2) {
      graphed.compute();
    } else {
      graph.replay();
    }
    CAPTURE(step);
    CHECK(graphed.steps() == eager.steps());
    CHECK(graphed.random() == eager.random());
    CHECK(graphed.state() == eager.state());
  }
  CHECK(graph.nodes() > 5);
}

}  // namespace

TEST_CASE("a graph is refused where there is none") {
  CHECK_THROWS_AS(cuda::Graph{Device::cpu()}, Error);
}

TEST_CASE("replays of a step are the steps they stand for, bit for bit" *
          doctest::skip(!test::test_device().is_cuda())) {
  check_replays<optim::AdamW, AdamWOptions>();
  check_replays<optim::Lamb, LambOptions>();
  check_replays<optim::Sgd, SgdOptions>();
  check_replays<optim::Adam, AdamOptions>();
  check_replays<optim::RMSprop, RMSpropOptions>();
  check_replays<optim::Lion, LionOptions>();
  check_replays<optim::Muon, MuonOptions>();
  check_replays<optim::Adafactor, AdafactorOptions>();
}

TEST_CASE("a transformer's step as one launch is the same step, bit for bit" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  struct Model {
    explicit Model(Device on)
        : net([on] {
            manual_seed(3);
            return nn::SparseTransformerOptions{.vocabulary = 64,
                                                .context = 128,
                                                .width = 64,
                                                .layers = 2,
                                                .heads = 2,
                                                .block = 16,
                                                .pattern = causal,
                                                .dtype = bf16,
                                                .device = on};
          }()),
          optimizer(optim::decay_groups(net, AdamWOptions{})),
          tokens(zeros({4, 128}, i32, on)) {}
    void compute() {
      optimizer.zero_grad();
      const Variable l = cross_entropy(net.forward(tokens), tokens);
      l.backward();
      loss = l.data();
      optimizer.step({.norm = optim::grad_norm(net.parameters()), .max_norm = 1});
    }
    nn::SparseTransformer net;
    optim::AdamW optimizer;
    Tensor tokens, loss;
  };
  Model eager(device), graphed(device);
  cuda::Graph graph(device);
  for (int step = 0; step < 5; ++step) {
    Generator batch(static_cast<uint64_t>(step));
    const Tensor tokens = randint(0, 64, {4, 128}, i32, device, batch);
    for (Model* m : {&eager, &graphed}) {
      copy(tokens, m->tokens);
      m->optimizer.set_learning_rate(0.01 / (1 + step));
    }
    eager.compute();
    if (step < 2) {
      graphed.compute();
    } else {
      if (step == 2) graph.capture([&] { graphed.compute(); });
      graph.replay();
    }
    CAPTURE(step);
    CHECK(bytes_of(graphed.loss) == bytes_of(eager.loss));
    const auto a = eager.net.named_parameters(), b = graphed.net.named_parameters();
    for (size_t i = 0; i < a.size(); ++i) {
      CAPTURE(a[i].name);
      CHECK(bytes_of(a[i].variable.data()) == bytes_of(b[i].variable.data()));
    }
  }
}

TEST_CASE("dropout of attention draws anew from replay to replay" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const LayoutPtr layout = patterns::dense({.rows = 4, .block = 16});
  struct Attention {
    Attention(Device device, LayoutPtr blocks) : layout(std::move(blocks)) {
      Generator inputs(7);
      for (Variable* x : {&q, &k, &v})
        *x = Variable(randn({2, 3, 64, 32}, bf16, device, inputs), true);
    }
    void compute() {
      SparseAttentionOptions options{.dropout = 0.25};
      options.random = generator.next();
      const Variable out = sparse_attention(q, k, v, layout, options);
      q.zero_grad();
      out.backward(full(out.shape(), 1.0, bf16, out.device()));
      y = out.data();
    }
    std::vector<Bytes> state() const { return {bytes_of(contiguous(y)), bytes_of(q.grad())}; }
    LayoutPtr layout;
    Generator generator{11};
    Variable q, k, v;
    Tensor y;
  };
  Attention eager(device, layout), graphed(device, layout);
  cuda::Graph graph(device);
  Bytes last;
  for (int step = 0; step < 5; ++step) {
    CAPTURE(step);
    eager.compute();
    if (step == 2) graph.capture([&] { graphed.compute(); });
    step < 2 ? graphed.compute() : graph.replay();
    CHECK(graphed.state() == eager.state());
    const Bytes now = graphed.state().front();
    CHECK(now != std::exchange(last, now));
    CHECK(graphed.generator.state() == eager.generator.state());
  }
}

TEST_CASE("what a graph cannot record is named, and the device works on" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const Tensor x = full({8}, 2.0, f32, device);
  const Tensor host = zeros({8}, f32);
  cuda::Graph graph(device);
  const auto refused = [&](const char* text, const std::function<void()>& work) {
    CHECK_THROWS_WITH_AS(graph.capture(work), doctest::Contains(text), Error);
    CHECK(!graph.captured());
    CHECK_THROWS_WITH_AS(graph.replay(), doctest::Contains("before anything was recorded"), Error);
  };
  refused("item: reads a value of the device", [&] { x.select(0, 0).item(); });
  refused("copy: from cuda:0 to cpu while a graph is recorded", [&] { x.to(Device::cpu()); });
  refused("copy: from cpu to cuda:0 while a graph is recorded", [&] { host.to(device); });
  refused("synchronize: cuda:0", [&] { synchronize(device); });
  const Tensor lengths = full({2}, 3, i64, device);
  refused("transducer_packed_rows: reads lengths",
          [&] { transducer_packed_rows(lengths, lengths); });
  refused("graph: the current stream of cuda:0 is captured already", [&] {
    cuda::Graph inner(device);
    inner.capture([] {});
  });
  CHECK(add(x, x).select(0, 3).item() == 4);
}

TEST_CASE("a thread records a graph while another one does" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const test::Unguarded memory(device);
  const Tensor x = full({1000}, 1.0, f32, device);
  Tensor outer = add(x, x), inner = outer;
  cuda::Graph first(device), second(device);
  first.capture([&] {
    outer = add(x, x);
    std::async(std::launch::async, [&] {
      second.capture([&] { inner = add(add(x, x), x); });
      memory_resource(device).trim();
    }).get();
    outer = add(outer, x);
  });
  copy(full({1000}, 5.0, f32, device), x);
  first.replay();
  second.replay();
  CHECK(outer.select(0, 999).item() == 15);
  CHECK(inner.select(0, 999).item() == 15);
}

TEST_CASE("memory of a graph is its own, and goes with it" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const test::Unguarded memory(device);
  const int64_t before = memory_statistics(device).live;
  {
    const Tensor x = full({1000}, 1.0, f32, device);
    Tensor old = full({1000}, 5.0, f32, device);
    Tensor y;
    {
      cuda::Graph graph(device);
      graph.capture([&] {
        y = add(add(x, x), old);
        old = Tensor();
      });
      CHECK(graph.bytes() > 0);
      for (int i = 0; i < 3; ++i) {
        const Tensor other = full({1000}, 100.0, f32, device);  // takes no memory of the graph
        copy(full({1000}, static_cast<double>(i), f32, device), x);
        graph.replay();
        CHECK(y.select(0, 999).item() == 2 * i + 5);
      }
      // A second capture takes the place of the first.
      graph.capture([&] { y = add(x, x); });
      graph.replay();
      CHECK(y.select(0, 0).item() == 4);
    }
    CHECK(y.select(0, 0).item() == 4);
  }
  CHECK(memory_statistics(device).live == before);
}
