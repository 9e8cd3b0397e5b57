// Queries that find the item with their key in a set: cross-attention with a padding mask.
#include <bs/nn.h>

#include <cstdio>
#include <cstdlib>

using namespace bs;

namespace {

constexpr int64_t items = 12, classes = 8, width = 32;

/// Keys and values of `items` items, of which only the first `lengths` count; a query for one.
struct Batch {
  Tensor keys, values;  ///< [batch, items]
  Tensor query;         ///< [batch, 1]: the key that is looked for
  Tensor answer;        ///< [batch]: its value
  Tensor mask;          ///< [batch, items], true for what counts
};

Batch make(int64_t batch) {
  const Tensor keys = argsort(rand({batch, items}), 1);  // every key once
  const Tensor values = randint(0, classes, {batch, items});
  const Tensor lengths = randint(4, items + 1, {batch, 1});
  const Tensor wanted = remainder(randint(0, 1000, {batch, 1}), lengths);
  return {keys, values, gather(keys, 1, wanted), gather(values, 1, wanted).squeeze(1),
          lt(arange(items), lengths)};
}

struct Finder : nn::Module {
  nn::Embedding key{{.rows = items, .width = width}};
  nn::Embedding value{{.rows = classes, .width = width}};
  nn::MultiheadAttention attention{{.width = width, .heads = 4, .block = 16}};
  nn::Linear head{{.in = width, .out = classes}};
  Finder() {
    register_module("key", key);
    register_module("value", value);
    register_module("attention", attention);
    register_module("head", head);
  }
  Variable forward(const Batch& b) const {
    const Variable found = attention.forward(key.forward(b.query), key.forward(b.keys),
                                             value.forward(b.values), {.key_padding_mask = b.mask});
    return head.forward(squeeze(found, 1));
  }
};

}  // namespace

int main() {
  manual_seed(5);
  Finder model;
  optim::AdamW optimizer(model, {.learning_rate = 5e-3});
  for (int step = 1; step <= 300; ++step) {
    const Batch batch = make(64);
    optimizer.zero_grad();
    const Variable loss = cross_entropy(model.forward(batch), batch.answer);
    loss.backward();
    optimizer.step();
    if (step % 100 == 0) std::printf("step %d: loss %.3f\n", step, loss.data().item());
  }
  const NoGrad guard;
  const Batch test = make(500);
  const Tensor guessed = argmax(model.forward(test).data(), 1);
  const double right = mean(cast(eq(guessed, test.answer), f32)).item();
  std::printf("found %.1f %%\n", 100 * right);
  return right > 0.9 ? EXIT_SUCCESS : EXIT_FAILURE;
}
