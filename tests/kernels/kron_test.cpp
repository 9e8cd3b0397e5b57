#include <bs/autograd/grad_check.h>
#include <bs/autograd/kron.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/kron.h>
#include <bs/kernels/math_mode.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/random.h>
#include <bs/lib/threads.h>
#include <bs/tests/kernels/golden/kron.h>
#include <bs/tests/kernels/kron_cases.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

using namespace bs;
using namespace bs::test;

namespace {

Tensor sines(const Shape& shape, double offset, bool cosine) {
  Reference r(shape);
  for (size_t i = 0; i < r.values.size(); ++i) {
    const double at = static_cast<double>(i) + offset;
    r[i] = cosine ? std::cos(at) : std::sin(at);
  }
  return r.tensor(f64, test_device());
}

}  // namespace

TEST_CASE("kron_matmul: both orders, rectangular factors, factors of 1, one factor, no rows") {
  const std::vector<Extents> cases = {{{2, 2}, {3, 3}, {4, 4}},
                                      {{2, 3}, {3, 4}, {4, 2}},
                                      {{1, 1}},
                                      {{7, 5}},
                                      {{1, 3}, {3, 1}, {2, 2}},
                                      {{8, 8}, {8, 8}},
                                      {{16, 8}, {1, 1}, {3, 16}},
                                      {{5, 5}, {1, 1}, {9, 9}},
                                      {{33, 17}, {2, 3}},
                                      {{2, 2}, {2, 2}, {2, 2}, {2, 2}, {2, 2}, {2, 2}}};
  std::vector<DType> dtypes = {f64, bf16};  // a GPU compiles a few kernels for each list and dtype
  if (test_device().is_cpu() && !sanitized) dtypes.insert(dtypes.end(), {f32, f16});
  for (const Extents& extents : cases)
    for (const KronOrder order : {KronOrder::first_fastest, KronOrder::first_slowest})
      for (const bool transposed : {false, true})
        for (const Shape& x : {Shape{5, 0}, Shape{0, 0}, Shape{2, 3, 0}, Shape{0}})
          check_kron(extents, x, {.order = order, .transposed = transposed}, x.rank() == 2, dtypes);
}

TEST_CASE("kron_matmul: bias and activation in the last pass") {
  for (const Activation f : {Activation::tanh, Activation::sigmoid, Activation::silu,
                             Activation::gelu, Activation::gelu_tanh})
    for (const bool bias : {false, true})
      check_kron({{4, 3}, {5, 5}}, {3, 0}, {.activation = f}, bias);
  // A value at the kink has no derivative; relu is tested on its own.
  const Tensor x = Tensor::from({-1.0, 2.0}, {2, 1}).to(test_device());
  const Tensor w = Tensor::from({3.0}, {1, 1}).to(test_device());
  const Variable v(x, true);
  const Variable y = kron_matmul(v, {Variable(w)}, {}, {.activation = Activation::relu});
  y.backward(Tensor::from({5.0, 7.0}, {2, 1}).to(test_device()));
  CHECK(Reference::of(y.data()).values == std::vector<double>{0, 6});
  CHECK(Reference::of(v.grad()).values == std::vector<double>{0, 21});
}

TEST_CASE("kron_matmul: the values of numpy.kron, in both orders") {
  for (const KronGolden& golden : kron_golden) {
    std::vector<Tensor> factors;
    int64_t width = 1;
    for (size_t f = 0; f < golden.factors.size(); ++f) {
      factors.push_back(
          sines({golden.factors[f][0], golden.factors[f][1]}, static_cast<double>(f), true));
      width *= golden.factors[f][0];
    }
    const Tensor x = sines({golden.rows, width}, 0, false);
    for (const auto& [order, expected] :
         {std::pair(KronOrder::first_fastest, golden.first_fastest),
          std::pair(KronOrder::first_slowest, golden.first_slowest)}) {
      const Reference y = Reference::of(kron_matmul(x, factors, {}, {.order = order}));
      REQUIRE(y.values.size() == expected.size());
      for (size_t i = 0; i < expected.size(); ++i)
        CHECK(std::abs(y[i] - expected[i]) <= 1e-14 * static_cast<double>(width));
    }
  }
}

