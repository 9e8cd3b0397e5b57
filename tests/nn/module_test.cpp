#include <bs/autograd/binary.h>
#include <bs/autograd/reduce.h>
#include <bs/kernels/fill.h>
#include <bs/nn/activation.h>
#include <bs/nn/embedding.h>
#include <bs/nn/linear.h>
#include <bs/nn/optim/sgd.h>
#include <bs/nn/sequential.h>
#include <bs/nn/state_dict.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <memory>
#include <type_traits>

using namespace bs;
using namespace bs::test;

namespace {

struct Leaf : nn::Module {
  Variable weight = register_parameter("weight", ones({2, 3}, f32, test_device()));
  Variable bias;
  Variable steps = register_buffer("steps", zeros({1}, i64, test_device()));
  explicit Leaf(bool has_bias = true)
      : bias(register_parameter("bias", has_bias ? ones({2}, f32, test_device()) : Tensor())) {}
};

struct Tree : nn::Module {
  Leaf first, second{false};
  std::vector<std::unique_ptr<Leaf>> many;
  Variable scale = register_parameter("scale", ones({1}, f32, test_device()));
  Tree() {
    register_module("first", first);
    register_module("second", second);
    for (int i = 0; i < 2; ++i) {
      many.push_back(std::make_unique<Leaf>());
      register_module("many." + std::to_string(i), *many.back());
    }
  }
};

std::vector<std::string> names(const std::vector<nn::NamedVariable>& list) {
  std::vector<std::string> out;
  for (const auto& named : list) out.push_back(named.name);
  return out;
}

}  // namespace

TEST_CASE("module: names lead to parameters and buffers, parents and the earlier first") {
  static_assert(!std::is_copy_constructible_v<Tree> && std::is_move_constructible_v<Tree>);
  const Tree tree;
  CHECK(names(tree.named_parameters()) ==
        std::vector<std::string>{"scale", "first.weight", "first.bias", "second.weight",
                                 "many.0.weight", "many.0.bias", "many.1.weight", "many.1.bias"});
  CHECK(names(tree.named_buffers()) ==
        std::vector<std::string>{"first.steps", "second.steps", "many.0.steps", "many.1.steps"});
  CHECK(tree.parameters().size() == 8);
  CHECK(tree.parameters()[1].is_same(tree.first.weight));
  CHECK(tree.parameter_count() == 1 + 4 * 6 + 3 * 2);
  CHECK(!tree.second.bias.defined());
  CHECK(tree.first.weight.requires_grad());
  CHECK(!tree.first.steps.requires_grad());
}

TEST_CASE("module: a parameter shared by two places comes once") {
  struct Tied : nn::Module {
    Leaf leaf;
    Tied() {
      register_module("here", leaf);
      register_module("there", leaf);
    }
  };
  const Tied tied;
  CHECK(names(tied.named_parameters()) == std::vector<std::string>{"here.weight", "here.bias"});
  CHECK(tied.parameter_count() == 8);
}

TEST_CASE("module: train and eval reach everything below") {
  Tree tree;
  CHECK(tree.many[1]->training());
  tree.eval();
  CHECK(!tree.training());
  CHECK(!tree.many[1]->training());
  tree.train();
  CHECK(tree.first.training());
}

TEST_CASE("module: to converts what floats, gradients too, and keeps variables the same") {
  Tree tree;
  const Variable weight = tree.first.weight;
  weight.set_grad(ones({2, 3}, f32, test_device()));
  tree.to(f16);
  CHECK(weight.dtype() == f16);
  CHECK(weight.grad().dtype() == f16);
  CHECK(weight.is_same(tree.first.weight));
  CHECK(weight.requires_grad());
  CHECK(tree.first.steps.dtype() == i64);
  CHECK(Reference::of(weight.data()).values == std::vector<double>(6, 1.0));
  CHECK(!tree.scale.grad().defined());
  CHECK_THROWS_WITH_AS(tree.to(i32), "module: parameters cannot become i32", Error);
  tree.to(Device::cpu());
  CHECK(weight.device().is_cpu());
  CHECK(weight.grad().device().is_cpu());
  CHECK(tree.first.steps.device().is_cpu());
  tree.to(test_device());
  CHECK(weight.device() == test_device());
  tree.zero_grad();
  CHECK(!weight.grad().defined());
}

