// nn::MultiheadAttention against torch.nn.MultiheadAttention: results and gradients recorded in
// double by golden/record_attention.py. Caches against attention over all tokens at once.
#include <bs/autograd/binary.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/view.h>
#include <bs/kernels/copy.h>
#include <bs/nn/multihead_attention.h>
#include <bs/tests/nn/golden/recorded.h>
#include <bs/tests/support/devices.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

constexpr int64_t batch = 3, queries = 9, width = 12;

void run(const RecordedCase& c, DType dtype, double tolerance) {
  const bool cross = c.options[0] != 0, causal = c.options[4] != 0, padding = c.options[5] != 0;
  const int64_t key_width = c.options[1], value_width = c.options[2];
  CAPTURE(to_string(dtype));
  const nn::MultiheadAttention layer({.width = width,
                                      .heads = 3,
                                      .key_width = key_width,
                                      .value_width = value_width,
                                      .bias = c.options[3] != 0,
                                      .block = 8,
                                      .causal = causal,
                                      .dtype = dtype,
                                      .device = test_device()});
  auto parameters = layer.named_parameters();
  std::sort(parameters.begin(), parameters.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto tensor = [&](const Shape& shape, uint32_t number, double scale = 1) {
    Reference r = formula(shape, number);
    for (double& v : r.values) v *= scale;
    return r.tensor(dtype, test_device());
  };
  uint32_t number = 10;
  for (const auto& [name, p] : parameters) p.set_data(tensor(p.shape(), number++, 0.5));
  const int64_t keys = cross ? 11 : queries;
  const Variable query(tensor({batch, queries, width}, 1), true);
  const Variable key = cross ? Variable(tensor({batch, keys, key_width}, 2), true) : query;
  const Variable value = cross ? Variable(tensor({batch, keys, value_width}, 3), true) : query;
  nn::MultiheadAttentionMasks masks;
  if (padding) {
    constexpr int64_t lengths[] = {9, 4, 1};
    Reference keep({batch, keys});
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t j = 0; j < lengths[b]; ++j) keep.at({b, j}) = 1;
    masks.key_padding_mask = keep.tensor(boolean, test_device());
  }
  const Variable y = layer.forward(query, key, value, masks);
  sum(y * Variable(tensor(y.shape(), 4))).backward();
  check_recorded("y", y.data(), c.tensors.at("y"), tolerance);
  check_recorded("dquery", query.grad(), c.tensors.at("dquery"), tolerance);
  if (cross) {
    check_recorded("dkey", key.grad(), c.tensors.at("dkey"), tolerance);
    check_recorded("dvalue", value.grad(), c.tensors.at("dvalue"), tolerance);
  }
  CHECK(parameters.size() + (cross ? 4 : 2) == c.tensors.size());
  for (const auto& [name, p] : parameters)
    check_recorded(name, p.grad(), c.tensors.at(name), tolerance);
}

}  // namespace

// Heads of 4 features are the CPU's alone.
TEST_CASE("nn::MultiheadAttention computes what torch.nn.MultiheadAttention computes" *
          doctest::skip(!test_device().is_cpu())) {
  const auto cases = read_recorded(BS_GOLDEN "/attention.txt");
  CHECK(cases.size() == 4);
  for (const RecordedCase& c : cases) {
    run(c, f64, 1e-12);
    run(c, f32, 1e-5);
  }
}

TEST_CASE("nn::MultiheadAttention with a cache gives what it gives for all tokens at once") {
  for (const bool turned : {false, true}) {
    nn::MultiheadAttention layer({.width = 32,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .block = 8,
                                  .causal = true,
                                  .window_before = 11,
                                  .rope_base = turned ? 10000.0 : 0.0,
                                  .query_key_norm = turned,
                                  .dtype = f64,
                                  .device = test_device()});
    layer.eval();
    const Tensor x = random_reference({2, 21, 32}, 1).tensor(f64, test_device());
    const Reference all = Reference::of(layer.forward(Variable(x)).data());
    nn::KVCache cache = layer.make_cache(2, 21);
    int64_t at = 0;
    for (const int64_t tokens : {6, 1, 1, 9, 4}) {
      const Tensor y = layer.forward(Variable(x.slice(1, at, at + tokens)), cache).data();
      const Reference part = Reference::of(y);
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t i = 0; i < tokens; ++i)
          for (int64_t e = 0; e < 32; ++e)
            CHECK(part.at({b, i, e}) == doctest::Approx(all.at({b, at + i, e})).epsilon(1e-10));
      at += tokens;
    }
    CHECK(cache.length() == 21);
    CHECK_THROWS_WITH_AS(layer.forward(Variable(x.slice(1, 0, 1)), cache),
                         "kv_cache: 22 tokens for a capacity of 21", Error);
    cache.truncate(20);
    const Reference last = Reference::of(layer.forward(Variable(x.slice(1, 20, 21)), cache).data());
    CHECK(last.at({1, 0, 3}) == doctest::Approx(all.at({1, 20, 3})).epsilon(1e-10));
  }
}

