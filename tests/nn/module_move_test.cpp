// Modules that move: what they registered comes along.
#include <bs/nn.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <array>
#include <optional>
#include <type_traits>

using namespace bs;
using namespace bs::test;

namespace {

std::vector<std::string> names(const std::vector<nn::NamedVariable>& list) {
  std::vector<std::string> out;
  for (const auto& named : list) out.push_back(named.name);
  return out;
}

nn::Linear linear(int64_t in, int64_t out) {
  return nn::Linear({.in = in, .out = out, .device = test_device()});
}

/// All that a module may have: members, an array, options, what it keeps elsewhere.
struct Net : nn::Module {
  Variable scale, absent;
  Variable known_by_value = register_parameter("by_value", ones({2}, f32, test_device()));
  Variable steps;
  nn::Linear first = linear(2, 3);
  std::array<nn::Linear, 2> middle{linear(3, 3), linear(3, 3)};
  std::optional<nn::Linear> last;
  std::unique_ptr<nn::Linear> elsewhere = std::make_unique<nn::Linear>(linear(3, 2));
  nn::ModuleList<nn::Linear> heads;
  nn::Dropout dropout{{.p = .5}};
  Net() {
    register_parameter("scale", scale, ones({2}, f32, test_device()));
    register_parameter("absent", absent, {});
    register_buffer("steps", steps, zeros({1}, i64, test_device()));
    register_module("first", first);
    register_module("middle.0", middle[0]);
    register_module("middle.1", middle[1]);
    register_module("last", last.emplace(linear(3, 3)));
    register_module("elsewhere", *elsewhere);
    heads.emplace(linear(2, 1));
    register_module("heads", heads);
    register_module("dropout", dropout);
  }
  Variable forward(const Variable& x) const {
    Variable y = first.forward(x * scale * known_by_value);
    for (const nn::Linear& layer : middle) y = layer.forward(y);
    return heads[0].forward(elsewhere->forward(last->forward(y)));
  }
};

std::vector<std::string> expected_names() {
  return {"by_value",         "scale",           "first.weight",   "first.bias",  "middle.0.weight",
          "middle.0.bias",    "middle.1.weight", "middle.1.bias",  "last.weight", "last.bias",
          "elsewhere.weight", "elsewhere.bias",  "heads.0.weight", "heads.0.bias"};
}

/// That a net holds together: its members are what it names, and one step of training changes them.
void check_whole(Net& net) {
  nn::check_registered(net);
  const std::vector<nn::NamedVariable> parameters = net.named_parameters();
  CHECK(names(parameters) == expected_names());
  CHECK(names(net.named_buffers()) == std::vector<std::string>{"steps"});
  CHECK(parameters[0].variable.is_same(net.known_by_value));
  CHECK(parameters[1].variable.is_same(net.scale));
  CHECK(parameters[2].variable.is_same(net.first.weight));
  CHECK(parameters[6].variable.is_same(net.middle[1].weight));
  CHECK(parameters[8].variable.is_same(net.last->weight));
  CHECK(parameters[10].variable.is_same(net.elsewhere->weight));
  CHECK(parameters[12].variable.is_same(net.heads[0].weight));

  net.eval();
  CHECK_FALSE(net.dropout.training());
  CHECK_FALSE(net.last->training());
  CHECK_FALSE(net.heads[0].training());
  net.train();
  CHECK(net.middle[1].training());

  const Tensor before = net.scale.data().clone();
  optim::Sgd optimizer(net, {.learning_rate = .1});
  sum(net.forward(ones({4, 2}, f32, test_device()))).backward();
  for (const nn::NamedVariable& p : parameters) CHECK(p.variable.grad().defined());
  optimizer.step();
  optimizer.zero_grad();
  CHECK(Reference::of(before).values != Reference::of(net.scale.data()).values);
}

void check_empty(const nn::Module& module) {
  CHECK(module.named_parameters().empty());
  CHECK(module.named_buffers().empty());
  CHECK(nn::state_dict(module).empty());
  CHECK(to_string(module) == "0 elements");
}

}  // namespace

TEST_CASE("moved modules: what was registered comes along, and an empty module stays") {
  Net from;
  const Variable scale = from.scale, weight = from.last->weight;
  const std::string text = to_string(from);
  Net to = std::move(from);
  CHECK(to.scale.is_same(scale));
  CHECK(to.last->weight.is_same(weight));
  CHECK(to_string(to) == text);
  check_whole(to);
  check_empty(from);
  CHECK_THROWS_AS(from.forward(ones({4, 2}, f32, test_device())), Error);
  check_whole(to);
}

