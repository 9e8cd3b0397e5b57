// Gradients of gradients: against differences of first gradients, and in closed form.
#include <bs/autograd/activation.h>
#include <bs/autograd/binary.h>
#include <bs/autograd/concat.h>
#include <bs/autograd/copy.h>
#include <bs/autograd/einsum.h>
#include <bs/autograd/elementary.h>
#include <bs/autograd/embedding.h>
#include <bs/autograd/gather.h>
#include <bs/autograd/grad.h>
#include <bs/autograd/index_select.h>
#include <bs/autograd/interpolate.h>
#include <bs/autograd/kron.h>
#include <bs/autograd/linear.h>
#include <bs/autograd/loss.h>
#include <bs/autograd/matmul.h>
#include <bs/autograd/norm.h>
#include <bs/autograd/pad.h>
#include <bs/autograd/pointwise_loss.h>
#include <bs/autograd/pool2d.h>
#include <bs/autograd/rearrange.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/rope.h>
#include <bs/autograd/softmax.h>
#include <bs/autograd/unary.h>
#include <bs/autograd/view.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/check_twice.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/guarded_memory.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <cmath>

using namespace bs;
using namespace bs::test;

namespace {

Variable leaf(std::initializer_list<double> values) {
  return Variable(Tensor::from(values).to(test_device()), true);
}
Tensor numbers(std::initializer_list<int64_t> values) {
  return Tensor::from(values).to(test_device());
}
std::vector<double> of(const Variable& x) { return Reference::of(x.data()).values; }

}  // namespace

TEST_CASE("second derivatives: maps of images and positions that are linear") {
  const Variable x = random_leaf({2, 2, 4, 5}, 1);
  for (const PadMode mode : {PadMode::constant, PadMode::reflect, PadMode::replicate}) {
    const PadOptions options{.padding = {1, 2, 0, 3}, .mode = mode, .value = 0.5};
    check_one("pad", squared([=](const Variable& v) { return pad(v, options); }), x);
  }
  check_one("avg_pool2d", squared([](const Variable& v) {
              return avg_pool2d(v, {.kernel = {2, 3}, .stride = {1, 2}, .padding = {1, 1}});
            }),
            x);
  check_one("adaptive_avg_pool2d", squared([](const Variable& v) {
              return adaptive_avg_pool2d(v, {3, 2});
            }),
            x);
  for (const Interpolation mode : {Interpolation::nearest, Interpolation::bilinear})
    check_one("interpolate", squared([=](const Variable& v) {
                return interpolate(v, {.size = {7, 3}, .mode = mode});
              }),
              x);
  const Variable tokens = random_leaf({1, 2, 3, 4}, 2);
  const Tensor table = rope_table(3, 4, 10000, 0, f64, test_device());
  check_one("rope", squared([=](const Variable& v) { return rope(v, table); }), tokens);
  check_one("flatten", squared([](const Variable& v) { return flatten(v, 1, 2); }), x);
}

TEST_CASE("second derivatives: products of matrices") {
  const auto product = [](const auto& u, const auto& v) { return matmul(u, v); };
  check_two("matmul", product, random_leaf({3, 4}, 1), random_leaf({4, 5}, 2));
  check_two("matmul of batches", product, random_leaf({2, 3, 4}, 1), random_leaf({2, 4, 5}, 2));
  check_two("matmul broadcast", product, random_leaf({2, 1, 3, 4}, 1), random_leaf({3, 4, 2}, 2));
  check_two("matmul by one matrix", product, random_leaf({2, 3, 4}, 1), random_leaf({4, 5}, 2));
  check_two(
      "kron", [](const auto& u, const auto& v) { return kron(u, v); }, random_leaf({2, 3}, 1),
      random_leaf({4, 1}, 2));
  const Variable bias = random_leaf({5}, 3);
  const Function layer = [](const Inputs& in) { return linear(in[0], in[1], in[2]); };
  for (const Shape& rows : {Shape{4}, Shape{3, 4}, Shape{2, 3, 4}})
    check_twice("linear", layer, {random_leaf(rows, 1), random_leaf({5, 4}, 2), bias});
  check_twice("linear without a bias", layer,
              {random_leaf({3, 4}, 1), random_leaf({5, 4}, 2), Variable()});
  check_two(
      "einsum",
      [](const auto& u, const auto& v) {
        return einsum("bij,bjk->ik", {u, v});
      },
      random_leaf({2, 3, 4}, 1), random_leaf({2, 4, 5}, 2));
}