TEST_CASE("nn::MultiheadAttention: masks of both kinds hide alike") {
  const nn::MultiheadAttention layer(
      {.width = 16, .heads = 2, .block = 8, .dtype = f64, .device = test_device()});
  const Variable x(random_reference({2, 13, 16}, 1).tensor(f64, test_device()));
  Reference seen({13, 13}), added({13, 13});
  for (int64_t i = 0; i < 13; ++i)
    for (int64_t j = 0; j < 13; ++j) {
      seen.at({i, j}) = (i + j) % 3 != 0;
      added.at({i, j}) = (i + j) % 3 != 0 ? 0 : -std::numeric_limits<double>::infinity();
    }
  const auto run = [&](const Reference& mask, DType dtype) {
    return Reference::of(
        layer.forward(x, {.attention_mask = mask.tensor(dtype, test_device())}).data());
  };
  check_close("masks", run(seen, boolean), run(added, f64), 1e-12);
  const Variable packed =
      layer.forward(x, {.packed_mask = pack_mask(seen.tensor(boolean, test_device()), 8)});
  check_close("packed", Reference::of(packed.data()), run(seen, boolean), 1e-12);
}

TEST_CASE("nn::MultiheadAttention: a call may bring blocks of its own, of each batch entry") {
  const nn::MultiheadAttention layer(
      {.width = 16, .heads = 2, .block = 8, .dtype = f64, .device = test_device()});
  const Variable x(random_reference({2, 21, 16}, 1).tensor(f64, test_device()));
  const patterns::Size size{.heads = 4, .rows = 3, .cols = 3, .block = 8};
  const LayoutPtr all = patterns::random(size, {.density = .5, .seed = 3});
  const Tensor mask = all->mask();  // [heads, rows, cols] of blocks
  const Reference whole = Reference::of(layer.forward(x, {.layout = all}).data());
  for (int64_t b = 0; b < 2; ++b) {
    const LayoutPtr own = Layout::from_mask(mask.slice(0, 2 * b, 2 * b + 2), 8);
    const Reference one =
        Reference::of(layer.forward(slice(x, 0, b, b + 1), {.layout = own}).data());
    const Reference part = Reference::of(whole.tensor(f64, test_device()).slice(0, b, b + 1));
    check_close("entry", one, part, 1e-12);
  }
  CHECK_THROWS_AS(layer.forward(x, {.layout = patterns::dense({.rows = 4, .block = 8})}), Error);
}

TEST_CASE("nn::MultiheadAttention: dropout is of training alone") {
  Generator generator(3);
  nn::MultiheadAttention layer({.width = 16,
                                .heads = 2,
                                .dropout = .5,
                                .block = 8,
                                .generator = &generator,
                                .dtype = f64,
                                .device = test_device()});
  const Variable x(random_reference({2, 13, 16}, 1).tensor(f64, test_device()));
  const auto run = [&] { return Reference::of(layer.forward(x).data()).values; };
  CHECK(run() != run());
  layer.eval();
  CHECK(run() == run());
}

TEST_CASE("nn::MultiheadAttention refuses what does not fit") {
  CHECK_THROWS_WITH_AS(nn::MultiheadAttention({.width = 10, .heads = 3}),
                       "multihead_attention: 3 heads cannot share a width of 10", Error);
  CHECK_THROWS_WITH_AS(nn::MultiheadAttention({.width = 12, .heads = 3, .kv_heads = 2}),
                       "multihead_attention: 2 heads of keys do not divide 3 heads", Error);
  const nn::MultiheadAttention layer({.width = 16, .heads = 2});
  CHECK_THROWS_WITH_AS(layer.forward(Variable(Tensor::empty({2, 3, 8}, f32))),
                       "multihead_attention: query [2, 3, 8] is not [batch, sequence, 16]", Error);
}
