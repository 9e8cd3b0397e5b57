#include <bs/kernels/gemm_description.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace bs {

using epilogue::Binary;
using epilogue::Operand;
using epilogue::Reduction;
using epilogue::Step;
using epilogue::Unary;

namespace {

constexpr const char* unary_names[] = {"negate",    "relu",  "leaky_relu", "tanh",
                                       "sigmoid",   "silu",  "hardswish",  "gelu",
                                       "gelu_tanh", "clamp", "exp",        "abs"};
constexpr const char* binary_names[] = {"+", "-", "*", "/", "maximum", "minimum"};

/// The exact value, as a literal.
std::string literal(double value) {
  if (std::isnan(value)) return "__int_as_float(0x7fffffff)";
  if (std::isinf(value))
    return value > 0 ? "__int_as_float(0x7f800000)" : "__int_as_float(0xff800000)";
  char digits[64];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, std::abs(value), std::chars_format::hex);
  return format("Compute({}0x{})", std::signbit(value) ? "-" : "", std::string(digits, end.ptr));
}

std::string value_of(int step) { return format("v{}", step); }

/// The expression of one element of a step, without its loads.
std::string expression(const Step& step) {
  const std::string x = value_of(step.x);
  const std::string y = value_of(step.y);
  switch (step.kind) {
    case Step::Kind::accumulator:
      return "static_cast<Compute>(sums[v])";
    case Step::Kind::constant:
      return literal(step.first);
    case Step::Kind::scalar:
      return format("s{}", step.slot);
    case Step::Kind::unary: {
      const auto op = static_cast<Unary>(step.op);
      if (op == Unary::negate) return "-" + x;
      std::string arguments = x;
      if (op == Unary::leaky_relu || op == Unary::clamp) arguments += ", " + literal(step.first);
      if (op == Unary::clamp) arguments += ", " + literal(step.second);
      return format("F::{}({})", unary_names[step.op], arguments);
    }
    default: {
      if (step.op <= static_cast<uint8_t>(Binary::divide))
        return format("{} {} {}", x, binary_names[step.op], y);
      return format("F::{}({}, {})", binary_names[step.op], x, y);
    }
  }
}

std::string load(const Step& step, const Operand& operand, int number, bool transposed) {
  const Operand::Kind per_row = transposed ? Operand::Kind::row : Operand::Kind::column;
  const bool matrix = operand.kind == Operand::Kind::tensor;
  std::string text = format("{}<{}>(operands[{}], {}, m{});",
                            matrix                    ? "load_operand"
                            : operand.kind == per_row ? "load_column"
                                                      : "load_row",
                            device_type(operand.element), step.slot, matrix ? "in" : "at", number);
  if (step.guard < 0) return "    " + text + "\n";
  return format(
      "    if (s{} != Compute(0)) {\n"
      "      {}\n"
      "    } else {\n"
      "#pragma unroll\n"
      "      for (int v = 0; v < V; ++v) m{}[v] = Compute(0);\n"
      "    }\n",
      step.guard, text, number);
}

unsigned bits(const std::vector<Reduction>& reductions, bool (*property)(const Reduction&)) {
  unsigned mask = 0;
  for (size_t i = 0; i < reductions.size(); ++i) mask |= (property(reductions[i]) ? 1U : 0U) << i;
  return mask;
}

/// Whether all results are floats of at most 11 bits of mantissa.
bool rounds_coarsely(const GemmEpilogue& e) {
  const auto coarse = [](const Operand& o) {
    const Element x = o.element;
    return o.stored < 0 || x == Element::f16 || x == Element::bf16 || x == Element::e4m3 ||
           x == Element::e5m2;
  };
  return e.reductions().empty() && std::all_of(e.operands().begin(), e.operands().end(), coarse);
}

/// Whether it is a few additions and products of what is in registers.
bool is_short(const GemmEpilogue& e) {
  const auto plain = [](const Step& step) {
    return step.kind == Step::Kind::accumulator || step.kind == Step::Kind::constant ||
           step.kind == Step::Kind::scalar ||
           (step.kind == Step::Kind::binary && step.op < static_cast<uint8_t>(Binary::divide));
  };
  return e.steps().size() <= 4 && std::all_of(e.steps().begin(), e.steps().end(), plain);
}

bool is_loaded(const Step& step) { return step.kind == Step::Kind::load; }