TEST_CASE("second derivatives: views and copies") {
  const Variable x = random_leaf({4, 6}, 1), y = random_leaf({4, 6}, 2);
  check_one("reshape", squared([](const Variable& v) { return reshape(v, {3, 8}); }), x);
  check_one("view", squared([](const Variable& v) { return view(v, {24}); }), x);
  check_one("unsqueeze", squared([](const Variable& v) { return unsqueeze(v, 1); }), x);
  check_one("squeeze", squared([](const Variable& v) { return squeeze(unsqueeze(v, 1), 1); }), x);
  check_one("permute", squared([](const Variable& v) { return permute(v, {1, 0}); }), x);
  check_one("transpose", squared([](const Variable& v) { return transpose(v, 0, 1); }), x);
  check_one("expand", squared([](const Variable& v) { return expand(v, {2, 4, 6}); }), x);
  check_one("slice", squared([](const Variable& v) { return slice(v, 1, 1, 6, 2); }), x);
  check_one("select", squared([](const Variable& v) { return select(v, 1, -2); }), x);
  check_one("contiguous", squared([](const Variable& v) { return contiguous(transpose(v, 0, 1)); }),
            x);
  check_one("clone", squared([](const Variable& v) { return clone(v); }), x);
  check_two(
      "concat",
      [](const auto& u, const auto& v) {
        return concat({u * v, v}, 1) * 2;
      },
      x, y);
  check_two(
      "stack",
      [](const auto& u, const auto& v) {
        return stack({u * v, v * v}, 1);
      },
      x, y);
  check_one(
      "split",
      [](const Variable& v) {
        const auto parts = split(v, {1, 3, 2}, 1);
        return parts[1] * parts[1];
      },
      x);
  check_one("flip", squared([](const Variable& v) { return flip(v, {1}); }), x);
}

TEST_CASE("second derivatives: selections by index") {
  const Variable x = random_leaf({4, 6}, 1);
  check_one("index_select", squared([](const Variable& v) {
              return index_select(v, 1, numbers({5, 0, 5}));
            }),
            x);
  for (const int padding : {-1, 2})
    check_one("embedding", squared([=](const Variable& v) {
                return embedding(v, numbers({2, 0, 2}), padding);
              }),
              x);
  const Tensor index = numbers({5, 0, 0, 3}).view({4, 1});
  const Variable source = random_leaf({4, 1}, 3);
  check_one("gather", squared([&](const Variable& v) { return gather(v, 1, index); }), x);
  const auto writes = [&](const char* name, const auto& f) {
    check_two(
        name, [&](const auto& u, const auto& v) { return f(u * u, v * v); }, x, source);
  };
  writes("scatter", [&](const auto& u, const auto& v) { return scatter(u, 1, index, v); });
  writes("scatter_add", [&](const auto& u, const auto& v) { return scatter_add(u, 1, index, v); });
  const Tensor at = numbers({3});
  writes("index_add", [&](const auto& u, const auto& v) { return index_add(u, 1, at, v); });
  writes("index_copy", [&](const auto& u, const auto& v) { return index_copy(u, 1, at, v); });
  check_one("index", squared([](const Variable& v) {
              return bs::index(v, {numbers({1, 1, 3})});
            }),
            x);
  check_two(
      "index_put",
      [](const auto& u, const auto& v) {
        return index_put(u * u, {numbers({1, 3})}, v * v, true);
      },
      x, random_leaf({6}, 4));
}

TEST_CASE("second derivatives: softmax and norms") {
  const Variable x = random_leaf({3, 5}, 1), w = positive({5}, 2), b = random_leaf({5}, 3);
  check_one(
      "softmax", [](const Variable& v) { return softmax(v, -1); }, x);
  check_one(
      "softmax of columns", [](const Variable& v) { return softmax(v, 0); }, x);
  check_one(
      "log_softmax", [](const Variable& v) { return log_softmax(v, -1); }, x);
  const Function layer = [](const Inputs& in) { return layer_norm(in[0], in[1], in[2]); };
  check_twice("layer_norm", layer, {x, w, b});
  check_twice("layer_norm of constants", layer, {x.detach(), w, b.detach()});
  check_twice("layer_norm, fixed weight", layer, {x, w.detach(), b});
  check_twice("layer_norm alone", layer, {x, Variable(), Variable()});
  const Function root = [](const Inputs& in) { return rms_norm(in[0], in[1]); };
  check_twice("rms_norm", root, {x, w});
  check_twice("rms_norm alone", root, {x, Variable()});
  const Variable more = random_leaf({3, 5}, 4);
  check_twice("add_layer_norm",
              [](const Inputs& in) {
                const SumAndNorm r = add_layer_norm(in[0], in[1], in[2], in[3]);
                return r.sum * r.norm;
              },
              {x, more, w, b});
  check_twice("add_layer_norm, its norm",
              [](const Inputs& in) { return add_layer_norm(in[0], in[1], in[2], in[3]).norm; },
              {x, more.detach(), w, b});
  check_twice("add_rms_norm",
              [](const Inputs& in) {
                const SumAndNorm r = add_rms_norm(in[0], in[1], in[2]);
                return r.sum * r.sum + r.norm;
              },
              {x, more, w});
}

