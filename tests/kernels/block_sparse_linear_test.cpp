#include <bs/autograd/activation.h>
#include <bs/autograd/binary.h>
#include <bs/autograd/block_sparse_linear.h>
#include <bs/autograd/block_sparse_matmul.h>
#include <bs/tests/support/activated.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace bs;
using namespace bs::test;

namespace {

constexpr Activation activations[] = {Activation::none,     Activation::relu, Activation::tanh,
                                      Activation::sigmoid,  Activation::silu, Activation::gelu,
                                      Activation::gelu_tanh};

void check_layer(const Mask& mask, const Shape& lead, Activation f, bool bias) {
  Shape x = lead;
  x.push_back(mask.width());
  const auto reference = [&](const References& in) {
    Reference rows = in[0];
    rows.shape = {lead.product(), mask.width()};
    Reference y = product(rows, densify(in[1], mask), false, true);
    for (size_t i = 0; i < y.values.size(); ++i) {
      const size_t j = i % static_cast<size_t>(mask.height());
      y[i] = activated(f, y[i] + (bias ? in[2][j] : 0));
    }
    y.shape = lead;
    y.shape.push_back(mask.height());
    return y;
  };
  std::vector<Shape> inputs{x, mask.values()};
  if (bias) inputs.push_back({mask.height()});
  check_op(
      {.name = "block_sparse_linear " + to_string(f),
       .inputs = inputs,
       .op =
           [&](const Variables& v) {
             return block_sparse_linear(v[0], {mask.layout(), v[1]}, bias ? v[2] : Variable(), f);
           },
       .reference = reference,
       // In 16 bits a sum beside the kink of relu may come to lie on its other side.
       .dtypes = f == Activation::relu ? std::vector<DType>{f64, f32}
                                       : std::vector<DType>{f64, f32, f16, bf16}});
}

}  // namespace

TEST_CASE("block_sparse_linear: every activation, with and without a bias") {
  for (const Activation f : activations)
    for (const bool bias : {false, true})
      check_layer(Mask::random(1, 3, 4, 8, 0.6, 1), {5}, f, bias);
}

TEST_CASE("block_sparse_linear: leading axes, blocks, and rows without a block") {
  Mask holes(1, 3, 2, 16);
  holes.at(0, 0, 1) = holes.at(0, 2, 0) = 1;
  for (const Shape& lead : {Shape{}, Shape{1}, Shape{2, 3}, Shape{0}})
    check_layer(holes, lead, Activation::gelu_tanh, true);
  check_layer(Mask(1, 2, 3, 8), {4}, Activation::sigmoid, true);
  for (const int block : {32, 64, 128})
    check_layer(Mask::random(1, 2, 2, block, 0.6, 2), {9}, Activation::silu, true);
}

namespace {

void check_against_three(const Mask& mask, int64_t rows) {
  const SparseVariable w{
      mask.layout(), Variable(random_reference(mask.values(), 4).tensor(f32, test_device()), true)};
  const Variable bias(random_reference({mask.height()}, 5).tensor(f32, test_device()), true);
  const Reference dy = random_reference({rows, mask.height()}, 6);
  for (const Activation f : {Activation::relu, Activation::silu, Activation::gelu_tanh}) {
    const Variable x(random_reference({rows, mask.width()}, 7).tensor(f32, test_device()), true);
    const auto gradients = [&](const Variable& y) {
      for (const Variable& v : {x, w.values, bias}) v.zero_grad();
      y.backward(dy.tensor(f32, test_device()));
      std::vector<Reference> all{Reference::of(y.data())};
      for (const Variable& v : {x, w.values, bias}) all.push_back(Reference::of(v.grad()));
      return all;
    };
    const Variable sums = dds(x, w, {.b = true}) + bias;
    const std::vector<Reference> apart =
        gradients(f == Activation::relu   ? relu(sums)
                  : f == Activation::silu ? silu(sums)
                                          : gelu(sums, Gelu::tanh));
    const std::vector<Reference> together = gradients(block_sparse_linear(x, w, bias, f));
    for (size_t i = 0; i < apart.size(); ++i)
      check_close(to_string(f), together[i], apart[i],
                  16 * epsilon(f32) * std::max(1.0, largest(apart[i])));
  }
}

}  // namespace

TEST_CASE("block_sparse_linear: one kernel gives what three do, and so do the gradients") {
  check_against_three(Mask::random(1, 6, 8, 32, 0.4, 3), 70);
  check_against_three(Mask::random(1, 4, 3, 64, 0.6, 3), 200);
}

TEST_CASE("block_sparse_linear refuses what does not fit") {
  const Device device = test_device();
  const LayoutPtr layout = Mask(1, 3, 4, 8, 1).layout();
  const SparseTensor w{layout, Tensor::empty({12, 8, 8}, f32, device)};
  const Tensor x = Tensor::empty({5, 32}, f32, device);
  CHECK_THROWS_WITH_AS(block_sparse_linear(Tensor::empty({5, 24}, f32, device), w),
                       "block_sparse_linear: x [5, 24] for a weight [24, 32]", Error);
  CHECK_THROWS_WITH_AS(block_sparse_linear(x, w, Tensor::empty({32}, f32, device)),
                       "block_sparse_linear: bias [32] for a weight [24, 32]", Error);
  CHECK_THROWS_WITH_AS(block_sparse_linear(x, w, Tensor::empty({24}, f16, device)),
                       "block_sparse_linear: dtypes f32 and f16 differ", Error);
  const SparseTensor headed{Mask(2, 3, 4, 8, 1).layout(), Tensor::empty({24, 8, 8}, f32, device)};
  CHECK_THROWS_WITH_AS(
      block_sparse_linear(x, headed),
      "block_sparse_linear: a weight of 2 heads and values [24, 8, 8]; it is one matrix", Error);
  CHECK_THROWS_WITH_AS(
      block_sparse_linear_backward(x, w, {}, Tensor::empty({5, 32}, f32, device), Activation::none),
      "block_sparse_linear_backward: dy [5, 32] for x [5, 32] and a weight [24, 32]", Error);
  if (device.is_cuda())
    CHECK_THROWS_WITH_AS(block_sparse_linear(x, w, Tensor::empty({24}, f32)),
                         "block_sparse_linear: tensors on cuda:0 and cpu", Error);
}