/// The loads, then one loop over the V neighbours for everything else, then the stores.
std::string body(const GemmEpilogue& e, bool transposed) {
  const std::vector<Step>& steps = e.steps();
  std::string loads, loop, stores;
  for (size_t i = 0; i < e.scalars().size(); ++i)
    loads += format("    const Compute s{} = scalar_at<Compute>(scalars, {});\n", i, i);
  for (size_t i = 0; i < steps.size(); ++i) {
    const int number = static_cast<int>(i);
    if (is_loaded(steps[i])) {
      loads += format("    Compute m{}[V];\n", number) +
               load(steps[i], e.operands()[static_cast<size_t>(steps[i].slot)], number, transposed);
      loop += format("      const Compute v{} = m{}[v];\n", number, number);
    } else {
      loop += format("      const Compute v{} = {};\n", number, expression(steps[i]));
    }
  }
  std::vector<bool> kept(steps.size());
  const auto keep = [&](int number) {  // where a step's values of all neighbours are found
    const Step& step = steps[static_cast<size_t>(number)];
    if (is_loaded(step)) return format("m{}", number);
    if (!kept[static_cast<size_t>(number)]) {
      kept[static_cast<size_t>(number)] = true;
      loads += format("    Compute out{}[V];\n", number);
      loop += format("      out{}[v] = v{};\n", number, number);
    }
    return format("out{}", number);
  };
  int count = 0;
  for (size_t i = 0; i < e.operands().size(); ++i) {
    const Operand& o = e.operands()[i];
    if (o.stored < 0) continue;
    const bool sums = steps[static_cast<size_t>(o.stored)].kind == Step::Kind::accumulator;
    stores += format("    store.template put<{}, {}>(operands[{}], in, {});\n",
                     device_type(o.element), count++, i, sums ? "sums" : keep(o.stored));
  }
  for (size_t i = 0; i < e.reductions().size(); ++i)
    loop += format("      reduced[{}][v] = v{};\n", i, e.reductions()[i].step);
  return loads + "#pragma unroll\n    for (int v = 0; v < V; ++v) {\n" + loop + "    }\n" + stores;
}

}  // namespace

std::string device_type(Element element) {
  constexpr const char* names[] = {"double",      "float", "float", "__half", "__nv_bfloat16",
                                   "signed char", "int",   "E4m3",  "E5m2"};
  return names[static_cast<size_t>(element)];
}

std::string key(const GemmEpilogue& e) {
  std::string key;
  const auto add = [&key](const auto& value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  // Operands and reductions are as long as each other: their counts tell which is which.
  for (const size_t count : {e.steps().size(), e.operands().size(), e.reductions().size()})
    add(count);
  for (const Step& s : e.steps()) {
    for (const int number : {int(s.kind), int(s.op), s.x, s.y, s.slot, s.guard}) add(number);
    for (const double number : {s.first, s.second}) add(number);
  }
  for (const Operand& o : e.operands())
    for (const int number : {int(o.kind), int(o.element), o.stored}) add(number);
  for (const Reduction& r : e.reductions())
    for (const int number : {int(r.over_columns), int(r.is_max), r.step}) add(number);
  return key;
}

std::string to_source(const GemmEpilogue& e, Element accumulator, bool transposed) {
  const std::vector<Reduction>& r = e.reductions();
  const unsigned by_columns = bits(r, [](const Reduction& x) { return x.over_columns; });
  const unsigned all = (1U << r.size()) - 1;
  std::string text = "struct Epilogue {\n";
  text += format("  using Sum = {};\n  using Compute = {};\n",
                 device_type(accumulator == Element::f16 ? Element::f32 : accumulator),
                 accumulator == Element::f64 ? "double" : "float");
  text += format("  static constexpr int vector = {}, operands = {}, reductions = {};\n",
                 std::min(16 / size_of(e.operands().front().element), 8), e.operands().size(),
                 r.size());
  text += format("  static constexpr bool is_short = {};\n", is_short(e) ? "true" : "false");
  text += format(
      "  __device__ static constexpr bool over_columns(int i) { return {}u >> i & 1; }\n"
      "  __device__ static constexpr bool is_max(int i) { return {}u >> i & 1; }\n",
      transposed ? all & ~by_columns : by_columns,
      bits(r, [](const Reduction& x) { return x.is_max; }));
  text += format(
      "  template <int V, class Store>\n"
      "  __device__ static void apply(const EpilogueScalars& scalars, const GemmOperand* "
      "operands,\n"
      "                               const EpiloguePlace& at, const EpiloguePlace& in,\n"
      "                               const Sum (&sums)[V], Compute (&reduced)[{}][V],\n"
      "                               const Store& store) {\n"
      "    using F = EpilogueFunctions<Compute, {}>;\n",
      std::max<size_t>(r.size(), 1),
      accumulator != Element::f64 && rounds_coarsely(e) ? "true" : "false");
  return text + body(e, transposed) + "  }\n};\n";
}

std::string to_string(const GemmEpilogue& e) {
  std::string text;
  for (size_t i = 0; i < e.steps().size(); ++i) {
    const Step& step = e.steps()[i];
    std::string value;
    if (step.kind == Step::Kind::load) {
      const Operand& o = e.operands()[static_cast<size_t>(step.slot)];
      constexpr const char* kinds[] = {"tensor", "row", "column"};
      value = format("{} {} {}", kinds[static_cast<size_t>(o.kind)], o.name, o.element);
    } else if (step.kind == Step::Kind::scalar) {
      value = "scalar " + e.scalars()[static_cast<size_t>(step.slot)];
    } else {
      value = step.kind == Step::Kind::accumulator ? "accumulator" : expression(step);
    }
    text += format("{} = {}\n", value_of(static_cast<int>(i)), value);
  }
  for (const Operand& o : e.operands())
    if (o.stored >= 0) text += format("store {} {} = {}\n", o.name, o.element, value_of(o.stored));
  for (const Reduction& r : e.reductions())
    text += format("{} {} = {}\n",
                   r.over_columns ? (r.is_max ? "row_max" : "row_sum")
                                  : (r.is_max ? "column_max" : "column_sum"),
                   r.name, value_of(r.step));
  return text;
}

}  // namespace bs
