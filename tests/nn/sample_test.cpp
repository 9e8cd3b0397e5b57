#include <bs/nn/sample.h>

#include <bs/kernels/fill.h>
#include <bs/kernels/logic.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <limits>
#include <thread>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Tensor logits(const std::vector<double>& values, DType dtype = f32) {
  Reference r({static_cast<int64_t>(values.size())});
  r.values = values;
  return r.tensor(dtype, test_device());
}

nn::SparseTransformerOptions small() {
  return {.vocabulary = 7,
          .context = 16,
          .width = 16,
          .layers = 1,
          .heads = 2,
          .block = 8,
          .pattern = [](const patterns::Size& s) { return patterns::dense(s, {.causal = true}); },
          .device = test_device()};
}

/// Weights large enough for logits to differ.
void shout(nn::SparseTransformer& model) {
  for (const auto& [name, p] : model.named_parameters())
    p.set_data(random_reference(p.shape(), name.size()).tensor(f32, test_device()));
}

}  // namespace

TEST_CASE("sample: temperature 0 takes the likeliest, the first of equals") {
  for (DType dtype : {f64, f32, f16, bf16})
    CHECK(nn::sample(logits({1, 3, -2, 3}, dtype), {.temperature = 0}) == 1);
  CHECK(nn::sample(logits({-infinity, -infinity, -5}), {.temperature = 0}) == 2);
}

TEST_CASE("sample: classes come as often as the softmax says") {
  const std::vector<double> x{0, 1, -infinity, 2};
  for (const double temperature : {0.5, 1.0, 2.0})
    for (const int top_k : {0, 2}) {
      Generator generator(1);
      const int draws = 4000;
      std::vector<double> share(4), expected(4);
      for (int i = 0; i < draws; ++i)
        share[static_cast<size_t>(nn::sample(
            logits(x), {.temperature = temperature, .top_k = top_k}, generator))] += 1.0 / draws;
      double sum = 0;
      for (size_t i = 0; i < 4; ++i) {
        const bool kept = top_k == 0 || i == 1 || i == 3;
        sum += expected[i] = kept ? std::exp(x[i] / temperature) : 0;
      }
      for (size_t i = 0; i < 4; ++i) {
        const double p = expected[i] / sum;
        CHECK(std::abs(share[i] - p) <= 4 * std::sqrt(p * (1 - p) / draws));
      }
    }
}

TEST_CASE("sample: a top k of one, and one beyond all classes") {
  Generator generator(2);
  for (int i = 0; i < 20; ++i) CHECK(nn::sample(logits({0, 1, 0}), {.top_k = 1}, generator) == 1);
  CHECK(nn::sample(logits({0}), {.top_k = 100}, generator) == 0);
}

TEST_CASE("sample: errors") {
  CHECK_THROWS_WITH_AS(nn::sample(logits({0, std::nan("")})), "sample: some logits are NaN", Error);
  CHECK_THROWS_WITH_AS(nn::sample(logits({-infinity})), "sample: the largest logit is -inf", Error);
  CHECK_THROWS_WITH_AS(nn::sample(logits({})), "sample: logits [0] are not [classes]", Error);
  CHECK_THROWS_WITH_AS(nn::sample(logits({1}), {.temperature = -1}),
                       "sample: temperature -1, top k 0", Error);
}

TEST_CASE("generate: the likeliest continuation, at any length, also past the context") {
  nn::SparseTransformer model(small());
  shout(model);
  const std::vector<int64_t> prompt{1, 2, 3};
  std::vector<int64_t> seen;
  const std::vector<int64_t> made = nn::generate(
      model, prompt, {.count = 30, .sample = {.temperature = 0}, .on_token = [&](int64_t token) {
                        seen.push_back(token);
                      }});
  CHECK(made.size() == 30);
  CHECK(seen == made);
  const nn::GenerateOptions paged{.count = 30, .sample = {.temperature = 0}, .page = 3};
  CHECK(nn::generate(model, prompt, paged) == made);
  std::vector<int64_t> all = prompt;
  for (int64_t token : made) {
    // The last up to 16 tokens, padded with another number than generate's: nobody must look there.
    const size_t length = std::min<size_t>(all.size(), 16);
    Reference window({1, 16});
    std::fill(window.values.begin(), window.values.end(), 6.0);
    std::copy(all.end() - static_cast<std::ptrdiff_t>(length), all.end(), window.values.begin());
    const Reference out = Reference::of(model.forward(window.tensor(i64, test_device())).data());
    const double* row = &out.values[(length - 1) * 7];
    CHECK(std::max_element(row, row + 7) - row == token);
    all.push_back(token);
  }
}

TEST_CASE("generate_batch: each sequence goes on as by itself, also past the context") {
  nn::SparseTransformer model(small());
  shout(model);
  const std::vector<std::vector<int64_t>> prompts{{1, 2, 3}, {4}, {5, 6, 1, 0, 2, 3, 3}, {4}};
  const nn::GenerateOptions likeliest{.count = 20, .sample = {.temperature = 0}};
  const auto made = nn::generate_batch(model, prompts, likeliest);
  REQUIRE(made.size() == prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i)
    CHECK(made[i] == nn::generate(model, prompts[i], likeliest));
  CHECK(nn::generate_batch(model, {}, likeliest).empty());
  Generator one(4), two(4);
  CHECK(nn::generate_batch(model, prompts, {.count = 9}, one) ==
        nn::generate_batch(model, prompts, {.count = 9}, two));
  CHECK_THROWS_WITH_AS(nn::generate_batch(model, prompts, {.on_token = [](int64_t) {}}),
                       "generate_batch: on_token cannot tell sequences apart", Error);
}

