#include <bs/tests/kernels/gemm_cases.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

constexpr Element f16e = Element::f16, f32e = Element::f32;
constexpr MatrixLayout rows = MatrixLayout::row_major;

}  // namespace

TEST_CASE("gemm: activations on the way out") {
  using namespace bs::epilogue;
  struct Case {
    const char* name;
    Value (*build)(const Value&);
    double (*reference)(double);
  };
  const Case cases[] = {
      {"relu", relu, [](double x) { return std::max(x, 0.0); }},
      {"leaky_relu", [](const Value& x) { return leaky_relu(x, 0.25); },
       [](double x) { return x < 0 ? 0.25 * x : x; }},
      {"tanh", bs::epilogue::tanh, [](double x) { return std::tanh(x); }},
      {"sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"silu", silu, [](double x) { return x / (1 + std::exp(-x)); }},
      {"hardswish", hardswish, [](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; }},
      {"gelu", gelu, [](double x) { return x * (1 + std::erf(x / std::sqrt(2.0))) / 2; }},
      {"gelu_tanh", gelu_tanh,
       [](double x) {
         return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
       }},
      {"clamp", [](const Value& x) { return clamp(x, -1.5, 2.5); },
       [](double x) { return std::clamp(x, -1.5, 2.5); }},
      {"exp", bs::epilogue::exp, [](double x) { return std::exp(x); }},
      {"abs", bs::epilogue::abs, [](double x) { return std::abs(x); }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    GemmDescription d = small_gemm("rcr", f32e);
    const Value t = scalar("alpha") * accumulator() + row("bias", f32e);
    d.epilogue = GemmEpilogue(c.build(t)).store("t", t, f32e);
    const Linear x(d, {}, 70, 52, 24, 3);
    const Matrix bias = Matrix::integers(f32e, {1, 52}, rows, 4, -3, 3);
    const Matrix before = Matrix::poison(f32e, {70, 52}, rows);
    GemmOperation(d).run({.a = x.a.tensor,
                          .b = x.b.tensor,
                          .d = x.d.tensor,
                          .tensors = {{"bias", bias.tensor.select(0, 0)}, {"t", before.tensor}},
                          .scalars = {{"alpha", 0.03125}}});
    const std::vector<double> sums = product(x.a, x.b), actual = x.d.read(), t_is = before.read();
    for (size_t i = 0; i < sums.size(); ++i) {
      const double argument = sums[i] / 32 + bias.values[i % 52];
      REQUIRE(t_is[i] == argument);
      const double expected = c.reference(argument);
      // A handful of roundings in f32, some of them near 1 for a result near 0.
      REQUIRE(std::abs(actual[i] - expected) <= 0x1p-20 * std::max(1.0, std::abs(expected)));
    }
  }
}

namespace {

/// D = relu(alpha (sum + z) + beta C) with all kinds of operands, stores and reductions.
GemmEpilogue everything() {
  using namespace bs::epilogue;
  const Value t = accumulator() + row("r", f16e) - column("s", f32e);
  const Value z = maximum(scalar("alpha") * t, tensor("u", f32e) * 0.5);
  const Value shared = t * t;
  return GemmEpilogue(z + scalar("beta") * tensor("c", f16e))
      .store("t", t, f32e)
      .row_sum("rows", shared)
      .row_max("most", z)
      .column_sum("columns", shared - t)
      .column_max("highest", t);
}

void check_everything(GemmDescription d, int64_t batch, int slices) {
  d.epilogue = everything();
  const int64_t m = 152, n = 136, k = 72;
  const Shape front = batch > 0 ? Shape{batch} : Shape{};
  const auto shape = [&](std::initializer_list<int64_t> tail) {
    Shape s = front;
    for (const int64_t extent : tail) s.push_back(extent);
    return s;
  };
  const Linear x(d, front, m, n, k, 21);
  const Matrix r = Matrix::integers(f16e, shape({1, n}), rows, 22, -4, 4);
  const Matrix s = Matrix::integers(f32e, shape({1, m}), rows, 23, -4, 4);
  const Matrix u = Matrix::integers(f32e, shape({m, n}), MatrixLayout::column_major, 24, -80, 80);
  const Matrix t = Matrix::poison(f32e, shape({m, n}), rows);
  std::map<std::string, Matrix> reduced;
  for (const char* name : {"rows", "most"})
    reduced[name] = Matrix::poison(f32e, shape({1, m}), rows);
  for (const char* name : {"columns", "highest"})
    reduced[name] = Matrix::poison(f32e, shape({1, n}), rows);
  GemmArguments arguments = x.arguments(2, 3, slices);
  arguments.tensors["r"] = r.tensor.squeeze(-2);
  arguments.tensors["s"] = s.tensor.squeeze(-2);
  arguments.tensors["u"] = u.tensor;
  arguments.tensors["t"] = t.tensor;
  for (const auto& [name, matrix] : reduced) arguments.tensors[name] = matrix.tensor.squeeze(-2);
  GemmOperation(d).run(arguments);

  const std::vector<double> sums = product(x.a, x.b), actual = x.d.read(), t_is = t.read();
  const int64_t count = std::max<int64_t>(batch, 1);
  std::map<std::string, std::vector<double>> expected;
  for (const auto& [name, matrix] : reduced) expected[name].assign(matrix.values.size(), -1e30);
  for (const char* name : {"rows", "columns"})
    std::fill(expected[name].begin(), expected[name].end(), 0.0);
  size_t wrong = 0;
  for (int64_t q = 0; q < count; ++q)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const auto at = static_cast<size_t>((q * m + i) * n + j);
        const auto row = static_cast<size_t>(q * m + i), column = static_cast<size_t>(q * n + j);
        const double ti = sums[at] + r.values[column] - s.values[row];
        const double zi = std::max(2 * ti, u.values[at] / 2);
        wrong += t_is[at] != ti;
        wrong += actual[at] != rounded(x.d.element, zi + 3 * x.c.values[at]);
        expected["rows"][row] += ti * ti;
        expected["most"][row] = std::max(expected["most"][row], zi);
        expected["columns"][column] += ti * ti - ti;
        expected["highest"][column] = std::max(expected["highest"][column], ti);
      }
  CHECK(wrong == 0);
  for (const auto& [key, matrix] : reduced) {
    const std::string name = key;
    CAPTURE(name);
    CHECK(matrix.read() == expected[name]);
  }
}

}  // namespace

TEST_CASE("gemm: an epilogue with every kind of operand, store and reduction") {
  for (const std::string layouts : {"rcr", "rrc"}) {
    check_everything(small_gemm(layouts), 0, 1);
    for (const SplitK split : {SplitK::serial, SplitK::parallel}) {
      GemmDescription d = small_gemm(layouts);
      d.split_k = split;
      check_everything(d, 0, 2);
    }
    GemmDescription d = small_gemm(layouts);
    d.swizzle = Swizzle::stream_k;
    check_everything(d, 0, 1);
    d.swizzle = Swizzle::identity2;
    d.mode = GemmMode::batched;
    check_everything(d, 3, 1);
  }
}

TEST_CASE("gemm: the same epilogue behind warpgroups") {
  for (const std::string layouts : {"rcr", "crc"}) {
    GemmDescription d =
        describe(math(f16e, f32e, OpClass::warpgroup), {128, 64, 64}, 4, {8, 1, 1}, layouts, f16e);
    if (layouts[2] == 'c') std::swap(d.tile.threadblock[0], d.tile.threadblock[1]);
    check_everything(d, 0, 1);
    d.mode = GemmMode::batched;
    check_everything(d, 3, 1);
    for (const int ctas : {2, 3}) {
      d.tile.cluster_k = ctas;
      check_everything(d, 3, 1);
    }
  }
}

TEST_CASE("gemm: keys tell what is stored from what is reduced") {
  using namespace bs::epilogue;
  const Value t = accumulator() * 2.0;
  std::vector<GemmEpilogue> all = {
      GemmEpilogue(t),
      GemmEpilogue(t).store("x", t, f16e),
      GemmEpilogue(t).store("x", t, f32e),
      GemmEpilogue(t).store("x", t, Element::f64),
      GemmEpilogue(t).row_sum("x", t),
      GemmEpilogue(t).row_max("x", t),
      GemmEpilogue(t).column_sum("x", t),
      GemmEpilogue(t).column_max("x", t),
      GemmEpilogue(t).column_max("x", t).column_sum("y", t),
      GemmEpilogue(t).store("x", t, f32e).column_sum("y", t),
      GemmEpilogue(t).store("x", t, f32e).store("y", t, Element::f64),
  };
  std::set<std::string> keys;
  for (GemmEpilogue& e : all) {
    e.set_d(f16e);
    keys.insert(key(e));
  }
  CHECK(keys.size() == all.size());
  CHECK(key(GemmEpilogue(t).store("x", t, f32e)) == key(GemmEpilogue(t).store("other", t, f32e)));
}

TEST_CASE("gemm: an expression is a graph whose parts are computed once") {
  using namespace bs::epilogue;
  const Value t = accumulator() * 2.0;
  const GemmEpilogue e = GemmEpilogue(relu(t) + t * (accumulator() * 2.0)).row_sum("s", t);
  CHECK(to_string(e) ==
        "v0 = accumulator\nv1 = Compute(0x1p+1)\nv2 = v0 * v1\nv3 = F::relu(v2)\n"
        "v4 = v2 * v2\nv5 = v3 + v4\nstore d f32 = v5\nrow_sum s = v2\n");
  CHECK_THROWS_WITH_AS(GemmEpilogue(t).store("d", t, f32e), "epilogue: the name 'd' is taken",
                       Error);
  CHECK_THROWS_WITH_AS(GemmEpilogue(tensor("x", f32e) + row("x", f32e)),
                       "epilogue: the operand 'x' is used in two ways", Error);
  CHECK_THROWS_WITH_AS(relu(Value(std::shared_ptr<const Node>())),
                       "epilogue: a value of a null node", Error);
  CHECK_THROWS_WITH_AS(reads(GemmEpilogue::linear_combination(f32e), 1, {1.0}),
                       "epilogue: 1 numbers for its 2 scalars", Error);
}
