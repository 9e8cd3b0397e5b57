// nn::GRU and nn::RNN against torch.nn: results and gradients recorded in double by
// golden/record_recurrent.py.
#include <bs/autograd/binary.h>
#include <bs/autograd/reduce.h>
#include <bs/nn/gru.h>
#include <bs/nn/rnn.h>
#include <bs/tests/nn/golden/recorded.h>
#include <bs/tests/support/devices.h>

#include <memory>

using namespace bs;
using namespace bs::test;

namespace {

constexpr int64_t steps = 6, batch = 4, input = 5, hidden = 7;

std::unique_ptr<nn::Recurrent> make(const RecordedCase& c, DType dtype) {
  const int kind = c.options.at(0), layers = c.options.at(1);
  const bool both = c.options.at(2) != 0, bias = c.options.at(3) != 0, first = c.options.at(4) != 0;
  if (kind == 0)
    return std::make_unique<nn::GRU>(nn::GRUOptions{.input = input,
                                                    .hidden = hidden,
                                                    .layers = layers,
                                                    .bias = bias,
                                                    .batch_first = first,
                                                    .bidirectional = both,
                                                    .dtype = dtype,
                                                    .device = test_device()});
  return std::make_unique<nn::RNN>(
      nn::RNNOptions{.input = input,
                     .hidden = hidden,
                     .layers = layers,
                     .nonlinearity = kind == 1 ? Nonlinearity::tanh : Nonlinearity::relu,
                     .bias = bias,
                     .batch_first = first,
                     .bidirectional = both,
                     .dtype = dtype,
                     .device = test_device()});
}

void run(const RecordedCase& c, DType dtype, double tolerance) {
  const int kind = c.options.at(0), layers = c.options.at(1);
  CAPTURE(kind);
  CAPTURE(layers);
  CAPTURE(to_string(dtype));
  const bool batch_first = c.options.at(4) != 0, packed = c.options.at(5) != 0;
  const auto layer = make(c, dtype);
  const auto tensor = [&](const Shape& shape, uint32_t number, double scale = 1) {
    Reference r = formula(shape, number);
    for (double& v : r.values) v *= scale;
    return r.tensor(dtype, test_device());
  };
  uint32_t number = 10;
  for (const Variable& p : layer->parameters()) p.set_data(tensor(p.shape(), number++, 0.5));
  const Shape shape = batch_first ? Shape{batch, steps, input} : Shape{steps, batch, input};
  const Variable x(tensor(shape, 1), true);
  const Variable h0(tensor({int64_t{layers} * layer->directions(), batch, hidden}, 2), true);
  const Tensor lengths = packed ? Tensor::from<int64_t>({6, 2, 5, 1}) : Tensor();
  const auto out = layer->forward(x, h0, lengths);
  const auto weighed = [&](const Variable& v, uint32_t n) {
    return sum(v * Variable(tensor(v.shape(), n)));
  };
  (weighed(out.y, 4) + weighed(out.h, 5)).backward();
  check_recorded("y", out.y.data(), c.tensors.at("y"), tolerance);
  check_recorded("h", out.h.data(), c.tensors.at("h"), tolerance);
  check_recorded("dx", x.grad(), c.tensors.at("dx"), tolerance);
  check_recorded("dh0", h0.grad(), c.tensors.at("dh0"), tolerance);
  const auto parameters = layer->named_parameters();
  CHECK(parameters.size() + 4 == c.tensors.size());
  for (const auto& [name, p] : parameters)
    check_recorded(name, p.grad(), c.tensors.at(name), tolerance);
}

}  // namespace

TEST_CASE("nn::GRU and nn::RNN compute what those of torch.nn compute") {
  const std::vector<RecordedCase> cases = read_recorded(BS_GOLDEN "/recurrent.txt");
  CHECK(cases.size() == 8);
  for (const RecordedCase& c : cases) {
    run(c, f64, 1e-12);
    run(c, f32, 1e-5);  // sums of up to 24 rows, each off by some steps of 2^-23
  }
}
