#include <bs/autograd/binary.h>
#include <bs/autograd/block_sparse_linear.h>
#include <bs/autograd/gather.h>
#include <bs/autograd/gru.h>
#include <bs/autograd/kron.h>
#include <bs/autograd/kron_solve.h>
#include <bs/autograd/linear.h>
#include <bs/autograd/lstm.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/rnn.h>
#include <bs/autograd/soft_cross_entropy.h>
#include <bs/autograd/sort.h>
#include <bs/autograd/sparse_attention.h>
#include <bs/autograd/tape.h>
#include <bs/autograd/unary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/random.h>
#include <bs/kernels/sgd.h>
#include <bs/lib/changes.h>
#include <bs/lib/patterns.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <string>
#include <thread>

using namespace bs;
using bs::test::test_device;

namespace {

Variable leaf(const Shape& shape) { return Variable(ones(shape, f64), true); }

Tensor diagonal(int64_t n) {
  const Tensor unit = zeros({n, n}, f64);
  for (int64_t i = 0; i < n; ++i) unit.data<double>()[i * n + i] = 1;
  return unit;
}

void step(const Variable& x) {
  const SgdParameter parameter{
      .value = x.data(), .gradient = ones(x.shape(), x.dtype()), .momentum = {}, .master = {}};
  sgd({&parameter, 1}, {.learning_rate = .5});
}

Variable random_f32(const Shape& shape, uint64_t seed) {
  return Variable(test::random_reference(shape, seed).tensor(f32, test_device()), true);
}

void refuses(const Variable& loss, const char* text) {
  CHECK_THROWS_WITH_AS(loss.backward(), doctest::Contains(text), Error);
}

}  // namespace

TEST_CASE("saved tensors: a change in place before backward names both operations") {
  const Variable x = leaf({2, 3}), y = leaf({2, 3});
  const Variable loss = sum(mul(x, y));
  step(x);
  CHECK_THROWS_WITH_AS(loss.backward(),
                       "backward: mul saved a tensor f64 [2, 3] that sgd has changed in place "
                       "since; run backward before the change, or change a clone",
                       Error);
  CHECK(!x.grad().defined());
}

TEST_CASE("saved tensors: results and views count, other memory doesn't") {
  const Variable x = leaf({4, 3});
  const Variable y = exp(x);
  fill(y.data().slice(0, 1, 2), 7);
  CHECK_THROWS_WITH_AS(sum(y).backward(),
                       doctest::Contains("exp saved a tensor f64 [4, 3] that fill"), Error);
  const IndexedVariable sorted = sort(x, -1);
  fill(sorted.indices, 0);
  CHECK_THROWS_WITH_AS(sum(sorted.values).backward(),
                       doctest::Contains("sort saved a tensor i64 [4, 3] that fill"), Error);
  const Variable deviation = stddev(x);
  step(x);
  CHECK_THROWS_WITH_AS(deviation.backward(), doctest::Contains("stddev saved"), Error);
  const Tensor rows = ones({4, 3}, f64);
  const Variable product = sum(mul(rows.slice(0, 0, 2), leaf({2, 3})));
  fill(rows.slice(0, 2, 4), 9);  // beside what was saved
  CHECK_NOTHROW(product.backward());
}

TEST_CASE("saved tensors: what was not saved may change") {
  const Variable x = leaf({5}), y = leaf({5});
  const Variable loss = sum(add(x, y));
  step(x);
  CHECK_NOTHROW(loss.backward());
  const Variable before = sum(mul(x, y));
  before.backward();
  step(x);  // after backward
  CHECK_NOTHROW(sum(mul(x, y)).backward());
}

TEST_CASE("saved tensors: weights in structs, targets and batches are watched") {
  const Variable x = leaf({6, 4}), weight = leaf({3, 4}), bias = leaf({3});
  const Variable y = sum(linear(x, weight, bias));
  copy(zeros({3, 4}, f64), weight.data());
  CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("linear saved"), Error);

  const Variable sequence = leaf({2, 3, 4});
  const LSTMDirectionVariables direction{
      .weights = {
          .ih = leaf({8, 4}), .hh = leaf({8, 2}), .bias_ih = leaf({8}), .bias_hh = leaf({8})}};
  const Variable out = sum(lstm(sequence, {&direction, 1}, {}).front().y);
  normal_(direction.weights.hh.data(), 0, 1);
  CHECK_THROWS_WITH_AS(out.backward(),
                       doctest::Contains("lstm saved a tensor f64 [8, 2] that normal_"), Error);
}

