// nn::LSTM against torch.nn.LSTM: results and gradients recorded in double by
// golden/record_lstm.py.
#include <bs/autograd/binary.h>
#include <bs/autograd/reduce.h>
#include <bs/nn/lstm.h>
#include <bs/tests/nn/golden/recorded.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

constexpr int64_t steps = 6, batch = 4, input = 5, hidden = 7;

void run(const RecordedCase& c, DType dtype, double tolerance) {
  REQUIRE(c.options.size() == 6);
  const int layers = c.options[0], projection = c.options[2];
  const bool bidirectional = c.options[1] != 0, bias = c.options[3] != 0,
             batch_first = c.options[4] != 0, packed = c.options[5] != 0;
  CAPTURE(layers);
  CAPTURE(to_string(dtype));
  const nn::LSTM lstm({.input = input,
                       .hidden = hidden,
                       .layers = layers,
                       .bias = bias,
                       .batch_first = batch_first,
                       .bidirectional = bidirectional,
                       .projection = projection,
                       .dtype = dtype,
                       .device = test_device()});
  const auto tensor = [&](const Shape& shape, uint32_t number, double scale = 1) {
    Reference r = formula(shape, number);
    for (double& v : r.values) v *= scale;
    return r.tensor(dtype, test_device());
  };
  uint32_t number = 10;
  for (const Variable& p : lstm.parameters()) p.set_data(tensor(p.shape(), number++, 0.5));
  const int64_t entries = int64_t{layers} * lstm.directions();
  const Shape shape = batch_first ? Shape{batch, steps, input} : Shape{steps, batch, input};
  const Variable x(tensor(shape, 1), true);
  const Variable h0(tensor({entries, batch, lstm.outputs()}, 2), true);
  const Variable c0(tensor({entries, batch, hidden}, 3), true);
  const Tensor lengths = packed ? Tensor::from<int64_t>({6, 2, 5, 1}) : Tensor();
  const auto out = lstm.forward(x, {h0, c0}, lengths);
  const auto weighed = [&](const Variable& v, uint32_t n) {
    return sum(v * Variable(tensor(v.shape(), n)));
  };
  (weighed(out.y, 4) + weighed(out.h, 5) + weighed(out.c, 6)).backward();
  check_recorded("y", out.y.data(), c.tensors.at("y"), tolerance);
  check_recorded("h", out.h.data(), c.tensors.at("h"), tolerance);
  check_recorded("c", out.c.data(), c.tensors.at("c"), tolerance);
  check_recorded("dx", x.grad(), c.tensors.at("dx"), tolerance);
  check_recorded("dh0", h0.grad(), c.tensors.at("dh0"), tolerance);
  check_recorded("dc0", c0.grad(), c.tensors.at("dc0"), tolerance);
  const auto parameters = lstm.named_parameters();
  CHECK(parameters.size() + 6 == c.tensors.size());
  for (const auto& [name, p] : parameters)
    check_recorded(name, p.grad(), c.tensors.at(name), tolerance);
}

}  // namespace

TEST_CASE("nn::LSTM computes what torch.nn.LSTM computes") {
  const std::vector<RecordedCase> cases = read_recorded(BS_GOLDEN "/lstm.txt");
  CHECK(cases.size() == 6);
  for (const RecordedCase& c : cases) {
    run(c, f64, 1e-12);
    run(c, f32, 1e-5);  // sums of up to 24 rows, each off by some steps of 2^-23
  }
}