TEST_CASE("second derivatives: losses") {
  const Variable x = random_leaf({3, 5}, 1), t = random_leaf({3, 5}, 2);
  const Tensor share = random_reference({3, 5}, 3, 0.1, 0.9).tensor(f64, test_device());
  const Tensor weight = random_reference({5}, 4, 0.5, 2).tensor(f64, test_device());
  for (const Reduction how : {Reduction::mean, Reduction::sum, Reduction::none}) {
    CAPTURE(to_string(how));
    check_two(
        "mse", [&](const auto& u, const auto& v) { return mse_loss(u, v, how); }, x, t);
    check_two(
        "l1", [&](const auto& u, const auto& v) { return l1_loss(u * u, v, how); }, x, t);
    check_two(
        "huber", [&](const auto& u, const auto& v) { return huber_loss(u, v, 0.4, how); }, x, t);
    check_two(
        "smooth_l1", [&](const auto& u, const auto& v) { return smooth_l1_loss(u, v, 0.4, how); },
        x, t);
    check_one(
        "bce", [&](const Variable& v) { return binary_cross_entropy(v, share, how); },
        random_leaf({3, 5}, 5, 0.1, 0.9));
    for (const Tensor& w : {Tensor(), weight})
      check_one(
          "bce_with_logits",
          [&](const Variable& v) { return binary_cross_entropy_with_logits(v, share, w, how); }, x);
    for (const bool logs : {false, true})
      check_one(
          "kl_div", [&](const Variable& v) { return kl_div(v * v, share, how, logs); }, x);
    for (const double smoothing : {0., 0.2})
      check_one(
          "cross_entropy",
          [&](const Variable& v) {
            return cross_entropy(
                v, numbers({4, 7, 0}),
                {.ignore_index = 7, .label_smoothing = smoothing, .reduction = how});
          },
          x);
  }
  check_two(
      "cosine", [](const auto& u, const auto& v) { return cosine_similarity(u, v, -1); }, x, t);
}

TEST_CASE("second derivatives: in closed form, also of higher order") {
  // y = x^4: 4 x^3, 12 x^2, 24 x, 24, 0.
  const Variable x = leaf({-1, 0, 2});
  Variable y = x * x * x * x;
  const std::vector<std::vector<double>> expected{
      {-4, 0, 32}, {12, 0, 48}, {-24, 0, 48}, {24, 24, 24}};
  for (const auto& values : expected) {
    y = differentiable_grad(sum(y), x);
    CHECK(of(y) == values);
  }
  // A Hessian times a vector, of v A v / 2 + sum exp v: A p + exp(v) p.
  const Variable a = random_leaf({3, 3}, 1), v = random_leaf({3, 1}, 2);
  const Tensor p = random_reference({3, 1}, 3).tensor(f64, test_device());
  const Variable symmetric = (a + transpose(a, 0, 1)).detach();
  const Variable energy = sum(v * matmul(symmetric, v)) * 0.5 + sum(exp(v));
  const Variable slope = differentiable_grad(energy, v);
  const Grads times = grad(sum(slope * p), {v});
  const auto hp = of(matmul(symmetric, Variable(p)) + exp(v.detach()) * p);
  for (size_t i = 0; i < 3; ++i) CHECK(of(times[0])[i] == doctest::Approx(hp[i]));
  CHECK(of(differentiable_grad({sum(sin(x))}, {x})[0]) == of(cos(x.detach())));
}

