#include <bs/bench/plain_case_list.h>
#include <bs/kernels/accumulate.h>
#include <bs/kernels/activation.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/block_float.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/dropout.h>
#include <bs/kernels/elementary.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/logic.h>
#include <bs/kernels/rectifier.h>
#include <bs/kernels/rounding.h>
#include <bs/kernels/unary.h>
#include <bs/kernels/where.h>

namespace bs::bench {

namespace {

using OfOne = Tensor (*)(const Tensor&);
using OfTwo = Tensor (*)(const Tensor&, const Tensor&);

struct Unary {
  const char* name;
  OfOne run;
};
struct Binary {
  const char* name;
  OfTwo run;
};

constexpr Unary unaries[] = {{"gelu", [](const Tensor& x) { return gelu(x); }},
                             {"gelu tanh", [](const Tensor& x) { return gelu(x, Gelu::tanh); }},
                             {"silu", silu},
                             {"sigmoid", sigmoid},
                             {"tanh", tanh},
                             {"relu", relu},
                             {"exp", exp},
                             {"neg", neg},
                             {"abs", abs},
                             {"clamp", [](const Tensor& x) { return clamp(x, -1, 1); }},
                             {"sin", sin},
                             {"cos", cos},
                             {"tan", tan},
                             {"erf", erf},
                             {"expm1", expm1},
                             {"softplus", [](const Tensor& x) { return softplus(x); }},
                             {"leaky_relu", [](const Tensor& x) { return leaky_relu(x); }},
                             {"elu", [](const Tensor& x) { return elu(x); }},
                             {"mish", mish},
                             {"hardswish", hardswish},
                             {"floor", floor},
                             {"ceil", ceil},
                             {"round", round},
                             {"trunc", trunc},
                             {"sign", sign},
                             {"block_float", [](const Tensor& x) { return block_float(x); }}};
constexpr Unary of_positive[] = {
    {"log", log}, {"sqrt", sqrt}, {"rsqrt", rsqrt}, {"reciprocal", reciprocal}, {"log1p", log1p}};
/// Of the input or the result, and the gradient.
constexpr Binary gradients[] = {
    {"gelu_backward", [](const Tensor& x, const Tensor& dy) { return gelu_backward(x, dy); }},
    {"gelu_backward tanh",
     [](const Tensor& x, const Tensor& dy) { return gelu_backward(x, dy, Gelu::tanh); }},
    {"silu_backward", silu_backward},
    {"sigmoid_backward", sigmoid_backward},
    {"tanh_backward", tanh_backward},
    {"relu_backward", relu_backward},
    {"abs_backward", abs_backward},
    {"clamp_backward",
     [](const Tensor& x, const Tensor& dy) { return clamp_backward(x, dy, -1, 1); }},
    {"tan_backward", tan_backward},
    {"erf_backward", erf_backward},
    {"softplus_backward",
     [](const Tensor& x, const Tensor& dy) { return softplus_backward(x, dy, 1); }},
    {"leaky_relu_backward",
     [](const Tensor& x, const Tensor& dy) { return leaky_relu_backward(x, dy, 0.01); }},
    {"elu_backward", [](const Tensor& x, const Tensor& dy) { return elu_backward(x, dy, 1); }},
    {"mish_backward", mish_backward},
    {"hardswish_backward", hardswish_backward}};
constexpr Binary gradients_of_positive[] = {{"sqrt_backward", sqrt_backward},
                                            {"rsqrt_backward", rsqrt_backward},
                                            {"reciprocal_backward", reciprocal_backward}};

constexpr Binary comparisons[] = {{"ne", ne}, {"lt", lt}, {"le", le}, {"gt", gt}, {"ge", ge}};
constexpr Unary kinds[] = {{"isnan", isnan}, {"isinf", isinf}, {"isfinite", isfinite}};
constexpr Binary logic[] = {
    {"logical_and", logical_and}, {"logical_or", logical_or}, {"logical_xor", logical_xor}};

/// Numbers from about .5 to 1.5.
Tensor positive(const Tensor& x) { return add(mul(x, 0.1), 1); }

void add_sums(Cases& c, const Tensor& x, const Tensor& y) {
  const double n = c.whole();
  const auto sum = [&](const char* layout, const Tensor& a, const Tensor& b, double moved) {
    c.add("add", layout, moved, [a, b] { return add(a, b); });
  };
  sum("contiguous", x, y, 3 * n);
  sum("row", x, c.values({c.columns}), 2 * n);
  sum("column", x, c.values({c.rows, 1}), 2 * n);
  sum("transposed", x, c.values({c.columns, c.rows}).transpose(0, 1), 3 * n);
  if (c.has_cube()) {
    sum("first axis", c.cube(x), c.values({1, c.rows / 4, c.columns}), 2 * n + n / 4);
    sum("middle axis", c.cube(x), c.values({4, 1, c.columns}), 2 * n);
  }
  const Tensor wide = c.values({c.rows, 2 * c.columns});
  sum("every second", x, wide.slice(1, 0, 2 * c.columns, 2), 4 * n);
  const auto one = static_cast<double>(c.rows * c.columns);
  const auto of_bytes = [&](const char* layout, DType dtype, int64_t end) {
    const Tensor a = cast(c.indices({c.rows, c.columns}, end), dtype);
    const Tensor b = cast(c.indices({c.rows, c.columns}, end), dtype);
    c.add("add", layout, 3 * one, [a, b] { return add(a, b); });
    c.add("mul", layout, 3 * one, [a, b] { return mul(a, b); });
  };
  of_bytes("u8", u8, 256);
  of_bytes("bool", boolean, 2);
}

void add_binary_gradients(Cases& c, const Tensor& a, const Tensor& b, const Tensor& dy) {
  const double moved = 4 * c.whole();
  const char* const layout = "contiguous";
  const Tensor base = positive(a), divisor = positive(b);
  c.add("div_backward_b", layout, moved, [=] { return div_backward_b(a, divisor, dy); });
  c.add("pow_backward_a", layout, moved, [=] { return pow_backward_a(base, b, dy); });
  c.add("pow_backward_b", layout, moved, [=] { return pow_backward_b(base, b, dy); });
  c.add("minimum_backward", layout, moved, [=] { return minimum_backward(a, b, dy); });
  c.add("maximum_backward", layout, moved, [=] { return maximum_backward(a, b, dy); });
  c.add("remainder_backward_b", layout, moved,
        [=] { return remainder_backward_b(a, divisor, dy); });
}

}  // namespace

void add_binaries(Cases& c) {
  const double n = c.whole();
  const Tensor x = c.matrix(), y = c.matrix(), base = positive(c.matrix());
  add_sums(c, x, y);
  c.add("add", "number", 2 * n, [x] { return add(x, 1.5); });
  c.add("sub", "from a number", 2 * n, [x] { return sub(1.5, x); });
  c.add("sub", "contiguous", 3 * n, [x, y] { return sub(x, y); });
  c.add("mul", "row", 2 * n, [x, row = c.values({c.columns})] { return mul(x, row); });
  c.add("div", "contiguous", 3 * n, [x, y] { return div(x, y); });
  c.add("minimum", "contiguous", 3 * n, [x, y] { return minimum(x, y); });
  c.add("maximum", "contiguous", 3 * n, [x, y] { return maximum(x, y); });
  c.add("pow", "number", 2 * n, [x] { return pow(x, 3); });
  c.add("pow", "contiguous", 3 * n, [=] { return pow(base, y); });
  c.add("remainder", "contiguous", 3 * n, [=] { return remainder(x, base); });
  add_binary_gradients(c, x, y, c.matrix());
  c.add("accumulate", "contiguous", 3 * n, [total = clone(x), y]() -> std::vector<Tensor> {
    accumulate(total, y);
    return {total};
  });
}

void add_comparisons(Cases& c) {
  const double n = c.whole();
  const auto one = static_cast<double>(c.rows * c.columns);
  const Tensor x = c.matrix(), y = c.matrix(), same = clone(x);
  const Tensor some = gt(x, 0), others = gt(y, 0);
  c.add("eq", "contiguous", 2 * n + one, [=] { return eq(x, y); });
  for (const auto& [name, run] : comparisons)
    c.add(name, "contiguous", 2 * n + one, [=, f = run] { return f(x, y); });
  c.add("lt", "number", n + one, [=] { return lt(x, 0.5); });
  c.add("where", "contiguous", 3 * n + one, [=, b = lt(x, y)] { return where(b, x, y); });
  c.add("where", "number", 2 * n + one, [=] { return where(some, x, 0); });
  for (const auto& [name, run] : kinds)
    c.add(name, "contiguous", n + one, [=, f = run] { return f(x); });
  for (const auto& [name, run] : logic)
    c.add(name, "bool", 3 * one, [=, f = run] { return f(some, others); });
  c.add("logical_not", "bool", 2 * one, [=] { return logical_not(some); });
  c.add("any", "last axis", one, [=] { return any(some, one_axis(1)); });
  c.add("all", "last axis", one, [=] { return all(some, one_axis(1)); });
  c.add("equal", "all", 2 * n, [=] { return full({}, equal(x, same) ? 1 : 0); });
  c.add("allclose", "all", 2 * n, [=] { return full({}, allclose(x, same) ? 1 : 0); });
}

void add_unaries(Cases& c) {
  const double n = c.whole();
  const Tensor x = c.matrix(), dy = c.matrix(), p = positive(x);
  const char* const layout = "contiguous";
  for (const auto& [name, run] : unaries) c.add(name, layout, 2 * n, [=, f = run] { return f(x); });
  for (const auto& [name, run] : of_positive)
    c.add(name, layout, 2 * n, [=, f = run] { return f(p); });
  for (const auto& [name, run] : gradients)
    c.add(name, layout, 3 * n, [=, f = run] { return f(x, dy); });
  for (const auto& [name, run] : gradients_of_positive)
    c.add(name, layout, 3 * n, [=, f = run] { return f(p, dy); });
  c.add("gelu", "transposed", 2 * n, [v = x.transpose(0, 1)] { return gelu(v); });
  c.add("dropout", layout, 2 * n, [=] { return dropout(x, 0.1, {3, 5}); });
  c.add("relu, dropout", layout, 2 * n, [=] {
    return activation_dropout(x, Activation::relu, 0.1, {3, 5});
  });
  c.add("relu, dropout backward", layout, 3 * n, [=] {
    return activation_dropout_backward(x, dy, Activation::relu, 0.1, {3, 5});
  });
}

}  // namespace bs::bench