TEST_CASE("moved modules: the one that was left may be destroyed, and what it left may move on") {
  std::optional<Net> first(std::in_place);
  const Tensor scale = first->scale.data();
  auto second = std::make_unique<Net>(std::move(*first));
  first.reset();
  check_whole(*second);
  Net third = std::move(*second);
  second.reset();
  check_whole(third);
  CHECK(third.scale.data().shares_storage(scale));
}

TEST_CASE("moved modules: a vector of them grows") {
  std::vector<Net> nets;
  for (int i = 0; i < 5; ++i) {
    nets.emplace_back();
    fill(nets.back().scale.data(), i);
  }
  for (int i = 0; i < 5; ++i) {
    CHECK(Reference::of(nets[static_cast<size_t>(i)].scale.data()).values[0] == i);
    check_whole(nets[static_cast<size_t>(i)]);
  }
  std::vector<nn::Linear> layers;
  for (int i = 1; i <= 5; ++i) layers.push_back(linear(i, i + 1));
  Variable x = ones({1, 1}, f32, test_device());
  for (const nn::Linear& layer : layers) x = layer.forward(x);
  CHECK(x.shape() == Shape{1, 6});
  for (const nn::Linear& layer : layers) CHECK(layer.parameters().size() == 2);
}

TEST_CASE("moved modules: functions return them, and parents are made of them") {
  struct Pair : nn::Module {
    nn::Linear a, b;
    Pair(nn::Linear left, nn::Linear right) : a(std::move(left)), b(std::move(right)) {
      register_module("a", a);
      register_module("b", b);
    }
  };
  const auto make = [](bool wide) {
    Pair narrow(linear(2, 2), linear(2, 1)), broad(linear(2, 4), linear(4, 1));
    return wide ? std::move(broad) : std::move(narrow);
  };
  const auto pair = make(true);
  CHECK(pair.parameter_count() == 2 * 4 + 4 + 4 + 1);
  CHECK(pair.parameters()[2].is_same(pair.b.weight));
  struct Forgetful : nn::Module {
    nn::Linear a;
    explicit Forgetful(nn::Linear given) : a(std::move(given)) {}
  };
  const Forgetful forgetful(linear(2, 2));
  CHECK_THROWS_AS(nn::check_registered(forgetful), Error);
}

TEST_CASE("moved modules: parameters are tied before and after, and by swapping") {
  Net from;
  from.middle[0].weight = from.middle[1].weight;
  Net net = std::move(from);
  CHECK(net.parameters().size() == expected_names().size() - 1);
  net.last->weight = net.middle[1].weight;
  CHECK(net.parameters().size() == expected_names().size() - 2);
  net.absent = Variable(ones({1}, f32, test_device()), true);
  CHECK(names(net.named_parameters())[2] == "absent");

  Net other;
  const Variable mine = net.scale, its = other.scale;
  std::swap(net.scale, other.scale);
  CHECK(net.named_parameters()[1].variable.is_same(its));
  CHECK(other.named_parameters()[1].variable.is_same(mine));
  Variable taken = std::move(net.first.bias);
  CHECK(names(net.named_parameters())[4] == "middle.0.weight");
  net.first.bias = taken;
  CHECK(names(net.named_parameters())[4] == "first.bias");
}

TEST_CASE("moved modules: a child that is moved out alone belongs to no parent") {
  Net net;
  std::optional<nn::Linear> alone(std::move(net.first));
  CHECK(alone->parameters().size() == 2);
  CHECK(names(net.named_parameters())[2] == "middle.0.weight");
  CHECK_THROWS_AS(net.forward(ones({4, 2}, f32, test_device())), Error);
  alone.reset();
  CHECK(net.parameters().size() == expected_names().size() - 2);
}

TEST_CASE("moved modules: a child or a member that is no more is an error, not a crash") {
  struct Keeper : nn::Module {
    std::vector<nn::Linear> layers;
    std::unique_ptr<Variable> value = std::make_unique<Variable>();
    Keeper() {
      register_parameter("value", *value, ones({1}));
      layers.push_back(linear(2, 2));
      register_module("layer", layers.back());
    }
  };
  Keeper keeper;
  CHECK(keeper.parameters().size() == 3);
  Keeper moved = std::move(keeper);
  CHECK(moved.parameters().size() == 3);
  moved.layers.push_back(linear(2, 2));
  CHECK_THROWS_WITH_AS(moved.parameters(),
                       "module: the child layer is no more; it must live as long as its parent, "
                       "and one that its parent does not contain stays where it was registered",
                       Error);
  CHECK_THROWS_AS(moved.eval(), Error);
  Keeper other;
  other.value.reset();
  CHECK_THROWS_WITH_AS(
      other.parameters(),
      "module: the member of parameter value is no more; it must live as long as its module",
      Error);
  auto shared = std::make_unique<nn::Linear>(linear(1, 1));  // outlives its parent
  struct Borrower : nn::Module {
    explicit Borrower(nn::Linear& lent) { register_module("lent", lent); }
  };
  { const Borrower borrower(*shared); }
  CHECK(nn::Linear(std::move(*shared)).parameters().size() == 2);
}

