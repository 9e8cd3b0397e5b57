// The code of docs/getting_started.md and docs/from_pytorch.md; see snippets_test.cpp.
#include <bs/nn.h>
#include <doctest/doctest.h>

#include <cstdio>

TEST_CASE("getting started: fit a function") {
  using namespace bs;
  manual_seed(1);
  const Device device = cuda_available() ? Device::cuda() : Device::cpu();

  nn::Sequential model;
  model.add<nn::Linear>({.in = 2, .out = 64, .device = device});
  model.add<nn::Tanh>();
  model.add<nn::Linear>({.in = 64, .out = 1, .device = device});
  optim::AdamW optimizer(model, {.learning_rate = 1e-2});

  const Tensor x = rand({256, 2}, f32, device);
  const Tensor y = x.slice(1, 0, 1) * x.slice(1, 1, 2);  // what the model is to learn
  double last = 0;
  for (int step = 1; step <= 200; ++step) {
    optimizer.zero_grad();
    const Variable error = model.forward(x) - y;
    const Variable loss = mean(error * error);
    loss.backward();
    optimizer.step();
    last = loss.data().item();
    if (step % 50 == 0) std::printf("step %d: loss %.5f\n", step, last);
  }

  CHECK(last < 0.01);
}

TEST_CASE("from PyTorch: a module and a step") {
  using namespace bs;
  struct Net : nn::Module {
    nn::Linear fc1{{.in = 8, .out = 16}};
    nn::Linear fc2{{.in = 16, .out = 4}};
    Net() {
      register_module("fc1", fc1);
      register_module("fc2", fc2);
    }
    Variable forward(const Variable& x) const { return fc2.forward(relu(fc1.forward(x))); }
  };

  Net net;
  optim::Sgd optimizer(net, {.learning_rate = 0.1, .momentum = 0.9});
  const Tensor inputs = randn({32, 8});
  const Tensor classes = randint(0, 4, {32});

  optimizer.zero_grad();
  const Variable loss = cross_entropy(net.forward(inputs), classes);
  loss.backward();
  optimizer.step();
  std::printf("%.4f\n", loss.data().item());

  CHECK(net.named_parameters().size() == 4);
  CHECK(net.named_parameters()[0].name == "fc1.weight");
}

TEST_CASE("from PyTorch: what the tables write") {
  using namespace bs;
  const Variable x(randn({2, 6}), true);
  CHECK(view(x, {4, -1}).shape() == Shape{4, 3});
  CHECK(reshape(transpose(x, 0, 1), {4, -1}).shape() == Shape{4, 3});
  CHECK(permute(x, {1, 0}).shape() == Shape{6, 2});
  CHECK(slice(x, 1, 2, 5).shape() == Shape{2, 3});
  CHECK(select(x, 1, 2).shape() == Shape{2});
  CHECK(index_select(x, 1, arange(3)).shape() == Shape{2, 3});
  CHECK(concat({x, x}, 0).shape() == Shape{4, 6});
  CHECK(chunk(x, 2, 1).size() == 2);
  CHECK(matmul(x, transpose(x, 0, 1)).shape() == Shape{2, 2});
  CHECK(sum(x, Dims{1}, true).shape() == Shape{2, 1});
  CHECK(amax(x, Dims{1}).shape() == Shape{2});
  CHECK(argmax(x.data(), 1).shape() == Shape{2});
  CHECK(where(lt(x.data(), 0), x, 0.0).shape() == x.shape());
  CHECK(cast(x, bf16).dtype() == bf16);
  CHECK(to(x, Device::cpu()).device().is_cpu());
  CHECK(x.size(-1) == 6);
  CHECK(max(x, 1).values.shape() == Shape{2});
  CHECK(at(x, {Slice(), Slice(2, 5)}).shape() == Shape{2, 3});
  CHECK(at(x, {Ellipsis(), None(), -1}).shape() == Shape{2, 1});
  CHECK(masked_fill(x, x.data() < 0, 0).shape() == x.shape());
  CHECK(gather(x, 1, zeros({2, 1}, i64)).shape() == Shape{2, 1});
  CHECK(topk(x, 2, 1).indices.shape() == Shape{2, 2});
  CHECK(repeat(x, {2, 3}).shape() == Shape{4, 18});
  CHECK(einsum("ij,kj->ik", {x, x}).shape() == Shape{2, 2});
  CHECK(vector_norm(x, 2, Dims{1}).shape() == Shape{2});
  CHECK(multinomial(ones({3}), 2, {.replacement = true}).shape() == Shape{2});
  CHECK(mse_loss(x, zeros({2, 6})).rank() == 0);
  CHECK(all(logical_or(x.data() < 1, x.data() >= 1)).item() == 1);
  sum(x * 2).backward({.retain_graph = true});
  CHECK(x.grad().defined());
  CHECK(memory_statistics(Device::cpu()).peak > 0);
}
