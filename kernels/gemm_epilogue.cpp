#include <bs/kernels/gemm_epilogue.h>

#include <algorithm>

namespace bs {

namespace epilogue {

struct Node {
  Step step;         // without numbers of steps and slots
  std::string name;  // of a scalar or an operand
  Operand::Kind kind = Operand::Kind::tensor;
  Element element = Element::f32;
  std::shared_ptr<const Node> x = nullptr, y = nullptr;
};

namespace {

using Kind = Step::Kind;

Value leaf(Kind kind, const std::string& name, Operand::Kind shape, Element element) {
  return Value(std::make_shared<Node>(Node{{.kind = kind}, name, shape, element}));
}

const std::shared_ptr<const Node>& node_of(const Value& x) {
  BS_CHECK(x.node(), "epilogue: a value of a null node");
  return x.node();
}

Value unary(Unary op, const Value& x, double first = 0, double second = 0) {
  const Step step{
      .kind = Kind::unary, .op = static_cast<uint8_t>(op), .first = first, .second = second};
  return Value(std::make_shared<Node>(
      Node{step, {}, Operand::Kind::tensor, Element::f32, node_of(x), nullptr}));
}

Value binary(Binary op, const Value& x, const Value& y) {
  const Step step{.kind = Kind::binary, .op = static_cast<uint8_t>(op)};
  return Value(std::make_shared<Node>(
      Node{step, {}, Operand::Kind::tensor, Element::f32, node_of(x), node_of(y)}));
}

}  // namespace

Value::Value(double constant)
    : node_(std::make_shared<Node>(Node{{.kind = Kind::constant, .first = constant}, {}})) {}

Value accumulator() { return leaf(Kind::accumulator, {}, Operand::Kind::tensor, Element::f32); }
Value scalar(const std::string& name) {
  return leaf(Kind::scalar, name, Operand::Kind::tensor, Element::f32);
}
Value tensor(const std::string& name, Element element) {
  return leaf(Kind::load, name, Operand::Kind::tensor, element);
}
Value row(const std::string& name, Element element) {
  return leaf(Kind::load, name, Operand::Kind::row, element);
}
Value column(const std::string& name, Element element) {
  return leaf(Kind::load, name, Operand::Kind::column, element);
}

Value operator+(const Value& x, const Value& y) { return binary(Binary::add, x, y); }
Value operator-(const Value& x, const Value& y) { return binary(Binary::subtract, x, y); }
Value operator*(const Value& x, const Value& y) { return binary(Binary::multiply, x, y); }
Value operator/(const Value& x, const Value& y) { return binary(Binary::divide, x, y); }
Value operator-(const Value& x) { return unary(Unary::negate, x); }
Value maximum(const Value& x, const Value& y) { return binary(Binary::maximum, x, y); }
Value minimum(const Value& x, const Value& y) { return binary(Binary::minimum, x, y); }

Value relu(const Value& x) { return unary(Unary::relu, x); }
Value leaky_relu(const Value& x, double slope) { return unary(Unary::leaky_relu, x, slope); }
Value tanh(const Value& x) { return unary(Unary::tanh, x); }
Value sigmoid(const Value& x) { return unary(Unary::sigmoid, x); }
Value silu(const Value& x) { return unary(Unary::silu, x); }
Value hardswish(const Value& x) { return unary(Unary::hardswish, x); }
Value gelu(const Value& x) { return unary(Unary::gelu, x); }
Value gelu_tanh(const Value& x) { return unary(Unary::gelu_tanh, x); }
Value clamp(const Value& x, double low, double high) { return unary(Unary::clamp, x, low, high); }
Value exp(const Value& x) { return unary(Unary::exp, x); }
Value abs(const Value& x) { return unary(Unary::abs, x); }

}  // namespace epilogue

using epilogue::Node;
using epilogue::Operand;
using epilogue::Step;
using epilogue::Value;
using Kind = Step::Kind;

GemmEpilogue::GemmEpilogue(const Value& d) {
  operands_.push_back({.name = "d"});
  operands_.front().stored = add(d);
}

GemmEpilogue::GemmEpilogue() : GemmEpilogue(epilogue::scalar("alpha") * epilogue::accumulator()) {}

GemmEpilogue GemmEpilogue::linear_combination(Element c) {
  using namespace epilogue;
  return GemmEpilogue(scalar("alpha") * accumulator() + scalar("beta") * tensor("c", c));
}

int GemmEpilogue::add_step(const Step& step) {
  const auto found = std::find(steps_.begin(), steps_.end(), step);
  if (found != steps_.end()) return static_cast<int>(found - steps_.begin());
  steps_.push_back(step);
  return static_cast<int>(steps_.size()) - 1;
}

int GemmEpilogue::operand(const Node& node) {
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& o = operands_[i];
    if (o.name != node.name || o.stored >= 0) continue;
    BS_CHECK(o.kind == node.kind && o.element == node.element,
             "epilogue: the operand '{}' is used in two ways", node.name);
    return static_cast<int>(i);
  }
  check_new(node.name);
  BS_CHECK(operands_.size() < most_operands, "epilogue: more than {} tensors", most_operands);
  operands_.push_back({node.name, node.kind, node.element, -1});
  return static_cast<int>(operands_.size()) - 1;
}

