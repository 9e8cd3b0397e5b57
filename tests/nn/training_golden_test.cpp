#include <bs/autograd/loss.h>
#include <bs/nn/data/loader.h>
#include <bs/nn/optim/adamw.h>
#include <bs/nn/optim/clip_grad_norm.h>
#include <bs/nn/optim/lr_schedule.h>
#include <bs/nn/transformer.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <sstream>

// Twenty training steps against what PyTorch made of the same weights, data and optimiser. The
// weights and the text are formulas, given in golden/record_training.py; golden/training.txt holds
// what came out, and the tolerances, which are 20 times what rounding does to PyTorch itself.

using namespace bs;
using namespace bs::test;

namespace {

constexpr int64_t batch = 4;
constexpr int64_t context = 64;
constexpr int64_t steps = 20;
constexpr int heads = 2;

struct Step {
  double loss, norm, rate;
};
/// A tensor in a few numbers.
struct Summary {
  double count, sum, l2, first[4];
};

struct Tolerances {
  double loss, norm, weight, sum, l2, rate;
};
constexpr Tolerances in_f32{2e-5, 5e-6, 6e-5, 4e-6, 2e-6, 1e-6};
constexpr Tolerances in_f64{1e-11, 1e-11, 1e-11, 1e-11, 1e-11, 1e-11};

/// The recorded lines by their kind.
struct Golden {
  Reference layout{{heads, 4, 4}};
  std::map<std::string, std::vector<Step>> runs;                  // step, step64
  std::map<std::string, std::map<std::string, Summary>> weights;  // initial, weights...

  Golden() {
    std::ifstream file(BS_GOLDEN "/training.txt");
    REQUIRE_MESSAGE(file.good(), "cannot read ", BS_GOLDEN, "/training.txt");
    for (std::string line; std::getline(file, line);) {
      std::istringstream in(line);
      std::string kind, name;
      in >> kind;
      if (kind == "layout") {
        int64_t head, row;
        in >> head >> row;
        for (int64_t col = 0; col < 4; ++col) in >> layout.at({head, row, col});
      } else if (kind == "step" || kind == "step64") {
        Step s{};
        in >> name >> s.loss >> s.norm >> s.rate;
        runs[kind].push_back(s);
      } else if (kind != "#") {
        in >> name;
        Summary& s = weights[kind][name];
        in >> s.count >> s.sum >> s.l2;
        for (double& v : s.first) in >> v;
      }
    }
  }
};

/// `count` numbers in [-scale, scale): a hash of the parameter's number and the element's.
std::vector<double> initial_values(uint64_t number, size_t count, double scale) {
  std::vector<double> values;
  for (uint64_t i = 0; i < count; ++i) {
    auto u = static_cast<uint32_t>((i + 1) * 2654435761U + (number + 1) * 40503 * 65537);
    u ^= u >> 16;
    u *= 2246822519U;
    u ^= u >> 13;
    values.push_back((u / 4294967296.0 - 0.5) * 2 * scale);
  }
  return values;
}

/// The weights of the record, rounded to f32 whatever the dtype of the run.
void initialise(const nn::Module& model, DType dtype) {
  uint64_t number = 0;
  for (const auto& [name, p] : model.named_parameters()) {
    const bool norm_weight = name.find("norm") != std::string::npos && name.ends_with("weight");
    const bool small =
        name.ends_with("bias") || name == "embedding.weight" || name == "position.weight";
    const double scale = norm_weight ? 0.1
                         : small     ? 0.02
                                     : 1 / std::sqrt(static_cast<double>(p.size(-1)));
    Reference r(p.shape());
    r.values = initial_values(number++, r.values.size(), scale);
    for (double& v : r.values) v = static_cast<float>(norm_weight ? 1 + v : v);
    p.set_data(r.tensor(dtype, test_device()));
  }
}

/// Bytes of a formula, enough for all steps.
data::TextDataset stream() {
  std::string text;
  for (int64_t t = 0; t <= steps * batch * context; ++t)
    text += static_cast<char>((t * t * 31 + 7 * t + (t >> 3)) % 97 + 32);
  return data::TextDataset::from(text);
}

nn::SparseTransformerOptions options(DType dtype) {
  return {.vocabulary = 256,
          .context = context,
          .width = 64,
          .layers = 2,
          .heads = heads,
          .block = 16,
          .pattern =
              [](const patterns::Size& size) {
                return patterns::fixed(size,
                                       {.local_blocks = 2, .global_patterns = 2, .causal = true});
              },
          .dtype = dtype,
          .device = test_device()};
}

std::vector<Step> train(const nn::SparseTransformer& model, DType dtype) {
  optim::AdamW optimizer(optim::decay_groups(
      model, AdamWOptions{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1}));
  const optim::LearningRateSchedule schedule{
      .highest = 1e-3, .lowest = 1e-4, .warmup = 5, .steps = steps};
  const data::TextDataset text = stream();
  const std::vector<Variable> parameters = model.parameters();
  std::vector<Step> record;
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<int64_t> starts;
    for (int64_t row = 0; row < batch; ++row) starts.push_back((step * batch + row) * context);
    const auto [inputs, targets] = data::windows(text, starts, context, i64, test_device());
    const Variable loss = cross_entropy(model.forward(inputs), targets);
    optimizer.zero_grad();
    loss.backward();
    const Tensor norm = optim::grad_norm(parameters);
    optimizer.set_learning_rate(schedule.at(step));
    optimizer.step({.norm = norm, .max_norm = 1});
    record.push_back({loss.data().item(), norm.item(), schedule.at(step)});
  }
  CHECK(model.head.weight.dtype() == dtype);
  return record;
}

