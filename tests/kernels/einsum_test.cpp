#include <bs/autograd/einsum.h>
#include <bs/autograd/rearrange.h>
#include <bs/autograd/vector_norm.h>
#include <bs/kernels/arange.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/like.h>
#include <bs/kernels/logic.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

using namespace bs;
using namespace bs::test;

namespace {

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }
template <class T>
Tensor vector(std::initializer_list<T> v) {
  return Tensor::from<T>(v).to(test_device());
}

/// Every letter counted through, every product added. An axis of 1 stands for as many as others
/// have.
Reference naive_einsum(const std::vector<std::string>& inputs, const std::string& result,
                       const References& in) {
  std::map<char, int64_t> extents;
  for (size_t n = 0; n < in.size(); ++n)
    for (size_t i = 0; i < inputs[n].size(); ++i) {
      int64_t& extent = extents.emplace(inputs[n][i], 1).first->second;
      if (in[n].shape[static_cast<int>(i)] != 1) extent = in[n].shape[static_cast<int>(i)];
    }
  Shape shape;
  for (const char c : result) shape.push_back(extents[c]);
  Reference y(shape);
  int64_t count = 1;
  for (const auto& [c, extent] : extents) count *= extent;
  for (int64_t number = 0; number < count; ++number) {
    std::map<char, int64_t> at;
    int64_t rest = number;
    for (const auto& [c, extent] : extents) {
      at[c] = rest % extent;
      rest /= extent;
    }
    const auto place = [&](const std::string& letters, const Shape& extent) {
      int64_t p = 0;
      for (size_t i = 0; i < letters.size(); ++i) {
        const int64_t n = extent[static_cast<int>(i)];
        p = p * n + (n == 1 ? 0 : at[letters[i]]);
      }
      return static_cast<size_t>(p);
    };
    double product = 1;
    for (size_t n = 0; n < in.size(); ++n) product *= in[n][place(inputs[n], in[n].shape)];
    y[place(result, shape)] += product;
  }
  return y;
}

void check_einsum(const std::string& equation, const std::vector<std::string>& inputs,
                  const std::string& result, const std::vector<Shape>& shapes) {
  check_op({.name = equation,
            .inputs = shapes,
            .op = [=](const Variables& v) { return einsum(equation, std::span(v)); },
            .reference = [=](const References& in) { return naive_einsum(inputs, result, in); },
            .dtypes = {f64, f32}});
}

}  // namespace

TEST_CASE("einsum") {
  check_einsum("ij,jk->ik", {"ij", "jk"}, "ik", {{3, 4}, {4, 5}});
  check_einsum("ij, jk", {"ij", "jk"}, "ik", {{3, 4}, {4, 5}});
  check_einsum("bhid,bhjd->bhij", {"bhid", "bhjd"}, "bhij", {{2, 3, 4, 5}, {2, 3, 2, 5}});
  check_einsum("ij->ji", {"ij"}, "ji", {{3, 4}});
  check_einsum("ij->", {"ij"}, "", {{3, 4}});
  check_einsum("i,j->ij", {"i", "j"}, "ij", {{3}, {4}});
  check_einsum("i,i->", {"i", "i"}, "", {{5}, {5}});
  check_einsum("ijk,j,kl->li", {"ijk", "j", "kl"}, "li", {{2, 3, 4}, {3}, {4, 5}});
  check_einsum("ij,k->i", {"ij", "k"}, "i", {{3, 4}, {2}});
  check_einsum("ij,ij->ij", {"ij", "ij"}, "ij", {{3, 4}, {3, 4}});
  check_einsum("bij,bjk->bik", {"bij", "bjk"}, "bik", {{0, 2, 3}, {0, 3, 2}});
}