TEST_CASE("second derivatives: a penalty of the gradient reaches the parameters") {
  for (const DType dtype : {f64, f32, bf16}) {
    CAPTURE(dtype);
    const auto typed = [&](const Shape& shape, uint64_t seed) {
      return Variable(random_reference(shape, seed).tensor(dtype, test_device()), true);
    };
    const Variable x = typed({2, 4}, 1), w1 = typed({6, 4}, 2), w2 = typed({1, 6}, 3);
    const Variable y = linear(gelu(linear(x, w1)), w2);
    const Variable slope = differentiable_grad(sum(y), x);
    CHECK(slope.dtype() == dtype);
    (mean(y) + mean(slope * slope)).backward();
    for (const Variable& w : {w1, w2}) {
      REQUIRE(w.grad().defined());
      for (const double g : Reference::of(w.grad()).values) CHECK(std::isfinite(g));
    }
    // The same in f64, whose derivatives are checked above.
    if (dtype == f64) continue;
    const auto exact = [](const Variable& v) { return Variable(cast(v.data(), f64), true); };
    const Variable x64 = exact(x), v1 = exact(w1), v2 = exact(w2);
    const Variable y64 = linear(gelu(linear(x64, v1)), v2);
    const Variable slope64 = differentiable_grad(sum(y64), x64);
    (mean(y64) + mean(slope64 * slope64)).backward();
    const Reference got = Reference::of(w1.grad()), true_grad = Reference::of(v1.grad());
    for (size_t i = 0; i < got.values.size(); ++i)
      CHECK(std::abs(got[i] - true_grad[i]) <= 64 * epsilon(dtype));
  }
}

TEST_CASE("second derivatives: the graph stays, and is freed with its variables") {
  const Device device = test_device();
  const Unguarded memory(device);
  const int64_t before = memory_statistics(device).live;
  {
    const Variable x = random_leaf({64, 64}, 1);
    const Variable y = sum(tanh(matmul(x, x)));
    const Variable slope = differentiable_grad(y, x);
    sum(slope * slope).backward({.retain_graph = true});
    y.backward();
    CHECK(x.grad().defined());
  }
  tape().clear();
  CHECK(memory_statistics(device).live == before);
}

TEST_CASE("second derivatives: errors") {
  const Variable x = random_leaf({2, 6}, 1), w = random_leaf({6, 2}, 2), other = leaf({1});
  CHECK_THROWS_WITH_AS(
      differentiable_grad(sum(kron_matmul(x, {w})), x),
      "differentiable_grad: the backward of kron_matmul is not recorded, so there is no second "
      "derivative of it; take it by differences of first ones",
      Error);
  // Off the way to the input it does not matter.
  const Variable scale = leaf({2});
  const Variable mixed = sum(kron_matmul(x, {w})) * sum(scale * scale);
  CHECK(of(differentiable_grad(mixed, scale))[0] ==
        doctest::Approx(4 * of(sum(kron_matmul(x, {w})))[0]));
  CHECK_THROWS_WITH_AS(differentiable_grad({scale * 2}, {scale, scale.detach()}),
                       "differentiable_grad: input 1 requires no gradient", Error);
  CHECK_THROWS_WITH_AS(differentiable_grad({scale.detach()}, {scale}),
                       "differentiable_grad: output 0 requires no gradient", Error);
  CHECK_THROWS_WITH_AS(differentiable_grad(x * 2, x),
                       doctest::Contains("is no single number; reduce it with sum or mean"), Error);
  CHECK_THROWS_WITH_AS(differentiable_grad({x, x}, {x}, {x}),
                       "differentiable_grad: 1 gradients for 2 outputs", Error);
  CHECK(!differentiable_grad({sum(scale)}, {other})[0].defined());
  const Variable freed = sum(scale * scale);
  freed.backward();
  CHECK_THROWS_WITH_AS(differentiable_grad(freed, scale), doctest::Contains("graph of this"),
                       Error);
  const Variable changed = sum(scale * scale);
  fill(scale.data(), 3);
  CHECK_THROWS_WITH_AS(differentiable_grad(changed, scale), doctest::Contains("in place"), Error);
  // A rule that looks at what it has not saved.
  const auto careless = [](const Variable& v) {
    return tape().record(
        "careless", {v}, v.data() * v.data(),
        Twice{[x = v.data().clone()](const Tensor& dy) { return Grads{dy * x * 2}; },
              [](const Recorded& r) { return VariableGrads{r.dy() * r.input() * 2}; }});
  };
  CHECK(of(differentiable_grad(sum(careless(scale)), scale))[0] == 6);  // it is held here
  const Variable forgotten = sum(careless(scale * 1));
  CHECK_THROWS_WITH_AS(differentiable_grad(forgotten, scale),
                       "differentiable_grad: a tensor f64 [1] that the backward of careless looks "
                       "at is gone: a rule saves the inputs and results that its `again` asks for",
                       Error);
  scale.register_hook([](const Tensor& dy) { return clone(dy); });
  CHECK_THROWS_WITH_AS(differentiable_grad(sum(scale * scale), scale),
                       doctest::Contains("a hook gave another gradient"), Error);
}