TEST_CASE("moved modules: a module at two places follows at both") {
  struct Tied : nn::Module {
    nn::Linear layer = linear(2, 2);
    Tied() {
      register_module("here", layer);
      register_module("there", layer);
    }
  };
  Tied from;
  const Tied to = std::move(from);
  CHECK(names(to.named_parameters()) == std::vector<std::string>{"here.weight", "here.bias"});
}

TEST_CASE("moved modules: hooks, state dictionaries and checkpointed names stay") {
  Net from;
  int seen = 0;
  from.scale.register_hook([&](const Tensor& g) {
    ++seen;
    return g;
  });
  const nn::StateDict before = nn::state_dict(from);
  Net to = std::move(from);
  sum(to.forward(ones({4, 2}, f32, test_device()))).backward();
  CHECK(seen == 1);
  const nn::StateDict after = nn::state_dict(to);
  CHECK(before.size() == after.size());
  for (const auto& [name, tensor] : before) CHECK(after.at(name).shares_storage(tensor));
  Net fresh;
  CHECK(nn::load_state_dict(fresh, after).missing.empty());
  to.to(f64);
  CHECK(to.elsewhere->weight.dtype() == f64);
}

namespace {

/// Moves a layer, and compares what it computes; `use` of what it left is an error.
template <class M, class Use>
void check_moves(M from, const Use& use) {
  static_assert(std::is_nothrow_move_constructible_v<M>);
  static_assert(!std::is_copy_constructible_v<M> && !std::is_move_assignable_v<M>);
  CAPTURE(to_string(from));
  const std::vector<nn::NamedVariable> before = from.named_parameters();
  from.eval();
  const Tensor expected = use(from);
  const M to = std::move(from);
  CHECK_FALSE(to.training());
  CHECK(names(to.named_parameters()) == names(before));
  CHECK(Reference::of(use(to)).values == Reference::of(expected).values);
  check_empty(from);
  CHECK_THROWS_AS(use(from), Error);
}

const auto forward_of = [](const Tensor& x) {
  return [x](const auto& layer) { return layer.forward(x).data(); };
};

nn::Pattern dense_pattern() {
  return [](const patterns::Size& size) { return patterns::dense(size); };
}

}  // namespace

TEST_CASE("moved modules: every layer computes the same elsewhere, and none can be used after") {
  const NoGrad no_grad;
  const Tensor rows = ones({3, 8}), steps = ones({3, 2, 8}), images = ones({1, 8, 4, 4});
  const LayoutPtr blocks = patterns::dense({.rows = 2, .cols = 1, .block = 8});
  check_moves(nn::Linear({.in = 8, .out = 2}), forward_of(rows));
  check_moves(nn::BlockSparseLinear({.layout = blocks}), forward_of(rows));
  check_moves(nn::KroneckerLinear({.in = 8, .out = 8}), forward_of(rows));
  check_moves(nn::KroneckerLinear({.in = 8, .out = 8}),
              [](const nn::KroneckerLinear& layer) { return layer.weight(); });
  check_moves(nn::Embedding({.rows = 4, .width = 3}), forward_of(zeros({2}, i64)));
  check_moves(nn::Conv1d({.in = 8, .out = 2, .kernel = 3}), forward_of(ones({1, 8, 4})));
  check_moves(nn::Conv2d({.in = 8, .out = 2}), forward_of(images));
  check_moves(nn::ConvTranspose2d({.in = 8, .out = 2}), forward_of(images));
  check_moves(nn::BlockSparseConv2d({.layout = blocks}), forward_of(images));
  check_moves(nn::ResNetBlock(8, 8, 2, {.depth = 18}), forward_of(images));
  for (const bool norms : {false, true})
    for (const int factors : {0, 2})
      check_moves(nn::LSTM({.input = 8,
                            .hidden = 4,
                            .layers = 2,
                            .layer_norm = norms,
                            .input_factors = factors}),
                  [&](const nn::LSTM& lstm) { return lstm.forward(steps).y.data(); });
  check_moves(nn::GRU({.input = 8, .hidden = 4}),
              [&](const nn::GRU& gru) { return gru.forward(steps).y.data(); });
  check_moves(nn::RNN({.input = 8, .hidden = 4}),
              [&](const nn::RNN& rnn) { return rnn.forward(steps).y.data(); });
  check_moves(nn::LSTMCell({.input = 8, .hidden = 4}),
              [&](const nn::LSTMCell& cell) { return cell.forward(rows).h.data(); });
  check_moves(nn::GRUCell({.input = 8, .hidden = 4}), forward_of(rows));
  check_moves(nn::RNNCell({.input = 8, .hidden = 4}), forward_of(rows));
}