TEST_CASE("kron_matmul: thousands of random cases against the product of its dense matrix") {
  std::mt19937 random(1);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int i = 0; i < large_on_gpu(12, sampled(3000)); ++i) {
    const int count = draw(1, 4);
    const int most = count == 1 ? 40 : count == 2 ? 20 : 5;
    Tensor dense;
    std::vector<Tensor> factors;
    for (int f = 0; f < count; ++f) {
      const Shape shape = {draw(1, most), draw(1, most)};
      factors.push_back(
          random_reference(shape, static_cast<uint64_t>(7 * i + f)).tensor(f64, test_device()));
      dense = f == 0 ? factors[0] : kron(factors.back(), dense);
    }
    const Shape shape = {draw(0, 6), dense.size(0)};
    const Tensor x = random_reference(shape, static_cast<uint64_t>(i)).tensor(f64, test_device());
    const Tensor dy = random_reference({shape[0], dense.size(1)}, static_cast<uint64_t>(i) + 5)
                          .tensor(f64, test_device());
    const auto near = [&](const Tensor& a, const Tensor& b) {
      const Reference expected = Reference::of(b);
      check_close("kron_matmul", Reference::of(a), expected, 1e-12 * largest(expected));
    };
    const KronResult result = kron_matmul_kept(x, factors);
    near(result.y, matmul(x, dense));
    const KronGrads grads = kron_matmul_backward(x, factors, result, dy);
    near(grads.x, matmul(dy, dense.transpose(0, 1)));
    References slowest_first;
    for (size_t f = factors.size(); f-- > 0;) slowest_first.push_back(Reference::of(factors[f]));
    const Reference in = Reference::of(x), d = Reference::of(dy);
    for (size_t f = 0; f < factors.size(); ++f) {
      const Reference dw = factor_gradient(in, slowest_first, factors.size() - 1 - f, d);
      // A factor of 1 has a sum of all, whose terms cancel.
      const double size = largest(in) * largest(d) * static_cast<double>(d.values.size());
      check_close("dW", Reference::of(grads.factors[f]), dw, 1e-12 * std::max(size, 1.0));
    }
  }
}

TEST_CASE("kron_matmul: factors beyond a tile, several passes, kept prefixes") {
  // Three passes of the CPU: 300 x 2 x 150 and 2 x 300 elements are more than a tile.
  const Extents extents = {{300, 2}, {2, 300}, {150, 3}, {3, 2}};
  std::vector<Variable> inputs = {
      Variable(random_reference({2, 270000}, 3).tensor(f64, test_device()), true)};
  for (size_t i = 0; i < extents.size(); ++i)
    inputs.emplace_back(random_reference(extents[i], i).tensor(f64, test_device()), true);
  const auto run = [&](bool keep) {
    for (const Variable& v : inputs) v.zero_grad();
    const Variable y =
        kron_matmul(inputs[0], {inputs.begin() + 1, inputs.end()}, {}, {.keep_prefixes = keep});
    y.backward(random_reference(y.shape(), 9).tensor(f64, test_device()));
    std::vector<Tensor> all = {y.data()};
    for (const Variable& v : inputs) all.push_back(v.grad());
    return all;
  };
  const std::vector<Tensor> plain = run(false), kept = run(true);
  References slowest_first;
  for (size_t f = extents.size(); f-- > 0;)
    slowest_first.push_back(Reference::of(inputs[f + 1].data()));
  const Reference h = steps_of(Reference::of(inputs[0].data()), slowest_first);
  check_close("kron_matmul", Reference::of(plain[0]), h, 1e-11 * largest(h));
  for (size_t i = 0; i < plain.size(); ++i) {
    const Reference a = Reference::of(plain[i]), b = Reference::of(kept[i]);
    check_close("kron_matmul with kept prefixes", b, a, 1e-12 * largest(a));
  }
  gradcheck(
      [&](const std::vector<Variable>& v) {
        return kron_matmul(v[0], {v.begin() + 1, v.end()}, {}, {.keep_prefixes = true});
      },
      {Variable(random_reference({1, 270000}, 4).tensor(f64, test_device())), inputs[1], inputs[2],
       inputs[3], inputs[4]},
      {.rtol = 1e-4, .full = 0, .samples = 2});
}

