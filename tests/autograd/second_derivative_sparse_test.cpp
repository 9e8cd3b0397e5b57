// Gradients of gradients of what is block-sparse, and of two layers in one.
#include <bs/autograd/binary.h>
#include <bs/autograd/block_sparse_conv2d.h>
#include <bs/autograd/block_sparse_convert.h>
#include <bs/autograd/block_sparse_linear.h>
#include <bs/autograd/block_sparse_matmul.h>
#include <bs/autograd/block_sparse_softmax.h>
#include <bs/autograd/feed_forward.h>
#include <bs/autograd/reduce.h>
#include <bs/tests/support/check_twice.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

/// Fewer elements, for differences to take less time.
Variable few(const Variable& y) { return mean(y * y, -1); }

Mask three_of_four() {
  Mask mask(1, 2, 2, 8, 1);
  mask.at(0, 1, 0) = 0;
  return mask;
}

}  // namespace

TEST_CASE("second derivatives: block-sparse products") {
  const Mask mask = three_of_four();
  const LayoutPtr layout = mask.layout();
  const Variable values = random_leaf(mask.values(), 2), a = random_leaf({3, 16}, 3),
                 b = random_leaf({16, 3}, 4), left = random_leaf({16, 3}, 5);
  check_two(
      "sdd", [&](const auto& u, const auto& v) { return few(sdd(u, v, layout).values); }, left, a);
  check_two(
      "dsd",
      [&](const auto& s, const auto& v) {
        return dsd({layout, s}, v);
      },
      values, b);
  check_two(
      "dsd, transposed",
      [&](const auto& s, const auto& v) {
        return dsd({layout, s}, v, {.a = true, .b = true});
      },
      values, a);
  check_two(
      "dds",
      [&](const auto& u, const auto& s) {
        return dds(u, {layout, s});
      },
      a, values);
  check_one("to_dense", squared([&](const Variable& s) {
              return sum(to_dense({layout, s}), -1);
            }),
            values);
  check_one("to_sparse",
            squared([&](const Variable& v) { return sum(to_sparse(v, layout).values, -1); }),
            random_leaf({16, 16}, 6));
}

TEST_CASE("second derivatives: block-sparse softmax") {
  const Mask mask(1, 1, 2, 8, 1);
  const LayoutPtr layout = mask.layout();
  const Variable values = random_leaf(mask.values(), 2), bias = random_leaf({8, 16}, 3);
  const Variable weights = random_leaf(mask.values(), 4).detach();
  check_twice("softmax with a bias",
              [&](const Inputs& in) {
                const SparseVariable s{layout, in[0]};
                const auto y = block_sparse_softmax(s, {.scale = 0.7, .causal = true}, in[1]);
                return sum(y.values * weights, -1);
              },
              {values, bias});
}

TEST_CASE("second derivatives: block-sparse layers and the feed-forward layer") {
  const Mask mask = Mask::random(1, 1, 2, 8, 0.9, 3);
  const LayoutPtr layout = mask.layout();
  const Variable values = random_leaf(mask.values(), 1), x = random_leaf({2, 1, 16}, 2),
                 bias = random_leaf({8}, 3);
  for (const Activation f :
       {Activation::none, Activation::relu, Activation::tanh, Activation::gelu_tanh}) {
    CAPTURE(to_string(f));
    const Function layer = [&](const Inputs& in) {
      return block_sparse_linear(in[0], {layout, in[1]}, in[2], f);
    };
    check_twice("block_sparse_linear", layer, {x, values, bias});
    check_twice("block_sparse_linear of a constant", layer, {x.detach(), values, bias.detach()});
    check_twice("block_sparse_linear without a bias", layer, {x, values.detach(), Variable()});
  }
  const Variable image = random_leaf({1, 16, 2, 2}, 4);
  const Mask taps = Mask::random(1, 1, 4, 8, 0.9, 5);
  const Function convolution = [&](const Inputs& in) {
    return block_sparse_conv2d(in[0], {taps.layout(), in[1]}, {1, 2}, in[2],
                               {.padding = {0, 0, 1, 0}});
  };
  const Variable blocks = random_leaf(taps.values(), 6);
  check_twice("block_sparse_conv2d", convolution, {image, blocks, bias});
  check_twice("block_sparse_conv2d by a constant", convolution,
              {image, blocks.detach(), Variable()});
  const Function two = [](const Inputs& in) {
    return feed_forward(in[0], in[1], in[2], in[3], in[4]);
  };
  const Inputs all{random_leaf({2, 3}, 1), random_leaf({4, 3}, 2), random_leaf({4}, 3),
                   random_leaf({2, 4}, 4), random_leaf({2}, 5)};
  check_twice("feed_forward", two, all);
  Inputs fixed = all;
  for (const size_t i : {1, 2, 4}) fixed[i] = fixed[i].detach();
  check_twice("feed_forward, partly fixed", two, fixed);
}
