// The code of README.md: the test `snippets` compares its blocks with this file.
#include <bs/nn.h>
#include <doctest/doctest.h>

#include <cstdio>

TEST_CASE("README: attention over a pattern") {
  using namespace bs;
  // Which 32 x 32 blocks of a 512 x 512 attention matrix are computed: a pattern of the literature,
  // or Layout::from_mask for one of your own.
  const LayoutPtr layout = patterns::fixed({.rows = 16, .block = 32}, {.causal = true});
  std::puts(to_string(*layout).c_str());

  const Shape shape{2, 4, 512, 64};  // batch, heads, positions, features of a head
  const Variable q(randn(shape), true), k(randn(shape), true), v(randn(shape), true);
  const Variable y = sparse_attention(q, k, v, layout, {.causal = true});
  mean(y * y).backward();  // q.grad(), k.grad(), v.grad()

  CHECK(y.shape() == shape);
  CHECK(q.grad().shape() == shape);
}

TEST_CASE("README: a training step") {
  using namespace bs;
  nn::SparseTransformer model({
      .context = 128,
      .width = 64,
      .layers = 2,
      .heads = 2,
      .block = 16,
      .pattern = [](const patterns::Size& size) { return patterns::sliding_window(size); },
      .device = cuda_available() ? Device::cuda() : Device::cpu(),
  });
  optim::AdamW optimizer(model, {.learning_rate = 1e-3});
  const data::TextDataset text = data::TextDataset::from(std::string(4096, 'a'));  // or of a file
  data::Loader loader(text, {.batch = 4, .context = 128, .device = model.head.weight.device()});

  double first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    const data::Batch batch = loader.next();
    optimizer.zero_grad();
    const Variable loss = cross_entropy(model.forward(batch.inputs), batch.targets);
    loss.backward();
    optimizer.step();
    last = loss.data().item();
    if (step == 0) first = last;
  }
  CHECK(last < first / 2);
}
