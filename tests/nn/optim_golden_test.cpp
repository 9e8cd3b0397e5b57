// The optimisers against those of torch.optim: parameters after six steps, recorded in double by
// golden/record_optim.py.
#include <bs/nn/optim/adafactor.h>
#include <bs/nn/optim/adam.h>
#include <bs/nn/optim/adamw.h>
#include <bs/nn/optim/muon.h>
#include <bs/nn/optim/rmsprop.h>
#include <bs/nn/optim/sgd.h>
#include <bs/tests/nn/golden/recorded.h>
#include <bs/tests/support/devices.h>

#include <memory>

using namespace bs;
using namespace bs::test;

namespace {

enum Kind { adam, rmsprop, adafactor, muon, muon_in_bf16, adamw, sgd };

constexpr double rate = 0.1;

struct Model : nn::Module {
  Model(bool matrices, DType dtype) {
    const std::pair<const char*, Shape> all[] = {{"tall", {6, 3}},
                                                 {"wide", {3, 5}},
                                                 {"square", {4, 4}},
                                                 {"vector", {7}},
                                                 {"cube", {2, 3, 4}}};
    uint32_t number = 10;
    for (const auto& [name, shape] : all)
      if (!matrices || shape.rank() == 2)
        register_parameter(name, formula(shape, number++).tensor(dtype, test_device()));
  }
};

template <class Optimizer, class Options>
std::unique_ptr<optim::Optimizer> make(const nn::Module& model, Options options) {
  options.learning_rate = rate;
  return std::make_unique<Optimizer>(model, options);
}

std::unique_ptr<optim::Optimizer> make_muon(const nn::Module& model, int variant, DType products) {
  const MuonOptions plain{.products = products};
  const MuonOptions momentum{.weight_decay = 0.2,
                             .momentum = 0.8,
                             .nesterov = false,
                             .iterations = 3,
                             .length = MuonLength::match_rms_adamw,
                             .products = products};
  const MuonOptions coefficients{.coefficients = {2, -1.5, 0.5},
                                 .length = MuonLength::spectral_unclamped,
                                 .products = products};
  return make<optim::Muon>(model, variant == 0 ? plain : variant == 1 ? momentum : coefficients);
}

/// The options are those of the script.
std::unique_ptr<optim::Optimizer> make(const nn::Module& model, int kind, int variant) {
  switch (kind) {
    case adam: {
      const AdamOptions other{
          .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1, .amsgrad = true};
      return make<optim::Adam>(model, variant == 0 ? AdamOptions{} : other);
    }
    case rmsprop: {
      const RMSpropOptions centered{
          .alpha = 0.9, .eps = 1e-3, .weight_decay = 0.1, .momentum = 0.5, .centered = true};
      const RMSpropOptions momentum{.alpha = 0.9, .momentum = 0.5};
      return make<optim::RMSprop>(model, variant == 0   ? RMSpropOptions{}
                                         : variant == 1 ? centered
                                                        : momentum);
    }
    case adafactor: {
      const AdafactorOptions other{
          .beta2_decay = -0.5, .eps1 = 1e-2, .eps2 = 0.9, .d = 1.1, .weight_decay = 0.1};
      return make<optim::Adafactor>(model, variant == 0 ? AdafactorOptions{} : other);
    }
    case muon:
      return make_muon(model, variant, f32);
    case muon_in_bf16:
      return make_muon(model, variant, bf16);
    case adamw:
      return make<optim::AdamW>(model, AdamWOptions{.weight_decay = 0.1});
    default:
      return make<optim::Sgd>(model,
                              SgdOptions{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
  }
}

void run(const RecordedCase& c, DType dtype, double tolerance) {
  const int kind = c.options.at(0), variant = c.options.at(1);
  CAPTURE(kind);
  CAPTURE(variant);
  CAPTURE(to_string(dtype));
  const Model model(kind == muon || kind == muon_in_bf16, dtype);
  const auto optimizer = make(model, kind, variant);
  const auto parameters = model.named_parameters();
  REQUIRE(parameters.size() == c.tensors.size());
  for (uint32_t step = 0; step < 6; ++step) {
    uint32_t number = 100 * (step + 1);
    for (const auto& [name, p] : parameters)
      p.set_grad(formula(p.shape(), number++).tensor(dtype, test_device()));
    optimizer->set_learning_rate(rate / (1 + step));
    optimizer->step();
  }
  for (const auto& [name, p] : parameters)
    check_recorded(name, p.data(), c.tensors.at(name), tolerance);
}

}  // namespace

TEST_CASE("optim steps as torch.optim does") {
  const std::vector<RecordedCase> cases = read_recorded(BS_GOLDEN "/optim.txt");
  CHECK(cases.size() == 13);
  for (const RecordedCase& c : cases) {
    if (c.options.at(0) == muon_in_bf16) {
      // Iterations in bf16 stretch an error of 2^-8; a step of six is up to 0.1 long an element.
      run(c, f32, 0x1p-8);
    } else {
      run(c, f64, 1e-13);
      run(c, f32, 1e-5);
    }
  }
}