TEST_CASE("einsum: an ellipsis, axes of 1 and diagonals") {
  check_einsum("...ij,...jk->...ik", {"Bij", "Bjk"}, "Bik", {{2, 3, 4}, {2, 4, 5}});
  check_einsum("...ij,...jk", {"ABij", "Bjk"}, "ABik", {{2, 3, 3, 4}, {3, 4, 5}});
  check_einsum("...ij,...jk->...ik", {"ABij", "ABjk"}, "ABik", {{2, 1, 3, 4}, {1, 3, 4, 5}});
  check_einsum("i...,ji->...j", {"iAB", "ji"}, "ABj", {{3, 2, 4}, {5, 3}});
  check_einsum("...->...", {"AB"}, "AB", {{2, 3}});
  check_einsum("...i->i", {"ABi"}, "i", {{2, 3, 4}});
  check_einsum("...i->...", {"i"}, "", {{4}});
  check_einsum("i...->...", {"iA"}, "A", {{0, 3}});
  check_einsum("ij,jk->ik", {"ij", "jk"}, "ik", {{3, 1}, {4, 5}});
  check_einsum("ij,ij->ij", {"ij", "ij"}, "ij", {{1, 4}, {3, 1}});
  check_einsum("ii->i", {"ii"}, "i", {{4, 4}});
  check_einsum("ii", {"ii"}, "", {{4, 4}});
  check_einsum("iji,jk->ik", {"iji", "jk"}, "ik", {{3, 2, 3}, {2, 4}});
  check_einsum("iijj->ji", {"iijj"}, "ji", {{2, 2, 3, 3}});
  check_einsum("iii,i->i", {"iii", "i"}, "i", {{3, 3, 3}, {3}});
  check_einsum("...ii->...i", {"Aii"}, "Ai", {{2, 0, 0}});
}

TEST_CASE("einsum: thousands of random equations") {
  std::mt19937 random(41);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 2000; ++round) {
    std::map<char, int64_t> extents;
    for (const char c : {'a', 'b', 'c', 'd', 'X', 'Y'}) extents[c] = 1 + below(3);
    const int operands = 1 + below(3), longest = below(3);
    std::string equation, all;
    std::vector<std::string> inputs;
    References values;
    Variables given;
    for (int i = 0; i < operands; ++i) {
      std::string letters;
      for (int n = below(4); n > 0; --n) letters += static_cast<char>('a' + below(4));
      const std::string more =
          std::string("XY").substr(static_cast<size_t>(2 - below(longest + 1)));
      const size_t at = static_cast<size_t>(below(static_cast<int>(letters.size()) + 1));
      equation += (i > 0 ? "," : "") + letters.substr(0, at) + "..." + letters.substr(at);
      inputs.push_back(letters.substr(0, at) + more + letters.substr(at));
      all += letters;
      Shape shape;
      for (const char c : inputs.back()) shape.push_back(extents[c]);
      values.push_back(random_reference(shape, static_cast<uint64_t>(3 * round + i)));
      given.emplace_back(values.back().tensor(f64, test_device()));
    }
    std::string result, wide;
    for (const std::string& letters : inputs)
      for (const char c : letters)
        if (c < 'a' && wide.find(c) == std::string::npos) wide += c;
    std::ranges::sort(wide);
    for (const char c : all)
      if (below(2) == 0 && result.find(c) == std::string::npos) result += c;
    equation += "->..." + result;
    CAPTURE(equation);
    const Reference expected = naive_einsum(inputs, wide + result, values);
    const Reference actual =
        Reference::of(einsum(equation, std::span<const Variable>(given)).data());
    REQUIRE(actual.shape == expected.shape);
    for (size_t k = 0; k < expected.values.size(); ++k)
      REQUIRE(std::abs(actual[k] - expected[k]) <= 1e-12 * 81);
  }
}

TEST_CASE("einsum refuses what does not fit") {
  const Tensor a = Tensor::empty({2, 3}, f32);
  CHECK_THROWS_WITH_AS(einsum("ij,jk->ik", {a, a}), "einsum: j is 3 and 2 in ij,jk->ik", Error);
  CHECK_THROWS_WITH_AS(einsum("ii->i", {a}), "einsum: i is 2 and 3 in ii->i", Error);
  CHECK_THROWS_WITH_AS(einsum("ij->ii", {a}), "einsum: i is twice in one term of ij->ii", Error);
  CHECK_THROWS_WITH_AS(einsum("...i...->i", {a}),
                       "einsum: an ellipsis is twice in one term of ...i...->i", Error);
  CHECK_THROWS_WITH_AS(einsum("ij->ik", {a}), "einsum: k of the result is in no operand of ij->ik",
                       Error);
  CHECK_THROWS_WITH_AS(einsum("i.j->i", {a}),
                       "einsum: '.' in i.j->i is no letter, and no ellipsis of three", Error);
  CHECK_THROWS_WITH_AS(einsum("...ijk->i", {a}),
                       "einsum: operand 0 of shape [2, 3] for the axes .ijk of ...ijk->i", Error);
  CHECK_THROWS_WITH_AS(einsum("...i,...i->i", {a, Tensor::empty({3, 3}, f32)}),
                       "einsum: an axis of the ellipsis is 2 and 3 in ...i,...i->i", Error);
  CHECK_THROWS_WITH_AS(einsum("ij", {a, a}), "einsum: 2 operands for ij", Error);
  CHECK_THROWS_WITH_AS(einsum("ijk->i", {a}),
                       "einsum: operand 0 of shape [2, 3] for the axes ijk of ijk->i", Error);
  CHECK_THROWS_WITH_AS(dot(a, a), "dot: shapes [2, 3] and [2, 3]", Error);
}