TEST_CASE("module: a buffer that 16 bits would spoil becomes f32 for them") {
  struct Normal : nn::Module {
    Variable mean, plain;
    Variable table = register_buffer("table", full({1}, 1.0 / 3, f32, test_device()),
                                     nn::BufferDType::at_least_f32);
    Variable count =
        register_buffer("count", ones({1}, i64, test_device()), nn::BufferDType::at_least_f32);
    Normal() {
      register_buffer("mean", mean, full({1}, 1.0 / 3, f32, test_device()),
                      nn::BufferDType::at_least_f32);
      register_buffer("plain", plain, ones({1}, f32, test_device()));
      register_buffer("none", none, Tensor(), nn::BufferDType::at_least_f32);
    }
    Variable none;
  };
  struct Outer : nn::Module {
    Normal inner;
    Outer() { register_module("inner", inner); }
  };
  Outer outer;
  const Normal& normal = outer.inner;
  const double third = normal.mean.item();
  for (const DType low : {bf16, f16}) {
    outer.to(low);
    CHECK(normal.plain.dtype() == low);
    CHECK(normal.count.dtype() == i64);
    for (const Variable* buffer : {&normal.mean, &normal.table}) {
      CHECK(buffer->dtype() == f32);
      CHECK(buffer->item() == third);
    }
  }
  outer.to(f64);
  CHECK((normal.mean.dtype() == f64 && normal.table.dtype() == f64));
  outer.to(bf16);
  CHECK((normal.mean.dtype() == f32 && normal.table.dtype() == f32));
}

TEST_CASE("module: moving to a device that is not there changes nothing" *
          doctest::skip(cuda_available())) {
  Tree tree;
  CHECK_THROWS_AS(tree.to(Device::cuda()), Error);
  CHECK(tree.scale.device().is_cpu());
}

TEST_CASE("module: names are checked") {
  struct Wrong : nn::Module {
    Wrong(const std::string& a, const std::string& b, DType dtype = f32) {
      register_parameter(a, ones({1}, dtype));
      register_buffer(b, ones({1}));
    }
  };
  CHECK_THROWS_WITH_AS(Wrong("a", "a"), "module: the name a is taken", Error);
  CHECK_THROWS_WITH_AS(Wrong("a", ""), "module: a parameter, buffer or child needs a name", Error);
  CHECK_THROWS_WITH_AS(Wrong("a", "b", i32), "module: parameter a of dtype i32 cannot learn",
                       Error);
}

TEST_CASE("module: the example of its documentation") {
  struct Affine : nn::Module {
    Variable scale;
    nn::Linear linear{{.in = 3, .out = 4}};
    Affine() {
      register_parameter("scale", scale, ones({3}));
      register_module("linear", linear);
    }
    Variable forward(const Variable& x) const { return linear.forward(x * scale); }
  };
  const Affine affine;
  CHECK(affine.forward(ones({2, 3})).shape() == Shape{2, 4});
  CHECK(names(affine.named_parameters()) ==
        std::vector<std::string>{"scale", "linear.weight", "linear.bias"});
}

TEST_CASE("module: prints its parameters, and layers without any") {
  CHECK(to_string(Leaf()) ==
        "weight f32 [2, 3]\nbias f32 [2]\nsteps i64 [1], a buffer\n8 elements");
  nn::Sequential model;
  model.add<nn::Linear>({.in = 2, .out = 3});
  model.add<nn::Tanh>();
  model.add<nn::Linear>({.in = 3, .out = 3, .bias = false});
  CHECK(to_string(model) ==
        "0.weight f32 [3, 2]\n0.bias f32 [3]\n1 bs::nn::Tanh\n2.weight f32 [3, 3]\n18 elements");
}

