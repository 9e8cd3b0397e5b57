#include <bs/kernels/fill.h>
#include <bs/nn/linear.h>
#include <bs/nn/module_list.h>
#include <bs/nn/state_dict.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

struct Heads : nn::Module {
  nn::ModuleList<nn::Linear> heads;
  nn::ModuleDict<nn::Linear> named;
  Variable steps = register_buffer("steps", Tensor::from<int64_t>({7}));
  Heads() {
    register_module("heads", heads);
    register_module("named", named);
    for (const int64_t out : {2, 3}) heads.add({.in = 4, .out = out});
    named.add("score", {.in = 4, .out = 1, .bias = false});
  }
};

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }

}  // namespace

TEST_CASE("lists and dictionaries of modules") {
  Heads model;
  std::vector<std::string> names;
  for (const auto& p : model.named_parameters()) names.push_back(p.name);
  CHECK(names == std::vector<std::string>{"heads.0.weight", "heads.0.bias", "heads.1.weight",
                                          "heads.1.bias", "named.score.weight"});
  CHECK(model.heads.size() == 2);
  CHECK(model.heads[1].forward(Tensor::empty({1, 4}, f32)).shape() == Shape{1, 3});
  CHECK(model.named["score"].forward(Tensor::empty({1, 4}, f32)).shape() == Shape{1, 1});
  CHECK(model.named.contains("score"));
  CHECK(model.named.names() == std::vector<std::string>{"score"});
  CHECK_THROWS_WITH_AS(model.heads[2], "module list: number 2 of 2", Error);
  CHECK_THROWS_WITH_AS(model.named["x"], "module dict: no module is named x", Error);
  CHECK_THROWS_WITH_AS(model.named.add("score", {.in = 4, .out = 1}),
                       "module: the name score is taken", Error);
  model.eval();
  CHECK(!model.heads[0].training());
}

TEST_CASE("a state dictionary moves all of a model into another") {
  Heads from, into;
  into.to(test_device());
  nn::load_state_dict(into, nn::state_dict(from));
  for (size_t i = 0; i < 5; ++i)
    CHECK(values(into.parameters()[i].data()) == values(from.parameters()[i].data()));
  from.to(bf16);
  from.steps.set_data(Tensor::from<int64_t>({9}));
  const auto report =
      nn::load_state_dict(into, nn::state_dict(from, "model."), {.prefix = "model."});
  CHECK((report.missing.empty() && report.unexpected.empty()));
  CHECK(into.parameters()[0].dtype() == f32);
  CHECK(values(into.parameters()[0].data()) == values(from.parameters()[0].data()));
  CHECK(into.steps.data().item() == 9);
}

TEST_CASE("a state dictionary that does not fit changes nothing") {
  Heads model;
  const auto before = values(model.parameters()[1].data());
  nn::StateDict state = nn::state_dict(model);
  state["heads.0.bias"] = Tensor::from<float>({5, 6});
  state.erase("heads.1.bias");
  state["other"] = Tensor::from<float>({1});
  state["named.score.weight"] = Tensor::empty({2, 4}, f32);
  CHECK_THROWS_WITH_AS(nn::load_state_dict(model, state),
                       "load_state_dict:\n  missing: heads.1.bias\n  named.score.weight: shape "
                       "[2, 4], expected [1, 4]\n  unexpected: other",
                       Error);
  CHECK(values(model.parameters()[1].data()) == before);
  state.erase("named.score.weight");
  const auto report = nn::load_state_dict(model, state, {.strict = false});
  CHECK(report.missing == std::vector<std::string>{"heads.1.bias", "named.score.weight"});
  CHECK(report.unexpected == std::vector<std::string>{"other"});
  CHECK(values(model.parameters()[1].data()) == std::vector<double>{5, 6});
}

TEST_CASE("a state dictionary of the model's own tensors under other names") {
  struct Pair : nn::Module {
    Variable a = register_parameter("a", Tensor::from<float>({1, 2}).to(test_device()));
    Variable b = register_parameter("b", Tensor::from<float>({3, 4}).to(test_device()));
  };
  Pair model;
  nn::load_state_dict(model, {{"a", model.b.data()}, {"b", model.a.data()}});
  CHECK(values(model.a.data()) == std::vector<double>{3, 4});
  CHECK(values(model.b.data()) == std::vector<double>{1, 2});
  nn::load_state_dict(model, nn::state_dict(model));
  CHECK(values(model.a.data()) == std::vector<double>{3, 4});
}

TEST_CASE("a state dictionary changes nothing where one tensor cannot be written") {
  struct Pair : nn::Module {
    Variable a = register_parameter("a", Tensor::from<float>({1, 2}).to(test_device()));
    Variable b = register_parameter("b", zeros({1}, f32, test_device()).expand({2}));
  };
  Pair model;
  CHECK_THROWS_AS(nn::load_state_dict(model, {{"a", Tensor::from<float>({5, 6})},
                                              {"b", Tensor::from<float>({7, 8})}}),
                  Error);
  CHECK(values(model.a.data()) == std::vector<double>{1, 2});
}
