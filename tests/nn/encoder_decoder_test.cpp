// nn::Transformer against torch.nn.Transformer: results and gradients recorded in double by
// golden/record_transformer.py.
#include <bs/autograd/binary.h>
#include <bs/autograd/reduce.h>
#include <bs/kernels/fill.h>
#include <bs/nn/encoder_decoder.h>
#include <bs/tests/nn/golden/recorded.h>
#include <bs/tests/support/devices.h>

using namespace bs;
using namespace bs::test;

namespace {

constexpr int64_t batch = 2, source_length = 9, target_length = 7, width = 8;

/// The masks of record_transformer.py, true for what to see.
nn::TransformerMasks masks_of(const Tensor& keep, DType dtype) {
  const auto seen = [](const Shape& shape, uint32_t number) {
    Reference see = formula(shape, number);
    for (double& v : see.values) v = v <= 0;
    for (int64_t i = 0; i < shape[0]; ++i) see.at({i, 0}) = 1;
    return see.tensor(boolean, test_device());
  };
  const Tensor added = formula({target_length, target_length}, 5).tensor(dtype, test_device());
  return {.source = {.key_padding_mask = keep,
                     .attention_mask = seen({source_length, source_length}, 4)},
          .target = {.attention_mask = added},
          .memory = {.key_padding_mask = keep,
                     .attention_mask = seen({target_length, source_length}, 6)}};
}

void run(const RecordedCase& c, DType dtype, double tolerance) {
  CAPTURE(to_string(dtype));
  const bool masked = c.options[2] != 0;
  const nn::Transformer model({.layer = {.width = width,
                                         .heads = 2,
                                         .hidden = 12,
                                         .dropout = 0,
                                         .gelu = c.options[1] != 0,
                                         .norm_first = c.options[0] != 0,
                                         .block = 8,
                                         .causal = !masked,
                                         .dtype = dtype,
                                         .device = test_device()},
                               .encoder_layers = 2,
                               .decoder_layers = 2});
  auto parameters = model.named_parameters();
  std::sort(parameters.begin(), parameters.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto tensor = [&](const Shape& shape, uint32_t number, double scale = 1) {
    Reference r = formula(shape, number);
    for (double& v : r.values) v *= scale;
    return r.tensor(dtype, test_device());
  };
  uint32_t number = 10;
  for (const auto& [name, p] : parameters) p.set_data(tensor(p.shape(), number++, 0.5));
  const Variable source(tensor({batch, source_length, width}, 1), true);
  const Variable target(tensor({batch, target_length, width}, 2), true);
  Reference keep({batch, source_length});
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t j = 0; j < (b == 0 ? 9 : 4); ++j) keep.at({b, j}) = 1;
  const Tensor mask = keep.tensor(boolean, test_device());
  const Variable y = masked ? model.forward(source, target, masks_of(mask, dtype))
                            : model.forward(source, target, mask);
  sum(y * Variable(tensor(y.shape(), 3))).backward();
  check_recorded("y", y.data(), c.tensors.at("y"), tolerance);
  check_recorded("dsource", source.grad(), c.tensors.at("dsource"), tolerance);
  check_recorded("dtarget", target.grad(), c.tensors.at("dtarget"), tolerance);
  CHECK(parameters.size() + 3 == c.tensors.size());
  for (const auto& [name, p] : parameters)
    check_recorded(name, p.grad(), c.tensors.at(name), tolerance);
}

}  // namespace

// Heads of 4 features are the CPU's alone.
TEST_CASE("nn::Transformer computes what torch.nn.Transformer computes" *
          doctest::skip(!test_device().is_cpu())) {
  const auto cases = read_recorded(BS_GOLDEN "/transformer.txt");
  CHECK(cases.size() == 3);
  for (const RecordedCase& c : cases) run(c, f64, 1e-11);
}

TEST_CASE("nn::Transformer: dropout is of training alone") {
  nn::Transformer model({.layer = {.width = 16, .heads = 2, .hidden = 24, .device = test_device()},
                         .encoder_layers = 1,
                         .decoder_layers = 1});
  const Variable x(random_reference({1, 5, 16}, 1).tensor(f32, test_device()));
  const auto run = [&] { return Reference::of(model.forward(x, x).data()).values; };
  CHECK(run() != run());
  model.eval();
  CHECK(run() == run());
}

TEST_CASE("nn::Transformer refuses a mask that fits another attention") {
  const nn::Transformer model(
      {.layer = {.width = 16, .heads = 2, .hidden = 24, .device = test_device()},
       .encoder_layers = 1,
       .decoder_layers = 1});
  const Variable source(random_reference({1, 5, 16}, 1).tensor(f32, test_device()));
  const Variable target(random_reference({1, 3, 16}, 2).tensor(f32, test_device()));
  const nn::MultiheadAttentionMasks masks{.attention_mask = zeros({5, 3}, f32, test_device())};
  const auto refusal = [](int queries, int keys) {
    return format(
        "sparse_attention: bias [1, 1, 5, 3] is not [batch or 1, heads or 1, queries, keys] of q "
        "[1, 2, {}, 8] and k [1, 2, {}, 8]",
        queries, keys);
  };
  CHECK_THROWS_WITH_AS(model.forward(source, target, {.source = masks}), refusal(5, 5).c_str(),
                       Error);
  CHECK_THROWS_WITH_AS(model.forward(source, target, {.target = masks}), refusal(3, 3).c_str(),
                       Error);
  CHECK_THROWS_WITH_AS(model.forward(source, target, {.memory = masks}), refusal(3, 5).c_str(),
                       Error);
}