TEST_CASE("module: assigning a member ties it") {
  struct Model : nn::Module {
    nn::Embedding embedding{{.rows = 5, .width = 3}};
    nn::Linear head{{.in = 3, .out = 5, .bias = false}};
    Model() {
      register_module("embedding", embedding);
      register_module("head", head);
    }
  };
  Model model;
  model.head.weight = model.embedding.weight;
  CHECK(names(model.named_parameters()) == std::vector<std::string>{"embedding.weight"});
  CHECK(model.parameter_count() == 15);
  sum(model.head.forward(model.embedding.forward(Tensor::from<int64_t>({1, 2})))).backward();
  CHECK(model.parameters()[0].grad().defined());
  model.to(f64);
  CHECK(model.head.weight.dtype() == f64);
  optim::Sgd optimizer(model, {.learning_rate = .1});
  optimizer.step();
  CHECK(nn::state_dict(model).size() == 1);

  const Variable bias = Variable(ones({5}, f64), true);  // what was left out may be given later
  model.head.bias = bias;
  CHECK(names(model.named_parameters()) ==
        std::vector<std::string>{"embedding.weight", "head.bias"});
  model.head.bias = {};
  CHECK(model.parameters().size() == 1);
  model.head.weight = model.embedding.weight * 2;
  CHECK_THROWS_WITH_AS(model.parameters(),
                       "module: the member of parameter weight is the result of an operation",
                       Error);
}

TEST_CASE("module: a member that it does not know and that was assigned to is noticed") {
  Tree tree;
  tree.second.weight = tree.first.weight;
  CHECK_THROWS_WITH_AS(
      tree.named_parameters(),
      "module: the member of parameter weight was assigned to, and what it names now is not "
      "registered; give the member to register_parameter, or copy values into it",
      Error);
}

TEST_CASE("module: a member that was not registered is found") {
  struct Inner : nn::Module {
    nn::Linear known{{.in = 2, .out = 2}}, forgotten{{.in = 2, .out = 2}};
    Inner() { register_module("known", known); }
  };
  struct Outer : nn::Module {
    Inner inner;
    Outer() { register_module("inner", inner); }
  };
  const Inner alone;
  const nn::Linear beside({.in = 2, .out = 2});  // no part of it
  CHECK_THROWS_AS(Outer(), Error);
  try {
    nn::check_registered(alone);
    FAIL("it was registered");
  } catch (const Error& error) {
    const std::string text = error.what();
    CHECK(text.find("a member of type bs::nn::Linear in ") != std::string::npos);
    CHECK(text.find("is not registered; call register_module in its constructor") !=
          std::string::npos);
  }
  nn::check_registered(beside);
  struct Pooled : nn::Module {
    nn::Tanh nothing_to_train;
  };
  nn::check_registered(Pooled());
  struct Holder : nn::Module {  // what is owned elsewhere is its own business
    std::unique_ptr<nn::Linear> teacher =
        std::make_unique<nn::Linear>(nn::LinearOptions{.in = 2, .out = 2});
  };
  nn::check_registered(Holder());
}

TEST_CASE("module: two tensors with one path are refused") {
  struct Clash : nn::Module {
    Leaf leaf;
    explicit Clash(bool parameter) {
      register_module("leaf", leaf);
      if (parameter) {
        register_parameter("leaf.weight", ones({1}));
      } else {
        register_buffer("leaf.weight", ones({1}));
      }
    }
  };
  CHECK_THROWS_WITH_AS(Clash(true).named_parameters(),
                       "module: two tensors have the path leaf.weight", Error);
  CHECK_THROWS_WITH_AS(nn::state_dict(Clash(false)),
                       "state_dict: a parameter and a buffer have the path leaf.weight", Error);
}

TEST_CASE("module: no module is below itself") {
  struct Node : nn::Module {
    Variable w;
    Node() { register_parameter("w", w, ones({1})); }
    void adopt(const std::string& name, Node& child) { register_module(name, child); }
  };
  Node a, b, c;
  CHECK_THROWS_WITH_AS(a.adopt("self", a),
                       "module: the child self is its parent, or has it below itself", Error);
  a.adopt("b", b);
  b.adopt("c", c);
  CHECK_THROWS_WITH_AS(c.adopt("top", a),
                       "module: the child top is its parent, or has it below itself", Error);
  CHECK_THROWS_AS(b.adopt("a", a), Error);
  a.adopt("again", c);  // at two places, but below neither of them
  CHECK(a.parameters().size() == 3);
}