TEST_CASE("saved tensors: weights and states of recurrent layers are watched") {
  const Variable x = leaf({2, 3, 4});
  const auto direction = [](int64_t gates) {
    return RecurrentDirectionVariables{.weights = {.ih = leaf({2 * gates, 4}),
                                                   .hh = leaf({2 * gates, 2}),
                                                   .bias_ih = leaf({2 * gates}),
                                                   .bias_hh = leaf({2 * gates})}};
  };
  const RecurrentDirectionVariables g = direction(3), r = direction(1);
  Variable loss = sum(gru(x, {&g, 1}, {}).front().y);
  step(g.weights.hh);
  CHECK_THROWS_WITH_AS(loss.backward(), doctest::Contains("gru saved a tensor f64 [6, 2] that sgd"),
                       Error);
  loss = sum(rnn(x, {&r, 1}, Nonlinearity::tanh, {}).front().y);
  step(x);
  CHECK_THROWS_WITH_AS(loss.backward(),
                       doctest::Contains("rnn saved a tensor f64 [2, 3, 4] that sgd"), Error);
  const RecurrentStates states = rnn(x, {&r, 1}, Nonlinearity::tanh, {}).front();
  fill(states.y.data(), 0);
  CHECK_THROWS_WITH_AS(sum(states.y).backward(),
                       doctest::Contains("rnn saved a tensor f64 [2, 3, 2] that fill"), Error);
}

TEST_CASE(
    "saved tensors: factors, solutions and decompositions of Kronecker products are watched") {
  const auto identity = [](int64_t n) { return Variable(diagonal(n), true); };
  const Variable b = leaf({2, 6}), w = identity(2), v = identity(3), shift(ones({}, f64), true);

  const Variable product = kron_matmul(b, {w, v}, {}, {.activation = Activation::tanh});
  fill(product.data(), 0);
  refuses(sum(product), "kron_matmul saved a tensor f64 [2, 6] that fill");

  Variable loss = sum(kron_solve(b, {w, v}));
  step(v);
  refuses(loss, "kron_solve saved a tensor f64 [3, 3] that sgd");
  const Variable x = kron_solve(b, {w, v});
  fill(x.data(), 0);
  refuses(sum(x), "kron_solve saved a tensor f64 [2, 6] that fill");

  const KronEigh eigh = kron_eigh({w.data(), v.data()});
  loss = sum(kron_shifted_solve(b, {w, v}, shift, eigh));
  step(w);
  refuses(loss, "kron_shifted_solve saved a tensor f64 [2, 2] that sgd");
  loss = kron_shifted_logdet({w, v}, shift, eigh);
  step(w);  // only the decomposition is needed
  fill(eigh.vectors[1], 0);
  refuses(loss, "kron_shifted_logdet saved a tensor f64 [3, 3] that fill");
}

TEST_CASE("saved tensors: attention's operands, result, masks and biases are watched") {
  const LayoutPtr layout = patterns::dense({.heads = 1, .rows = 1, .cols = 1, .block = 8});
  const Shape square{1, 1, 8, 8};
  const Variable q = random_f32(square, 1), k = random_f32(square, 2), v = random_f32(square, 3);
  const auto changed = [&](const Tensor& x, const char* text, const SparseAttentionOptions& options,
                           const SparseAttentionVariables& learnt = {}) {
    const Variable loss = sum(sparse_attention(q, k, v, layout, options, learnt));
    fill(x, 0);
    refuses(loss, text);
  };
  const Tensor keys = ones({1, 8}, boolean, test_device());
  changed(keys, "sparse_attention saved a tensor bool [1, 8] that fill",
          {.key_padding_mask = keys});
  const Tensor mask = ones(square, boolean, test_device());
  changed(mask, "sparse_attention saved a tensor bool [1, 1, 8, 8] that fill", {.mask = mask});
  const Tensor slopes = ones({1}, f32, test_device());
  changed(slopes, "sparse_attention saved a tensor f32 [1] that fill", {.alibi_slopes = slopes});
  const Variable bias = random_f32(square, 4), table = random_f32({1, 5}, 5),
                 sinks = random_f32({1}, 6);
  changed(bias.data(), "sparse_attention saved a tensor f32 [1, 1, 8, 8] that fill", {},
          {.bias = bias});
  changed(bias.data(), "sparse_attention saved a tensor f32 [1, 1, 8, 8] that fill",
          {.bias = bias.data()});
  changed(table.data(), "sparse_attention saved a tensor f32 [1, 5] that fill", {},
          {.relative_bias = table});
  changed(sinks.data(), "sparse_attention saved a tensor f32 [1] that fill", {}, {.sinks = sinks});

  const Variable out = sparse_attention(q, k, v, layout);
  fill(out.data(), 0);
  refuses(sum(out), "sparse_attention saved a tensor f32 [1, 1, 8, 8] that fill");
  changed(k.data(), "sparse_attention saved a tensor f32 [1, 1, 8, 8] that fill", {});

  const Variable qkv = random_f32({1, 8, 24}, 7);
  const Variable joined = sparse_attention_qkv(qkv, 1, layout);
  fill(joined.data(), 0);
  refuses(sum(joined), "sparse_attention_qkv saved a tensor f32 [1, 8, 8] that fill");
  const Variable loss = sum(sparse_attention_qkv(qkv, 1, layout, {.key_padding_mask = keys}));
  fill(keys, 1);
  refuses(loss, "sparse_attention_qkv saved a tensor bool [1, 8] that fill");
  CHECK_NOTHROW(sum(sparse_attention_qkv(qkv, 1, layout)).backward());
}