TEST_CASE("dot, outer and bmm") {
  const Tensor a = vector<float>({1, 2, 3}), b = vector<float>({4, 5, 6});
  CHECK(dot(a, b).item() == 32);
  CHECK(values(outer(a, b).select(0, 1)) == std::vector<double>{8, 10, 12});
  const Tensor m = random_reference({2, 3, 3}, 1).tensor(f64, test_device());
  CHECK(allclose(bmm(m, m), einsum("bij,bjk->bik", {m, m})));
}

TEST_CASE("flip, roll, tile and repeat_interleave") {
  const auto check = [](const char* name, auto op, const std::vector<size_t>& from,
                        const Shape& shape) {
    check_op({.name = name,
              .inputs = {{2, 3}},
              .op = [=](const Variables& v) { return op(v[0]); },
              .reference =
                  [=](const References& in) {
                    Reference y(shape);
                    for (size_t i = 0; i < from.size(); ++i) y[i] = in[0][from[i]];
                    return y;
                  },
              .dtypes = {f64, f32}});
  };
  using V = const Variable&;
  check("flip", [](V x) { return flip(x, {1}); }, {2, 1, 0, 5, 4, 3}, {2, 3});
  check("flip both", [](V x) { return flip(x, {0, -1}); }, {5, 4, 3, 2, 1, 0}, {2, 3});
  check("roll", [](V x) { return roll(x, 1, 1); }, {2, 0, 1, 5, 3, 4}, {2, 3});
  check("roll back", [](V x) { return roll(x, -4, -1); }, {1, 2, 0, 4, 5, 3}, {2, 3});
  check("tile", [](V x) { return tile(x, {1, 2}); }, {0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}, {2, 6});
  check("repeat",
        [](V x) {
          return repeat(x, {2, 1});
        },
        {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}, {4, 3});
  check("tile in front",
        [](V x) {
          return tile(x, {2, 1, 1});
        },
        {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}, {2, 2, 3});
  check("repeat_interleave", [](V x) { return repeat_interleave(x, 2, 0); },
        {0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}, {4, 3});
  const Tensor x = arange(3, i64, test_device());
  CHECK(values(flip(x, {0})) == std::vector<double>{2, 1, 0});
  CHECK(tile(x, {0}).numel() == 0);
  CHECK(values(repeat(x, {2})) == std::vector<double>{0, 1, 2, 0, 1, 2});
  CHECK_THROWS_WITH_AS(repeat(x.view({3, 1}), {2}), "tile: 1 counts for shape [3, 1]", Error);
  CHECK(flip(Tensor::empty({0, 2}, f32, test_device()), {0}).numel() == 0);
}

TEST_CASE("triangles, diagonals and grids") {
  const Tensor m = arange(1, 7, 1, f32, test_device()).view({2, 3});
  CHECK(values(tril(m)) == std::vector<double>{1, 0, 0, 4, 5, 0});
  CHECK(values(triu(m, 1)) == std::vector<double>{0, 2, 3, 0, 0, 6});
  CHECK(values(diag(m)) == std::vector<double>{1, 5});
  CHECK(values(diag(m, 1)) == std::vector<double>{2, 6});
  CHECK(values(diag(m, -1)) == std::vector<double>{4});
  CHECK(diag(m, 5).numel() == 0);
  CHECK(values(diag(vector<float>({1, 2}))) == std::vector<double>{1, 0, 0, 2});
  CHECK(values(diag(vector<float>({1, 2}), 1)) == std::vector<double>{0, 1, 0, 0, 0, 2, 0, 0, 0});
  CHECK(values(diag(vector<float>({1, 2}), -1)) == std::vector<double>{0, 0, 0, 1, 0, 0, 0, 2, 0});
  const auto grid = meshgrid({arange(2, i64, test_device()), arange(3, i64, test_device())});
  CHECK(values(grid[0]) == std::vector<double>{0, 0, 0, 1, 1, 1});
  CHECK(values(grid[1]) == std::vector<double>{0, 1, 2, 0, 1, 2});
  const Variable v(vector<double>({1, 2, 3}), true);
  diag(v).backward(ones({3, 3}, f64, test_device()));
  CHECK(values(v.grad()) == std::vector<double>{1, 1, 1});
  // A value that is not finite stays out of the part that is cut off.
  const Tensor bad = full({2, 2}, std::numeric_limits<double>::infinity(), f32, test_device());
  CHECK(values(tril(bad))[1] == 0);
}