int GemmEpilogue::add_leaf(const Node& node) {
  Step step = node.step;
  if (step.kind == Kind::scalar) {
    const auto found = std::find(scalars_.begin(), scalars_.end(), node.name);
    step.slot = static_cast<int>(found - scalars_.begin());
    if (found == scalars_.end()) {
      BS_CHECK(scalars_.size() < most_scalars, "epilogue: more than {} scalars", most_scalars);
      BS_CHECK(!node.name.empty(), "epilogue: a scalar has no name");
      scalars_.push_back(node.name);
    }
  } else if (step.kind == Kind::load) {
    step.slot = operand(node);
  }
  return add_step(step);
}

int GemmEpilogue::add(const Value& value) {
  Known known;
  return add(*epilogue::node_of(value), known);
}

int GemmEpilogue::add(const Node& node, Known& known) {
  const auto found = known.find(&node);
  if (found != known.end()) return found->second;
  const int step = node.x ? add_inner(node, known) : add_leaf(node);
  known.emplace(&node, step);
  return step;
}

int GemmEpilogue::add_inner(const Node& node, Known& known) {
  Step step = node.step;
  step.x = add(*node.x, known);
  if (!node.y) return add_step(step);
  // A tensor times a scalar: not read where the scalar is 0, unless the tensor was loaded anyway.
  const bool product = static_cast<epilogue::Binary>(step.op) == epilogue::Binary::multiply;
  const Node& other = *node.y;
  const Kind first = steps_[static_cast<size_t>(step.x)].kind;
  if (product && first == Kind::scalar && other.step.kind == Kind::load) {
    Step load = other.step;
    load.slot = operand(other);
    if (std::find(steps_.begin(), steps_.end(), load) == steps_.end())
      load.guard = steps_[static_cast<size_t>(step.x)].slot;
    step.y = add_step(load);
  } else {
    step.y = add(*node.y, known);
  }
  return add_step(step);
}

void GemmEpilogue::check_new(const std::string& name) const {
  BS_CHECK(!name.empty(), "epilogue: an operand has no name");
  bool taken = name == "a" || name == "b";
  for (const Operand& o : operands_) taken = taken || o.name == name;
  for (const epilogue::Reduction& r : reductions_) taken = taken || r.name == name;
  BS_CHECK(!taken, "epilogue: the name '{}' is taken", name);
}

GemmEpilogue& GemmEpilogue::store(const std::string& name, const Value& value, Element element) {
  check_new(name);
  BS_CHECK(element != Element::tf32, "epilogue: '{}' cannot be stored as tf32; use f32", name);
  BS_CHECK(operands_.size() < most_operands, "epilogue: more than {} tensors", most_operands);
  const int step = add(value);
  operands_.push_back({name, Operand::Kind::tensor, element, step});
  return *this;
}

GemmEpilogue& GemmEpilogue::reduce(const std::string& name, const Value& value, bool over_columns,
                                   bool is_max) {
  check_new(name);
  BS_CHECK(reductions_.size() < most_reductions, "epilogue: more than {} reductions",
           most_reductions);
  reductions_.push_back({name, over_columns, is_max, add(value)});
  return *this;
}

GemmEpilogue& GemmEpilogue::row_sum(const std::string& name, const Value& value) {
  return reduce(name, value, true, false);
}
GemmEpilogue& GemmEpilogue::row_max(const std::string& name, const Value& value) {
  return reduce(name, value, true, true);
}
GemmEpilogue& GemmEpilogue::column_sum(const std::string& name, const Value& value) {
  return reduce(name, value, false, false);
}
GemmEpilogue& GemmEpilogue::column_max(const std::string& name, const Value& value) {
  return reduce(name, value, false, true);
}

std::vector<double> scalars_of(const char* op, const GemmEpilogue& e,
                               const std::map<std::string, double>& given) {
  std::vector<double> values;
  for (const std::string& name : e.scalars()) {
    const auto found = given.find(name);
    BS_CHECK(found != given.end(), "{}: the epilogue's scalar '{}' is missing", op, name);
    values.push_back(found->second);
  }
  BS_CHECK(values.size() == given.size(), "{}: {} scalars for an epilogue that has {}", op,
           given.size(), values.size());
  return values;
}

bool reads(const GemmEpilogue& e, size_t operand, const std::vector<double>& scalars) {
  BS_CHECK(scalars.size() == e.scalars().size(), "epilogue: {} numbers for its {} scalars",
           scalars.size(), e.scalars().size());
  return std::any_of(e.steps().begin(), e.steps().end(), [&](const Step& step) {
    return step.kind == Kind::load && step.slot == static_cast<int>(operand) &&
           (step.guard < 0 || scalars[static_cast<size_t>(step.guard)] != 0);
  });
}

}  // namespace bs
