// nn::LSTM against torch.nn.LSTM: results and gradients recorded in double by
// golden/record_lstm.py.
#include <bs/autograd/binary.h>
#include <bs/autograd/reduce.h>
#include <bs/nn/lstm.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <sstream>

using namespace bs;
using namespace bs::test;

namespace {

constexpr int64_t steps = 6, batch = 4, input = 5, hidden = 7;

/// Element i of tensor `number`; record_lstm.py has the same formula.
Reference formula(const Shape& shape, uint32_t number) {
  Reference r(shape);
  for (size_t i = 0; i < r.values.size(); ++i) {
    uint32_t z = static_cast<uint32_t>(i) * 2654435761U + number * 40503U + 12345U;
    z ^= z >> 15;
    z *= 2246822519U;
    z ^= z >> 13;
    r[i] = (static_cast<double>(z % 4096) - 2048) / 2048;
  }
  return r;
}

struct Recorded {
  size_t count = 0;
  std::vector<double> numbers;  ///< the sum, the sum of squares, and samples
};

struct Case {
  int layers = 1, bidirectional = 0, projection = 0, bias = 1, batch_first = 0, packed = 0;
  std::map<std::string, Recorded> tensors;
};

std::vector<Case> read() {
  std::ifstream file(BS_GOLDEN "/lstm.txt");
  REQUIRE(file.good());
  std::vector<Case> cases;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string name;
    in >> name;
    if (name == "#") continue;
    if (name == "case") {
      Case& c = cases.emplace_back();
      in >> c.layers >> c.bidirectional >> c.projection >> c.bias >> c.batch_first >> c.packed;
      continue;
    }
    Recorded& r = cases.back().tensors[name];
    in >> r.count;
    for (double v; in >> v;) r.numbers.push_back(v);
  }
  return cases;
}

void check(const std::string& name, const Tensor& actual, const Recorded& expected,
           double tolerance) {
  CAPTURE(name);
  const Reference r = Reference::of(actual);
  REQUIRE(r.values.size() == expected.count);
  double sum = 0, squares = 0;
  for (const double v : r.values) {
    sum += v;
    squares += v * v;
  }
  const double size = std::max(1.0, largest(r));
  const auto n = static_cast<double>(r.values.size());
  CHECK(std::abs(sum - expected.numbers[0]) <= tolerance * n * size);
  CHECK(std::abs(squares - expected.numbers[1]) <= 2 * tolerance * n * size * size);
  const size_t samples = expected.numbers.size() - 2;
  for (size_t k = 0; k < samples; ++k)
    CHECK(std::abs(r[r.values.size() * k / 8] - expected.numbers[2 + k]) <= tolerance * size);
}

void run(const Case& c, DType dtype, double tolerance) {
  CAPTURE(c.layers);
  CAPTURE(to_string(dtype));
  const nn::LSTM lstm({.input = input,
                       .hidden = hidden,
                       .layers = c.layers,
                       .bias = c.bias != 0,
                       .batch_first = c.batch_first != 0,
                       .bidirectional = c.bidirectional != 0,
                       .projection = c.projection,
                       .dtype = dtype,
                       .device = test_device()});
  const auto tensor = [&](const Shape& shape, uint32_t number, double scale = 1) {
    Reference r = formula(shape, number);
    for (double& v : r.values) v *= scale;
    return r.tensor(dtype, test_device());
  };
  uint32_t number = 10;
  for (const Variable& p : lstm.parameters()) p.set_data(tensor(p.shape(), number++, 0.5));
  const int64_t entries = int64_t{c.layers} * lstm.directions();
  const Shape shape = c.batch_first ? Shape{batch, steps, input} : Shape{steps, batch, input};
  const Variable x(tensor(shape, 1), true);
  const Variable h0(tensor({entries, batch, lstm.outputs()}, 2), true);
  const Variable c0(tensor({entries, batch, hidden}, 3), true);
  const Tensor lengths = c.packed ? Tensor::from<int64_t>({6, 2, 5, 1}) : Tensor();
  const auto out = lstm.forward(x, {h0, c0}, lengths);
  const auto weighed = [&](const Variable& v, uint32_t n) {
    return sum(v * Variable(tensor(v.shape(), n)));
  };
  (weighed(out.y, 4) + weighed(out.h, 5) + weighed(out.c, 6)).backward();
  check("y", out.y.data(), c.tensors.at("y"), tolerance);
  check("h", out.h.data(), c.tensors.at("h"), tolerance);
  check("c", out.c.data(), c.tensors.at("c"), tolerance);
  check("dx", x.grad(), c.tensors.at("dx"), tolerance);
  check("dh0", h0.grad(), c.tensors.at("dh0"), tolerance);
  check("dc0", c0.grad(), c.tensors.at("dc0"), tolerance);
  const auto parameters = lstm.named_parameters();
  CHECK(parameters.size() + 6 == c.tensors.size());
  for (const auto& [name, p] : parameters) check(name, p.grad(), c.tensors.at(name), tolerance);
}

}  // namespace

TEST_CASE("nn::LSTM computes what torch.nn.LSTM computes") {
  const std::vector<Case> cases = read();
  CHECK(cases.size() == 6);
  for (const Case& c : cases) {
    run(c, f64, 1e-12);
    run(c, f32, 1e-5);  // sums of up to 24 rows, each off by some steps of 2^-23
  }
}
