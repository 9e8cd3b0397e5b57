#include <bs/autograd/binary.h>
#include <bs/autograd/reduce.h>
#include <bs/lib/safetensors.h>
#include <bs/nn/resnet.h>
#include <bs/nn/state_dict.h>
#include <bs/tests/nn/golden/recorded.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/scratch.h>

#include <map>

using namespace bs;
using namespace bs::test;

namespace {

/// Shapes by names, as torchvision has them.
std::map<int, std::map<std::string, Shape>> recorded_names() {
  std::ifstream file(std::string(BS_GOLDEN) + "/resnet_names.txt");
  REQUIRE(file.good());
  std::map<int, std::map<std::string, Shape>> models;
  int depth = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string name;
    in >> name;
    if (name == "#") continue;
    if (name == "model") {
      in >> depth;
      continue;
    }
    Shape shape;
    for (int64_t extent; in >> extent;) shape.push_back(extent);
    models[depth][name] = shape;
  }
  return models;
}

Tensor given(const Shape& shape, uint32_t number) {
  return formula(shape, number).tensor(f64, test_device());
}

}  // namespace

TEST_CASE("nn::ResNet: names and shapes are torchvision's") {
  const auto models = recorded_names();
  REQUIRE(models.size() == 2);
  for (const auto& [layers, expected] : models) {
    const int depth = layers;
    CAPTURE(depth);
    const nn::ResNet model({.depth = depth, .classes = 10});
    std::map<std::string, Shape> shapes;
    for (const auto& [name, tensor] : nn::state_dict(model)) shapes[name] = tensor.shape();
    CHECK(shapes.size() == expected.size());
    for (const auto& [key, shape] : expected) {
      const std::string name = key;
      CAPTURE(name);
      REQUIRE(shapes.count(name) == 1);
      CHECK(shapes[name] == shape);
    }
  }
  CHECK_THROWS_WITH_AS(nn::ResNet({.depth = 20}),
                       "resnet: 20 layers; there are 18, 34, 50, 101 and 152", Error);
}

TEST_CASE("nn::ResNet: a file of tensors with torchvision's names loads") {
  // All tensors of the file, whole numbers apart from each other.
  const auto models = recorded_names();
  nn::StateDict file;
  double number = 0;
  for (const auto& [name, shape] : models.at(18)) {
    Reference r(shape);
    for (double& v : r.values) v = number;
    const bool count = name.find("num_batches_tracked") != std::string::npos;
    file[name] = r.tensor(count ? i64 : f32, Device::cpu());
    ++number;
  }
  const Scratch folder;
  const std::string path = folder / "resnet18.safetensors";
  save_safetensors(path, {.tensors = file, .metadata = {}});
  nn::ResNet model({.depth = 18, .classes = 10, .device = test_device()});
  const nn::LoadReport report = nn::load_state_dict(model, load_safetensors(path).tensors);
  CHECK(report.missing.empty());
  CHECK(report.unexpected.empty());
  number = 0;
  for (const auto& [key, tensor] : nn::state_dict(model)) {
    const std::string name = key;
    CAPTURE(name);
    CHECK(Reference::of(tensor).values.front() == number++);
  }
}

TEST_CASE("nn::ResNet: logits and gradients are torchvision's") {
  for (const RecordedCase& c : read_recorded(std::string(BS_GOLDEN) + "/resnet.txt")) {
    CAPTURE(c.options[0]);
    nn::ResNet model({.depth = c.options[0], .classes = 10, .dtype = f64, .device = test_device()});
    std::map<std::string, Variable> parameters;
    for (const auto& [name, parameter] : model.named_parameters()) parameters[name] = parameter;
    uint32_t number = 10;
    for (auto& [name, parameter] : parameters)
      parameter.set_data(given(parameter.shape(), number++));
    const Variable y = model.forward(given({2, 3, 64, 64}, 1));
    sum(y * given(y.shape(), 4)).backward();
    // Some fifty norms by as few as eight elements widen what differs in the last bits.
    const double close = 1e-9;
    check_recorded("y", y.data(), c.tensors.at("y"), close);
    check_recorded("fc.weight", model.fc.weight.grad(), c.tensors.at("fc.weight"), close);
    const std::string deep = "layer4.0.downsample.0.weight";
    check_recorded(deep, parameters.at(deep).grad(), c.tensors.at(deep), close);
    check_recorded("bn1.running_var", model.bn1.running_var.data(), c.tensors.at("bn1.running_var"),
                   close);
  }
}

TEST_CASE("nn::ResNet: norms folded into convolutions leave the logits alone") {
  nn::ResNet model({.depth = 18, .classes = 5, .width = 8, .dtype = f64, .device = test_device()});
  const Tensor images = given({3, 3, 32, 32}, 1);
  model.forward(images);  // gives the norms statistics
  model.eval();
  const Reference before = Reference::of(model.forward(images).data());
  model.fold_norms();
  check_close("folded", Reference::of(model.forward(images).data()), before,
              1e-10 * largest(before));
}