TEST_CASE("kron_matmul: the same bits for any number of threads") {
  const int before = threads();
  // Many tiles of a pass; several passes, with chunks of the inner extent; one factor.
  const std::vector<std::pair<Extents, int64_t>> cases = {
      {{{8, 8}, {8, 8}, {8, 8}}, 300},
      {{{300, 2}, {2, 300}, {150, 3}, {3, 2}}, 2},
      {{{7, 5}}, 900}};
  for (const auto& [extents, rows] : cases)
    for (const DType dtype : {f64, f32, bf16}) {
      int64_t in = 1, out = 1;
      std::vector<Tensor> factors;
      for (const Shape& e : extents) {
        in *= e[0], out *= e[1];
        factors.push_back(random_reference(e, factors.size() + 1).tensor(dtype, test_device()));
      }
      const Tensor x = random_reference({rows, in}, 8).tensor(dtype, test_device());
      const Tensor dy = random_reference({rows, out}, 9).tensor(dtype, test_device());
      const auto run = [&](int team) {
        set_threads(team);
        const KronResult result = kron_matmul_kept(x, factors);
        const KronGrads grads = kron_matmul_backward(x, factors, result, dy);
        set_threads(before);
        std::vector<Tensor> all = {result.y, grads.x};
        all.insert(all.end(), grads.factors.begin(), grads.factors.end());
        return all;
      };
      const std::vector<Tensor> one = run(1), some = run(3);
      for (size_t i = 0; i < one.size(); ++i) CHECK(same_bits(one[i], some[i]));
    }
}

TEST_CASE("kron_matmul: sizes of tensor cores") {
  for (const Extents& extents :
       {Extents{{16, 16}, {16, 16}}, Extents{{32, 16}, {16, 32}}, Extents{{64, 64}, {16, 16}},
        Extents{{8, 8}, {8, 8}, {8, 8}}, Extents{{128, 128}, {2, 2}}, Extents{{48, 80}, {24, 8}}})
    check_kron(extents, {3, 0}, {}, true, {f64, f32, f16, bf16});
}

TEST_CASE("kron_matmul: many wide axes, 8^5 and 16^4, forward and backward") {
  for (const DType dtype : {f64, f32, f16, bf16}) {
    check_steps(Extents(5, Shape{8, 8}), 3, dtype);
    check_steps(Extents(4, Shape{16, 16}), 2, dtype);
    check_steps(Extents(4, Shape{16, 16}), 1, dtype);
  }
}

// A GPU gives these to its library of dense products: all of a factor of 300, the gradient of 200,
// in f32 and f64 the backward from 96 on. kron_kernels_test.cpp has the plan.
TEST_CASE("kron_matmul: factors beyond the chip, forward and backward") {
  const std::vector<Extents> cases = {{{300, 300}},           {{200, 200}},
                                      {{300, 260}, {3, 2}},   {{3, 2}, {260, 300}},
                                      {{200, 200}, {3, 2}},   {{2, 3}, {200, 200}, {2, 1}},
                                      {{96, 100}, {104, 96}}, {{2, 2}, {96, 128}, {5, 3}}};
  for (const Extents& extents : cases) {
    for (const DType dtype : {f64, f32, f16, bf16}) check_steps(extents, 5, dtype);
    check_steps(extents, 1, f32);
    const TF32Guard guard;
    check_steps(extents, 5, f32, 4 * 0x1p-11);
  }
  for (const Extents& extents : {Extents{{300, 280}}, Extents{{2, 3}, {300, 280}}})
    for (const Activation f : {Activation::none, Activation::silu, Activation::tanh})
      check_kron(extents, {2, 0}, {.activation = f}, true, {f64, bf16});
}