TEST_CASE("moved modules: every model computes the same elsewhere, and none can be used after") {
  const NoGrad no_grad;
  const Tensor x = ones({2, 16, 16}), tokens = zeros({2, 16}, i64);
  const nn::SparseAttentionOptions attention{
      .width = 16, .heads = 2, .block = 8, .pattern = dense_pattern(), .query_key_norm = true};
  check_moves(nn::SparseAttention(attention), forward_of(x));
  check_moves(nn::SparseAttention(attention),
              [](const nn::SparseAttention& a) { return zeros({a.layout(16)->nnz()}); });
  check_moves(nn::MultiheadAttention({.width = 16, .heads = 2, .query_key_norm = true}),
              forward_of(x));
  check_moves(
      nn::TransformerBlock({.width = 16, .heads = 2, .block = 8, .pattern = dense_pattern()}),
      forward_of(x));
  const nn::TransformerLayerOptions layer{.width = 16, .heads = 2, .hidden = 8, .block = 8};
  check_moves(nn::TransformerEncoder(layer, 2), forward_of(x));
  check_moves(nn::TransformerDecoder(layer, 2),
              [&](const nn::TransformerDecoder& d) { return d.forward(x, x).data(); });
  check_moves(nn::Transformer({.layer = layer, .encoder_layers = 1, .decoder_layers = 1}),
              [&](const nn::Transformer& t) { return t.forward(x, x).data(); });
  const nn::SparseTransformerOptions options{.vocabulary = 8,
                                             .context = 16,
                                             .width = 16,
                                             .layers = 2,
                                             .heads = 2,
                                             .block = 8,
                                             .pattern = dense_pattern()};
  check_moves(nn::SparseTransformer(options), forward_of(tokens));
  check_moves(nn::SparseTransformer(options), [&](const nn::SparseTransformer& model) {
    std::vector<nn::KVCache> caches = model.make_caches(2);
    return model.forward(tokens, caches).data();
  });
  check_moves(nn::ResNet({.depth = 18, .classes = 2, .width = 8}),
              forward_of(ones({1, 3, 32, 32})));
  const nn::RNNTOptions rnnt{
      .features = 4, .encoder_hidden = 8, .prediction_hidden = 8, .joint = 8, .classes = 5};
  check_moves(nn::RNNT(rnnt), [](const nn::RNNT& model) {
    return model.encode(ones({2, 6, 4})).f.data();
  });
  check_moves(nn::RNNT(rnnt), [](const nn::RNNT& model) {
    return model.predict(zeros({2, 3}, i64)).g.data();
  });
}

TEST_CASE("moved modules: layers without parameters, norms and lists") {
  const Tensor x = randn({2, 4, 4, 4});
  nn::BatchNorm2d norm({.channels = 4});
  const nn::BatchNorm2d moved = std::move(norm);
  CHECK(moved.named_buffers().size() == 3);
  CHECK(moved.forward(x).shape() == x.shape());
  check_empty(norm);
  nn::Sequential model;
  model.add<nn::Conv2d>({.in = 4, .out = 2});
  model.add<nn::ReLU>();
  const Tensor expected = model.forward(x).data();
  const nn::Sequential same = std::move(model);
  CHECK(Reference::of(same.forward(x).data()).values == Reference::of(expected).values);
  CHECK(model.size() == 0);
  check_empty(model);
  nn::ModuleDict<nn::Linear> dict;
  dict.add("a", {.in = 2, .out = 2});
  const nn::ModuleDict<nn::Linear> other = std::move(dict);
  CHECK(other["a"].parameters()[0].is_same(other.named_parameters()[0].variable));
  CHECK_FALSE(dict.contains("a"));
  nn::Layer layer = nn::Layer::make<nn::Linear>({.in = 4, .out = 4});
  const nn::Layer taken = std::move(layer);
  CHECK(taken.forward(x).defined());
  CHECK_THROWS_WITH_AS(layer.forward(x), "layer: it was moved away", Error);
  CHECK_THROWS_WITH_AS(layer.module(), "layer: it was moved away", Error);
}
