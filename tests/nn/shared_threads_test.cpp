// What docs/threads.md says that threads may share: tensors, layers, and the path of a file.
#include <bs/autograd/binary.h>
#include <bs/autograd/reduce.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/random.h>
#include <bs/lib/file.h>
#include <bs/lib/patterns.h>
#include <bs/nn/conv2d.h>
#include <bs/nn/linear.h>
#include <bs/nn/lstm.h>
#include <bs/nn/norm.h>
#include <bs/nn/transformer.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <thread>

using namespace bs;
using namespace bs::test;

namespace {

constexpr int team = 4;

/// Calls work(thread) on several threads at once. What doctest checks it checks afterwards.
void at_once(const std::function<void(int)>& work) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < team; ++t) threads.emplace_back([&work, t] { work(t); });
}

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }

LayoutPtr causal(const patterns::Size& size) { return patterns::dense(size, {.causal = true}); }

/// Each thread gives the layer an input of its own, forward and backward, several times.
void share(const nn::Module& layer, const std::function<Variable(int)>& forward) {
  std::vector<std::vector<double>> expected;
  std::vector<double> gradient;
  for (int t = 0; t < team; ++t) {
    const Variable y = forward(t);
    expected.push_back(values(y.data()));
    sum(y * y).backward();
  }
  const auto parameters = layer.parameters();
  for (const Variable& p : parameters) {
    for (const double x : values(p.grad())) gradient.push_back(x);
    p.zero_grad();
  }
  constexpr int rounds = 5;
  std::atomic<int> wrong = 0;
  at_once([&](int t) {
    for (int i = 0; i < rounds; ++i) {
      const Variable y = forward(t);
      wrong += values(y.data()) != expected[static_cast<size_t>(t)];
      sum(y * y).backward();
    }
  });
  CHECK(wrong == 0);
  size_t i = 0;  // none is lost; the order of additions, and so the last bits, is not fixed
  for (const Variable& p : parameters)
    for (const double x : values(p.grad()))
      CHECK(x == doctest::Approx(rounds * gradient[i++]).epsilon(1e-4).scale(1));
}

}  // namespace

TEST_CASE("threads: run one layer forward and backward at once") {
  const Device device = test_device();
  std::vector<Tensor> flat, steps, images, tokens;
  for (int t = 0; t < team; ++t) {
    flat.push_back(randn({3, 8}, f32, device));
    steps.push_back(randn({5, 2, 8}, f32, device));
    images.push_back(randn({2, 4, 6, 6}, f32, device));
    tokens.push_back(full({2, 16}, t, i64, device));
  }
  const auto at = [](const std::vector<Tensor>& all, int t) { return all[static_cast<size_t>(t)]; };
  const nn::Linear linear({.in = 8, .out = 4, .device = device});
  share(linear, [&](int t) { return linear.forward(at(flat, t)); });
  const nn::LayerNorm norm({.width = 8, .device = device});
  share(norm, [&](int t) { return norm.forward(at(flat, t)); });
  const nn::LSTM lstm({.input = 8, .hidden = 8, .device = device});
  share(lstm, [&](int t) { return lstm.forward(at(steps, t)).y; });
  const nn::Conv2d conv({.in = 4, .out = 4, .device = device});
  share(conv, [&](int t) { return conv.forward(at(images, t)); });
  const nn::SparseTransformer model({.vocabulary = 8,
                                     .context = 16,
                                     .width = 16,
                                     .layers = 1,
                                     .heads = 2,
                                     .block = 8,
                                     .pattern = causal,
                                     .device = device});
  share(model, [&](int t) { return model.forward(at(tokens, t)); });
}

TEST_CASE("threads: read one tensor, copy its handle, and make views of it") {
  const Tensor x = randn({16, 16}, f32, test_device());
  const std::vector<double> expected = values(x.transpose(0, 1));
  std::atomic<int> wrong = 0;
  at_once([&](int) {
    for (int i = 0; i < 50; ++i) {
      const Tensor handle = x, view = handle.transpose(0, 1);
      wrong += values(view) != expected;
      wrong += !view.shares_storage(x) || view.use_count() < 3;
    }
  });
  CHECK(wrong == 0);
  CHECK(x.use_count() == 1);
}

TEST_CASE("threads: of several that write one file the last wins, and nobody reads a mixture") {
  const Scratch folder;
  const std::string path = folder / "file";
  constexpr size_t size = 100'000;
  write_file(path, std::string(size, 'x'));
  std::atomic<int> wrong = 0;
  at_once([&](int t) {
    for (int i = 0; i < 10; ++i) {
      const std::string content(size, static_cast<char>('a' + t));
      AtomicFile file(path);
      file.write(content.data(), size / 2);
      file.write(content.data(), size / 2);
      if (i % 3 != 2) file.commit();
      const std::string read = read_file(path);
      wrong += read.size() != size || read.find_first_not_of(read[0]) != std::string::npos;
    }
  });
  CHECK(wrong == 0);
  CHECK(folder.files() == 1);
}