TEST_CASE("kron_matmul: under a TF32Guard operands have 11 bits, and nothing else changes") {
  const Tensor x = random_reference({5, 64 * 32}, 1).tensor(f32, test_device());
  const std::vector<Tensor> factors = {random_reference({32, 48}, 2).tensor(f32, test_device()),
                                       random_reference({64, 64}, 3).tensor(f32, test_device())};
  const Tensor dy = random_reference({5, 64 * 48}, 4).tensor(f32, test_device());
  const KronOptions options{.keep_prefixes = true};
  const KronResult exact = kron_matmul_kept(x, factors, {}, options);
  const KronGrads exact_grads = kron_matmul_backward(x, factors, exact, dy, options);
  KronResult rounded;
  {
    const TF32Guard guard;
    rounded = kron_matmul_kept(x, factors, {}, options);
  }
  // What a forward under a guard kept serves a backward outside of it.
  const KronGrads grads = kron_matmul_backward(x, factors, rounded, dy, options);
  const auto near = [](const char* what, const Tensor& a, const Tensor& b) {
    const Reference expected = Reference::of(b);
    check_close(what, Reference::of(a), expected, 4 * 0x1p-11 * largest(expected));
  };
  near("y", rounded.y, exact.y);
  near("dx", grads.x, exact_grads.x);
  for (size_t f = 0; f < factors.size(); ++f) near("dW", grads.factors[f], exact_grads.factors[f]);
}

TEST_CASE("kron_matmul: forward and backward under a TF32Guard") {
  const TF32Guard guard;
  // Products on tensor cores of both axes, of one, of none; with gradients there, and in registers.
  for (const Extents& extents :
       {Extents{{32, 32}, {32, 32}}, Extents{{64, 64}, {64, 64}}, Extents{{128, 128}, {128, 128}},
        Extents{{32, 48}, {64, 64}}, Extents{{8, 8}, {64, 32}}, Extents{{64, 32}, {5, 7}},
        Extents{{16, 16}, {16, 16}, {16, 16}}, Extents{{32, 32}, {32, 32}, {32, 32}}})
    for (const int64_t rows : {int64_t{1}, int64_t{17}})
      check_steps(extents, rows, f32, 4 * 0x1p-11);
  // Operands are rounded on a GPU, and there alone; by how much, the tolerance above bounds.
  Reference x({16, 64}), w({64, 64});
  for (double& v : x.values) v = 1 + 0x1p-15;
  for (int64_t i = 0; i < 64; ++i) w.at({i, i}) = 1;
  const Tensor in = x.tensor(f32, test_device());
  const std::vector<Tensor> factors = {w.tensor(f32, test_device())};
  const bool rounds = test_device().is_cuda();
  const KronResult result = kron_matmul_kept(in, factors);
  const KronGrads grads = kron_matmul_backward(in, factors, result, in);
  CHECK(Reference::of(result.y)[0] == (rounds ? 1 : 1 + 0x1p-15));
  CHECK(Reference::of(grads.x)[0] == (rounds ? 1 : 1 + 0x1p-15));
}