TEST_CASE("generate: a context that slides keeps what was computed of its tokens") {
  nn::SparseTransformerOptions o = small();
  o.rope_base = 100;
  o.kv_heads = 1;
  nn::SparseTransformer model(o);  // of one layer, where keys and values follow from a token alone
  shout(model);
  for (const int64_t length : {3, 30}) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < length; ++i) all.push_back(i * 3 % 7);
    const nn::GenerateOptions sliding{.count = 40, .sample = {.temperature = 0}, .slide = 8};
    const std::vector<int64_t> made = nn::generate(model, all, sliding);
    nn::GenerateOptions paged = sliding;
    paged.page = 4;
    CHECK(nn::generate(model, all, paged) == made);
    int64_t first = std::max<int64_t>(0, length - 16);
    for (const int64_t token : made) {
      const auto count = static_cast<int64_t>(all.size());
      if (count - first > 16) first += 8;
      Reference window({1, count - first});
      std::copy(all.begin() + first, all.end(), window.values.begin());
      const Reference out = Reference::of(model.forward(window.tensor(i64, test_device())).data());
      const double* row = &out.values[static_cast<size_t>((count - first - 1) * 7)];
      CHECK(std::max_element(row, row + 7) - row == token);
      all.push_back(token);
    }
  }
  const nn::SparseTransformer learnt(small());
  CHECK_THROWS_WITH_AS(nn::generate(learnt, {1}, {.slide = 8}),
                       "generate: a context that slides by 8 tokens, of a model without RoPE",
                       Error);
  CHECK_THROWS_WITH_AS(nn::generate(model, {1}, {.slide = 16}),
                       "generate: a context of 16 tokens in pages of 0 cannot slide by 16", Error);
}

TEST_CASE("generate: a generator's state decides, and training goes on as before") {
  nn::SparseTransformerOptions o = small();
  o.dropout = 0.5;
  nn::SparseTransformer model(o);
  Generator one(4), two(4);
  const auto a = nn::generate(model, {1}, {.count = 12}, one);
  CHECK(a == nn::generate(model, {1}, {.count = 12}, two));
  CHECK(a != nn::generate(model, {1}, {.count = 12}, two));
  CHECK(model.training());
  model.eval();
  nn::generate(model, {1}, {.count = 1});
  CHECK(!model.training());
  CHECK(!model.blocks[0]->training());
}

TEST_CASE("generate: threads share a model that trains, whose dropout stays on") {
  nn::SparseTransformerOptions o = small();
  o.dropout = 0.5;
  nn::SparseTransformer model(o);
  shout(model);
  const nn::GenerateOptions likeliest{.count = 20, .sample = {.temperature = 0}};
  const auto expected = nn::generate(model, {3}, likeliest);
  std::vector<std::vector<int64_t>> made(3);
  std::atomic<int> off = 0;
  {
    std::vector<std::jthread> threads;
    for (auto& tokens : made)
      threads.emplace_back([&] {
        Generator mine(1);
        nn::GenerateOptions watched = likeliest;
        watched.on_token = [&](int64_t) { off += model.training() ? 0 : 1; };
        tokens = nn::generate(model, {3}, watched, mine);
      });
    const Tensor input = full({1, 16}, 2, i64, test_device());
    const NoGrad no_grad;
    for (int i = 0; i < 8; ++i) {
      const Tensor a = model.forward(input).data(), b = model.forward(input).data();
      CHECK(!allclose(a, b));
    }
  }
  for (const auto& tokens : made) CHECK(tokens == expected);
  CHECK(off == 0);
}

TEST_CASE("EvalMode: this thread uses a model that stays in training") {
  nn::SparseTransformerOptions o = small();
  o.dropout = 0.5;
  nn::SparseTransformer model(o);
  shout(model);
  const Tensor tokens = full({1, 16}, 2, i64, test_device());
  model.eval();
  const Tensor expected = model.forward(tokens).data();
  model.train();
  {
    const NoGrad no_grad;
    const nn::EvalMode eval;
    const Variable logits = model.forward(tokens);
    CHECK(allclose(logits.data(), expected));
    CHECK(!model.training());
    CHECK(std::async(std::launch::async, [&] { return model.training(); }).get());
    { const nn::EvalMode again; }
    CHECK(!model.training());
  }
  CHECK(model.training());
}

TEST_CASE("generate: errors") {
  nn::SparseTransformer model(small());
  CHECK_THROWS_WITH_AS(nn::generate(model, {}), "generate: an empty prompt", Error);
  nn::SparseTransformerOptions o = small();
  o.causal = false;
  nn::SparseTransformer both_ways(o);
  CHECK_THROWS_WITH_AS(nn::generate(both_ways, {1}), "generate: the model is not causal", Error);
}
