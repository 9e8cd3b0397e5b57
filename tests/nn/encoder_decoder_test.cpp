// nn::Transformer against torch.nn.Transformer: results and gradients recorded in double by
// golden/record_transformer.py.
#include <bs/autograd/binary.h>
#include <bs/autograd/reduce.h>
#include <bs/nn/encoder_decoder.h>
#include <bs/tests/nn/golden/recorded.h>
#include <bs/tests/support/devices.h>

using namespace bs;
using namespace bs::test;

namespace {

constexpr int64_t batch = 2, source_length = 9, target_length = 7, width = 8;

void run(const RecordedCase& c, DType dtype, double tolerance) {
  CAPTURE(to_string(dtype));
  const nn::Transformer model({.layer = {.width = width,
                                         .heads = 2,
                                         .hidden = 12,
                                         .dropout = 0,
                                         .gelu = c.options[1] != 0,
                                         .norm_first = c.options[0] != 0,
                                         .block = 8,
                                         .causal = true,
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
  const Variable y = model.forward(source, target, keep.tensor(boolean, test_device()));
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
  CHECK(cases.size() == 2);
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