TEST_CASE("kron_matmul: batched factors are products of their own") {
  // The second pair is beyond the chip of a GPU.
  for (const auto& [a, b] : {std::pair(Shape{2, 4}, Shape{3, 5}), {{2, 3}, {300, 280}}}) {
    const int64_t in = a[0] * b[0], out = a[1] * b[1];
    const Tensor x = random_reference({3, 4, in}, 1).tensor(f64, test_device());
    const std::vector<Tensor> factors = {
        random_reference({3, a[0], a[1]}, 2).tensor(f64, test_device()),
        random_reference({3, b[0], b[1]}, 3).tensor(f64, test_device())};
    const KronResult result = kron_matmul_kept(x, factors);
    const Tensor dy = random_reference({3, 4, out}, 4).tensor(f64, test_device());
    const KronGrads grads = kron_matmul_backward(x, factors, result, dy);
    const bool library = b[0] > 200;  // whose order of sums may depend on the batch
    const auto same = [&](const Tensor& of_group, const Tensor& alone) {
      if (!library) CHECK(same_bits(of_group, alone));
      const Reference expected = Reference::of(alone);
      check_close("a group", Reference::of(of_group), expected, 1e-14 * largest(expected));
    };
    for (int64_t g = 0; g < 3; ++g) {
      const std::vector<Tensor> own = {factors[0].select(0, g), factors[1].select(0, g)};
      const KronResult one = kron_matmul_kept(x.select(0, g), own);
      same(result.y.select(0, g), one.y);
      const KronGrads each = kron_matmul_backward(x.select(0, g), own, one, dy.select(0, g));
      same(grads.x.select(0, g), each.x);
      for (size_t f = 0; f < 2; ++f) same(grads.factors[f].select(0, g), each.factors[f]);
    }
  }
}

TEST_CASE("kron_matmul: operands of any strides") {
  const Tensor x = random_reference({12, 5}, 1).tensor(f64, test_device()).transpose(0, 1);
  const Tensor a = random_reference({6, 8}, 2).tensor(f64, test_device()).slice(1, 0, 8, 2);
  const Tensor b = random_reference({3, 2}, 3).tensor(f64, test_device()).transpose(0, 1);
  const Tensor y = kron_matmul(x, {a, b});
  const Reference expected =
      kron_reference({Reference::of(x), Reference::of(a), Reference::of(b)}, 2, {});
  check_close("kron_matmul", Reference::of(y), expected, 1e-13);
}

TEST_CASE("kron_matmul: a value that is not finite reaches what depends on it, and no other row") {
  Reference x = random_reference({3, 64}, 1);
  x[64 + 7] = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {f64, f32, f16, bf16}) {
    const std::vector<Tensor> factors = {random_reference({8, 8}, 2).tensor(dtype, test_device()),
                                         random_reference({8, 16}, 3).tensor(dtype, test_device())};
    const Reference y = Reference::of(kron_matmul(x.tensor(dtype, test_device()), factors));
    for (int64_t j = 0; j < 128; ++j) {
      CHECK(std::isfinite(y.at({0, j})));
      CHECK(std::isnan(y.at({1, j})));
      CHECK(std::isfinite(y.at({2, j})));
    }
  }
}

TEST_CASE("kron_matmul_backward computes what is wanted only") {
  const Tensor x = random_reference({2, 12}, 1).tensor(f32, test_device());
  const std::vector<Tensor> factors = {random_reference({3, 5}, 2).tensor(f32, test_device()),
                                       random_reference({4, 2}, 3).tensor(f32, test_device())};
  const KronResult result = kron_matmul_kept(x, factors);
  const Tensor dy = random_reference({2, 10}, 4).tensor(f32, test_device());
  const KronGrads all = kron_matmul_backward(x, factors, result, dy);
  for (int wanted = 0; wanted < 8; ++wanted) {
    const bool wx = wanted & 1, first = wanted & 2, second = wanted & 4;
    const KronGrads some = kron_matmul_backward(
        x, factors, result, dy, {}, {.x = wx, .factors = {first, second}, .bias = false});
    CHECK(some.x.defined() == wx);
    CHECK(some.factors[0].defined() == first);
    CHECK(some.factors[1].defined() == second);
    CHECK_FALSE(some.bias.defined());
    // Without gradients of factors a GPU takes the axes in the other order.
    if (wx) check_close("dx", Reference::of(some.x), Reference::of(all.x), 1e-5);
    if (first) CHECK(same_bits(some.factors[0], all.factors[0]));
    if (second) CHECK(same_bits(some.factors[1], all.factors[1]));
  }
}