TEST_CASE("saved tensors: results of block-sparse layers, indices and soft targets are watched") {
  const LayoutPtr layout = patterns::dense({.heads = 1, .rows = 1, .cols = 1, .block = 8});
  const Variable x = random_f32({4, 8}, 1), weight = random_f32({1, 8, 8}, 2);
  Variable y = block_sparse_linear(x, {layout, weight}, {}, Activation::relu);
  fill(y.data(), 0);
  refuses(sum(y), "block_sparse_linear saved a tensor f32 [4, 8] that fill");
  y = block_sparse_linear(x, {layout, weight}, {}, Activation::none);
  fill(y.data(), 0);
  CHECK_NOTHROW(sum(y).backward());

  const Tensor rows = Tensor::from<int64_t>({0, 1}).to(test_device());
  Variable loss = sum(index(x, {rows}));
  fill(rows, 2);
  refuses(loss, "index saved a tensor i64 [2] that fill");
  loss = sum(index_put(x, {rows}, random_f32({2, 8}, 3), true));
  fill(rows, 1);
  refuses(loss, "index_put saved a tensor i64 [2] that fill");

  const Tensor likely = full({4, 8}, .125, f32, test_device());
  loss = soft_cross_entropy(x, likely);
  fill(likely, 0);
  refuses(loss, "soft_cross_entropy saved a tensor f32 [4, 8] that fill");
}

TEST_CASE("saved tensors: thousands of other changes are no change") {
  const Variable x = leaf({5}), y = leaf({5});
  const Variable loss = sum(mul(x, y));
  const Tensor other = ones({5}, f64);
  const Tensor alias = other;
  std::thread([&] {
    for (int i = 0; i < 5000; ++i) fill(other, i);
  }).join();
  CHECK_NOTHROW(loss.backward());
}

TEST_CASE("saved tensors: a change is remembered over thousands of later ones") {
  const Variable x = leaf({4, 3}), y = leaf({4, 3});
  const Variable loss = sum(mul(x, y));
  fill(x.data().slice(0, 2, 4), 7);
  const Tensor other = ones({3}, f64);
  const Tensor alias = other;
  for (int i = 0; i < 10000; ++i) fill(other, i);
  CHECK_THROWS_WITH_AS(loss.backward(), doctest::Contains("f64 [4, 3] that fill has changed"),
                       Error);
}

TEST_CASE("note_change: only memory that others share is remembered") {
  const uint64_t before = change_count();
  const Tensor x = ones({3}, f64);
  fill(x, 2);
  CHECK(change_count() == before);
  const Tensor reversed = x.as_strided({3}, {-1}, 2);
  note_change(reversed, "own");
  REQUIRE(changed_since(x.slice(0, 0, 1), before));
  CHECK(std::string(changed_since(x.slice(0, 0, 1), before)) == "own");
  CHECK(changed_since(x, change_count()) == nullptr);
  note_change(x.slice(0, 1, 1), "empty");
  note_change({}, "undefined");
  CHECK(change_count() == before + 1);
}

TEST_CASE("changed_since: parts of memory have their own last change") {
  const Tensor x = ones({8}, f64);
  const Tensor low = x.slice(0, 0, 4), middle = x.slice(0, 2, 6), last = x.slice(0, 7, 8);
  const auto since = [](const Tensor& part, uint64_t moment) {
    const char* const by = changed_since(part, moment);
    return std::string(by ? by : "nothing");
  };
  const uint64_t start = change_count();
  note_change(x, "whole");
  const uint64_t after_whole = change_count();
  note_change(middle, "middle");
  const uint64_t after_middle = change_count();
  CHECK(since(last, start) == "whole");
  CHECK(since(last, after_whole) == "nothing");
  CHECK(since(low, after_whole) == "middle");
  CHECK(since(x.slice(0, 0, 2), after_whole) == "nothing");
  CHECK(since(x.slice(0, 0, 2), start) == "whole");
  note_change(low, "low");
  CHECK(since(middle, after_middle) == "low");
  CHECK(since(x.slice(0, 4, 6), after_middle) == "nothing");
  CHECK(since(x.slice(0, 4, 6), after_whole) == "middle");
  const uint64_t after_low = change_count();
  note_change(x, "whole again");
  for (int i = 0; i < 8; ++i) CHECK(since(x.slice(0, i, i + 1), after_low) == "whole again");
  CHECK(since(x, change_count()) == "nothing");
}

TEST_CASE("changed_since: where too much is remembered, old changes are taken for possible") {
  const Tensor x = ones({3}, f64), same = x;
  const uint64_t before = change_count();
  fill(x, 2);
  const Tensor rows = ones({2 << 16}, u8), alias = rows;
  for (int64_t i = 0; i < rows.numel(); i += 2) note_change(rows.slice(0, i, i + 1), "row");
  CHECK(changed_since(x, before) != nullptr);  // never forgotten without a word
  const uint64_t now = change_count();
  CHECK(changed_since(x, now) == nullptr);
  note_change(rows, "rows");
  CHECK(changed_since(x, now) == nullptr);
  CHECK(std::string(changed_since(rows.slice(0, 5, 6), now)) == "rows");
}