TEST_CASE("norms and logsumexp") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double p : {1.0, 2.0, 3.0, infinity})
    check_op({.name = "vector_norm",
              .inputs = {{3, 5}},
              .op = [=](const Variables& v) { return vector_norm(v[0], p, Dims{1}); },
              .reference =
                  [=](const References& in) {
                    Reference y({3});
                    for (size_t r = 0; r < 3; ++r) {
                      double sum = 0, top = 0;
                      for (size_t j = 0; j < 5; ++j) {
                        sum += std::pow(std::abs(in[0][r * 5 + j]), p);
                        top = std::max(top, std::abs(in[0][r * 5 + j]));
                      }
                      y[r] = std::isinf(p) ? top : std::pow(sum, 1 / p);
                    }
                    return y;
                  },
              .dtypes = {f64, f32}});
  check_op({.name = "logsumexp",
            .inputs = {{3, 5}},
            .op = [](const Variables& v) { return logsumexp(v[0], Dims{0}, true); },
            .reference =
                [](const References& in) {
                  Reference y({1, 5});
                  for (size_t j = 0; j < 5; ++j) {
                    for (size_t r = 0; r < 3; ++r) y[j] += std::exp(in[0][r * 5 + j]);
                    y[j] = std::log(y[j]);
                  }
                  return y;
                }});
  CHECK(logsumexp(vector<float>({1000, 1000})).item() == doctest::Approx(1000 + std::log(2)));
  const Variable none(full({2}, -infinity, f64, test_device()), true);
  const Variable y = logsumexp(none);
  CHECK(y.data().item() == -infinity);
  y.backward();
  CHECK(values(none.grad()) == std::vector<double>{0, 0});
  const Variable zero(zeros({2}, f64, test_device()), true);
  vector_norm(zero).backward();
  CHECK(values(zero.grad()) == std::vector<double>{0, 0});
  CHECK(vector_norm(vector<float>({3, 4})).item() == doctest::Approx(5));
  CHECK(vector_norm(full({4}, 300, f16, test_device())).item() == 600);
  CHECK_THROWS_WITH_AS(vector_norm(zero.data(), 0.5), "vector_norm: p is 0.5, which is less than 1",
                       Error);
}

TEST_CASE("any, all, equal, allclose and tensors alike") {
  const float not_a = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = vector<float>({0, 1, not_a, 0}).view({2, 2});
  CHECK(values(any(x, Dims{1})) == std::vector<double>{1, 1});
  CHECK(values(all(x, Dims{1})) == std::vector<double>{0, 0});
  CHECK(all(Tensor::empty({0}, f32, test_device())).item() == 1);
  CHECK(any(Tensor::empty({0}, f32, test_device())).item() == 0);
  CHECK(equal(vector<float>({1, inf}), vector<float>({1, inf})));
  CHECK(!equal(vector<float>({not_a}), vector<float>({not_a})));
  CHECK(!equal(vector<float>({1}), vector<float>({1, 1})));
  CHECK(allclose(vector<float>({1, inf}), vector<float>({1.000001F, inf})));
  CHECK(!allclose(vector<float>({1}), vector<float>({1.1F})));
  CHECK(!allclose(vector<float>({inf}), vector<float>({-inf})));
  CHECK(!allclose(vector<float>({1}), vector<float>({inf})));
  CHECK(!allclose(vector<float>({not_a}), vector<float>({not_a})));
  CHECK(allclose(vector<float>({not_a}), vector<float>({not_a}), {.equal_nan = true}));
  CHECK(values(ones_like(x)) == std::vector<double>{1, 1, 1, 1});
  CHECK(full_like(vector<int64_t>({1}), 3).dtype() == i64);
  CHECK(rand_like(x).shape() == x.shape());
  CHECK(randn_like(x).device() == x.device());
}