TEST_CASE("kron_matmul: as the documentation shows it") {
  const Tensor x = randn({1024, 2 * 3 * 4}, f32);
  const std::vector<Tensor> w = {randn({2, 2}, f32), randn({3, 5}, f32), randn({4, 4}, f32)};
  const Tensor y = kron_matmul(x, w);  // [1024, 40] = x (w[2] kron w[1] kron w[0])
  const Tensor expected = matmul(x, kron(w[2], kron(w[1], w[0])));
  check_close("kron_matmul", Reference::of(y), Reference::of(expected),
              1e-5 * largest(Reference::of(expected)));
}

TEST_CASE("kron_matmul refuses what does not fit") {
  const auto t = [](const Shape& shape, DType dtype = f32) { return Tensor::empty(shape, dtype); };
  CHECK_THROWS_WITH_AS(kron_matmul(t({2, 6}), std::vector<Tensor>{}), "kron_matmul: no factors",
                       Error);
  CHECK_THROWS_WITH_AS(
      kron_matmul(t({2, 7}), {t({2, 2}), t({3, 3})}),
      "kron_matmul: x [2, 7] for factors [2, 2] [3, 3], whose rows have 6 elements", Error);
  CHECK_THROWS_WITH_AS(
      kron_matmul(t({2, 6}), {t({2, 4}), t({3, 3})}, {}, {.transposed = true}),
      "kron_matmul: x [2, 6] for factors [2, 4] [3, 3] transposed, whose rows have 12 elements",
      Error);
  CHECK_THROWS_WITH_AS(kron_matmul(t({2, 6}), {t({2, 2}), t({3})}),
                       "kron_matmul: factors [2, 2] [3]; all [P, Q], or all [groups, P, Q], are "
                       "expected",
                       Error);
  CHECK_THROWS_WITH_AS(kron_matmul(t({2, 0}), {t({0, 2})}),
                       "kron_matmul: an empty factor among [0, 2]", Error);
  CHECK_THROWS_WITH_AS(kron_matmul(t({2, 4}), {t({2, 2, 2}), t({3, 2, 2})}),
                       "kron_matmul: factors [2, 2, 2] [3, 2, 2] have different numbers of groups",
                       Error);
  CHECK_THROWS_WITH_AS(kron_matmul(t({3, 4}), {t({2, 2, 2}), t({2, 2, 2})}),
                       "kron_matmul: x [3, 4] for factors [2, 2, 2] [2, 2, 2] of 2 groups", Error);
  CHECK_THROWS_WITH_AS(kron_matmul(t({2, 2}), {t({2, 2}, bf16)}),
                       "kron_matmul: dtypes f32 and bf16 differ", Error);
  CHECK_THROWS_WITH_AS(kron_matmul(t({2, 2}, i32), {t({2, 2}, i32)}),
                       "kron_matmul: dtype i32 is not supported; expected f64, f32, f16 or bf16",
                       Error);
  CHECK_THROWS_WITH_AS(kron_matmul(t({2, 2}), {t({2, 3})}, t({2})),
                       "kron_matmul: bias [2] for rows of 3 results", Error);
  // 65536^4 is 0 in 64 bits, as many as an empty row has.
  const Tensor tall = t({1, 1}).expand({65536, 1}), wide = t({1, 1}).expand({1, 65536});
  CHECK_THROWS_WITH_AS(kron_matmul(t({2, 0}), {tall, tall, tall, tall}),
                       "kron_matmul: factors [65536, 1] [65536, 1] [65536, 1] [65536, 1] have rows "
                       "of more elements than 64 bits count",
                       Error);
  CHECK_THROWS_AS(kron_matmul(t({2, 1}), {wide, wide, wide, wide}), Error);
  CHECK_THROWS_AS(kron_matmul(t({0, 1}), {wide, wide, wide, wide}), Error);
  CHECK_THROWS_WITH_AS(kron_matmul_backward(t({2, 2}), {t({2, 3})}, {}, t({2, 2})),
                       "kron_matmul_backward: dy [2, 2] for x [2, 2] and factors [2, 3]", Error);
}