Summary summary(const Tensor& x) {
  const Reference r = Reference::of(x);
  Summary s{.count = static_cast<double>(r.values.size()), .sum = 0, .l2 = 0, .first = {}};
  for (double v : r.values) {
    s.sum += v;
    s.l2 += v * v;
  }
  s.l2 = std::sqrt(s.l2);
  for (size_t i = 0; i < 4; ++i) s.first[i] = r[i];
  return s;
}

/// A parameter under the record's name; the bias of q, k and v stands there in three parts.
Tensor find(const nn::Module& model, std::string name) {
  int64_t part = -1;
  for (const char* suffix : {".q", ".k", ".v"})
    if (name.ends_with(suffix)) {
      part = suffix[1] == 'q' ? 0 : suffix[1] == 'k' ? 1 : 2;
      name.resize(name.size() - 2);
    }
  for (const auto& [known, p] : model.named_parameters())
    if (known == name) {
      const int64_t third = p.size(0) / 3;
      return part < 0 ? p.data() : p.data().slice(0, part * third, (part + 1) * third);
    }
  FAIL("no parameter ", name);
  return {};
}

void check_weights(const nn::Module& model, const std::map<std::string, Summary>& recorded,
                   const Tolerances& tolerance, bool trained) {
  for (const auto& [key, expected] : recorded) {
    const std::string name = key;
    CAPTURE(name);
    // The softmax does not see a bias of all keys: its gradient is rounding, its steps are noise.
    if (trained && name.ends_with(".k")) continue;
    const Summary actual = summary(find(model, name));
    CHECK(actual.count == expected.count);
    CHECK(std::abs(actual.sum - expected.sum) <= tolerance.sum * std::sqrt(expected.count));
    CHECK(std::abs(actual.l2 - expected.l2) <= tolerance.l2 * expected.l2);
    for (size_t i = 0; i < 4; ++i)
      CHECK(std::abs(actual.first[i] - expected.first[i]) <= tolerance.weight);
  }
}

void check_run(DType dtype, const std::string& suffix, const Tolerances& tolerance) {
  Golden golden;
  const nn::SparseTransformer model(options(dtype));
  CHECK(Reference::of(model.blocks[0]->attention.layout(context)->mask()).values ==
        golden.layout.values);
  initialise(model, dtype);
  check_weights(model, golden.weights["initial"], in_f64, false);
  const std::vector<Step> record = train(model, dtype);
  const std::vector<Step>& expected = golden.runs["step" + suffix];
  REQUIRE(expected.size() == record.size());
  for (size_t i = 0; i < record.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(record[i].loss - expected[i].loss) <= tolerance.loss);
    CHECK(std::abs(record[i].norm - expected[i].norm) <= tolerance.norm * expected[i].norm);
    CHECK(std::abs(record[i].rate - expected[i].rate) <= tolerance.rate * expected[i].rate);
  }
  check_weights(model, golden.weights["weights" + suffix], tolerance, true);
}

}  // namespace

TEST_CASE("training: twenty steps in f32 as in PyTorch") { check_run(f32, "", in_f32); }

TEST_CASE("training: twenty steps in f64 as in PyTorch") { check_run(f64, "64", in_f64); }
