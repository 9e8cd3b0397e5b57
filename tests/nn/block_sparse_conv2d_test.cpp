#include <bs/autograd/reduce.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/nn/block_sparse_conv2d.h>
#include <bs/nn/optim/adamw.h>
#include <bs/tests/kernels/block_sparse_conv2d_reference.h>
#include <bs/tests/kernels/conv2d_reference.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

void check_conv(const Mask& mask, const Shape& x, Extent2 kernel, const Conv2dOptions& o) {
  const LayoutPtr layout = mask.layout();
  check_op({.name = "block_sparse_conv2d",
            .inputs = {x, mask.values(), {mask.height()}},
            .op =
                [=](const Variables& v) {
                  return block_sparse_conv2d(v[0], {layout, v[1]}, kernel, v[2], o);
                },
            .reference =
                [=](const References& in) {
                  Reference y = conv2d_of(in[0], dense_weight(in[1], mask, x[1], kernel), o);
                  const auto image = static_cast<size_t>(y.shape[2] * y.shape[3]);
                  const auto k = static_cast<size_t>(mask.height());
                  for (size_t i = 0; i < y.values.size(); ++i) y[i] += in[2][i / image % k];
                  return y;
                }});
}

}  // namespace

TEST_CASE("block_sparse_conv2d") {
  Mask empty_row = Mask::random(1, 3, 9, 8, 0.5, 1);
  for (int c = 0; c < 9; ++c)
    if (empty_row.has(0, 1, c)) empty_row.at(0, 1, c) = 0;
  check_conv(empty_row, {2, 8, 5, 4}, {3, 3}, {.padding = {1, 1, 1, 1}});
  check_conv(Mask::random(1, 2, 12, 8, 0.4, 2), {1, 16, 7, 6}, {2, 3},
             {.stride = {2, 1}, .padding = {0, 1, 2, 1}, .dilation = {2, 1}});
  check_conv(Mask::random(1, 1, 2, 16, 0.6, 3), {3, 32, 3, 5}, {1, 1}, {});
  check_conv(Mask::random(1, 1, 2, 32, 1, 4), {1, 32, 4, 4}, {1, 2}, {.same = false});
  check_conv(Mask(1, 2, 4, 8), {1, 16, 3, 3}, {2, 1}, {});
}

TEST_CASE("block_sparse_conv2d: a dense layout is the dense convolution, in either format") {
  for (const int block : {8, 64, 128}) {
    const Tensor all = ones({1, 1, 3, 3}, u8);
    const LayoutPtr layout = conv2d_layout(all, block);
    const Mask mask(1, 1, 9, block, 1);
    const Shape shape{2, block, 5, 6};
    Reference x = random_reference(shape, 1, -3, 3),
              values = random_reference(mask.values(), 2, -3, 3);
    for (Reference* r : {&x, &values})
      for (double& v : r->values) v = std::round(v);
    const Conv2dOptions o{.stride = {1, 2}, .padding = {1, 1, 1, 1}};
    const Tensor w = dense_weight(values, mask, block, {3, 3}).tensor(f32, test_device());
    const SparseTensor sparse{layout, values.tensor(f32, test_device())};
    for (const bool last : {false, true}) {
      const Tensor rows = x.tensor(f32, test_device());
      const Tensor in = last ? channels_last(rows) : rows;
      const Tensor y = conv2d(in, w, o);
      const Tensor mine = block_sparse_conv2d(in, sparse, {3, 3}, o);
      CHECK(Reference::of(mine).values == Reference::of(y).values);
      CHECK(is_channels_last(mine) == last);
    }
  }
}

TEST_CASE("block_sparse_conv2d: large blocks of 16 bits are exact in whole numbers") {
  // All products and sums are whole numbers below 256, which bf16 has.
  const auto whole = [](const Shape& shape, uint64_t seed) {
    Reference r = random_reference(shape, seed, -1.5, 1.5);
    for (double& v : r.values) v = std::round(v);
    return r;
  };
  struct Case {
    int block, rows, channels;
    Extent2 kernel;
    Shape image;  // N, H, W
    double density;
    Conv2dOptions options;
  };
  const Case cases[] = {
      {64, 3, 2, {3, 3}, {2, 9, 7}, 0.4, {.padding = {1, 1, 1, 1}}},
      {64, 1, 1, {1, 1}, {1, 3, 3}, 1, {}},
      {64, 2, 1, {3, 2}, {3, 8, 9}, 0.5, {.stride = {2, 2}, .padding = {1, 0, 0, 2}}},
      {128, 2, 1, {3, 3}, {2, 6, 11}, 0.5, {.stride = {2, 1}, .dilation = {1, 2}}},
      {128, 1, 2, {2, 2}, {17, 5, 5}, 0.6, {.padding = {1, 1, 1, 1}}},
      {64, 5, 4, {3, 3}, {1, 4, 4}, 0.1, {.same = true}},
      {128, 1, 1, {1, 1}, {2, 7, 7}, 1, {.stride = {2, 2}}}};
  for (const Case& c : cases)
    for (const DType dtype : {f16, bf16})
      for (const bool last : {true, false}) {
        const auto taps = static_cast<int>(c.kernel.h * c.kernel.w);
        const Mask mask = Mask::random(1, c.rows, taps * c.channels, c.block, c.density, 3);
        const LayoutPtr layout = mask.layout();
        const int64_t channels = c.block * c.channels;
        const Shape shape{c.image[0], channels, c.image[1], c.image[2]};
        const Reference values = whole(mask.values(), 1), x = whole(shape, 2);
        const Reference bias = whole({mask.height()}, 4);
        const Reference w = dense_weight(values, mask, channels, c.kernel);
        const auto on_device = [&](const Reference& r) {
          const Tensor t = r.tensor(dtype, test_device());
          return last && t.rank() == 4 ? channels_last(t) : t;
        };
        const auto plain = [](const Reference& r) { return r.tensor(f64, Device::cpu()); };
        const SparseTensor sparse{layout, on_device(values)};
        const Tensor y =
            block_sparse_conv2d(on_device(x), sparse, c.kernel, c.options, on_device(bias));
        const Tensor expected = conv2d(plain(x), plain(w), c.options, {.bias = plain(bias)});
        CHECK(Reference::of(y).values == Reference::of(expected).values);
        CHECK(is_channels_last(y) == last);
        const Reference dy = whole(y.shape(), 5);
        const Tensor dx =
            block_sparse_conv2d_backward_x(on_device(dy), sparse, c.kernel, shape, c.options);
        CHECK(Reference::of(dx).values ==
              Reference::of(conv2d_backward_x(plain(dy), plain(w), shape, c.options)).values);
        const Tensor dvalues = block_sparse_conv2d_backward_w(on_device(x), on_device(dy), layout,
                                                              c.kernel, c.options);
        const Tensor dw = conv2d_backward_w(plain(x), plain(dy), w.shape, c.options);
        const Tensor matrix =
            contiguous(dw.permute({0, 2, 3, 1})).view({mask.height(), mask.width()});
        CHECK(Reference::of(dvalues).values == sparsify(Reference::of(matrix), mask).values);
      }
}

TEST_CASE("block_sparse_conv2d: what is not finite reaches only those that a block connects") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  Mask mask(1, 2, 2, 64);
  mask.at(0, 0, 0) = 1;
  mask.at(0, 1, 1) = 1;
  const Shape shape{1, 128, 5, 5};
  for (const DType dtype : {f32, bf16}) {
    Reference x = random_reference(shape, 1);
    x.at({0, 70, 2, 2}) = nan;
    const SparseTensor w{mask.layout(),
                         random_reference(mask.values(), 2).tensor(dtype, test_device())};
    const Conv2dOptions none;
    const Reference y = Reference::of(
        block_sparse_conv2d(channels_last(x.tensor(dtype, test_device())), w, {1, 1}, none));
    for (int64_t k = 0; k < 128; ++k)
      for (int64_t pixel = 0; pixel < 25; ++pixel)
        CHECK(std::isnan(y[static_cast<size_t>(k * 25 + pixel)]) == (k >= 64 && pixel == 12));
  }
}

TEST_CASE("block_sparse_conv2d: layouts and messages") {
  Reference mask({2, 3, 1, 2});
  mask.at({1, 2, 0, 1}) = 1;  // out block 1, in block 2, place (0, 1)
  const LayoutPtr layout = conv2d_layout(mask.tensor(u8, Device::cpu()), 16);
  CHECK(layout->contains(0, 1, 1 * 3 + 2));
  CHECK(layout->nnz() == 1);
  const SparseTensor w{layout, zeros({1, 16, 16}, f32, test_device())};
  CHECK_THROWS_WITH_AS(
      block_sparse_conv2d(zeros({1, 32, 4, 4}, f32, test_device()), w, {1, 2}),
      "block_sparse_conv2d: x [1, 32, 4, 4] and a filter of 1x2 for a weight [32, 96] with blocks "
      "of 16",
      Error);
  CHECK_THROWS_AS(
      block_sparse_conv2d(zeros({1, 48, 4, 4}, f32, test_device()), w, {1, 2}, {.groups = 3}),
      Error);
  CHECK(block_sparse_conv2d(zeros({0, 48, 4, 4}, f32, test_device()), w, {1, 2}).shape() ==
        Shape{0, 32, 4, 3});
}

TEST_CASE("nn::BlockSparseConv2d: pruning and growing keep common blocks and their moments") {
  const Mask before = Mask::random(1, 3, 9, 8, 0.6, 5);
  Mask after = Mask::random(1, 3, 9, 8, 0.4, 6);
  nn::BlockSparseConv2d conv({.layout = before.layout(),
                              .kernel = {3, 3},
                              .walk = {.padding = {1, 1, 1, 1}},
                              .device = test_device()});
  optim::AdamW first(conv);
  const Tensor x = random_reference({2, 8, 4, 4}, 7).tensor(f32, test_device());
  const auto step = [&](optim::AdamW& optimizer) {
    const Variable y = conv.forward(x);
    sum(y).backward();
    optimizer.step();
    optimizer.zero_grad();
  };
  step(first);
  const Reference weight = densify(Reference::of(conv.weight.data()), before);
  const LayoutPtr old = conv.layout(), next = after.layout();
  conv.update_layout(next);
  optim::AdamW second(conv);
  optim::carry_state(first, second, {{"weight", {old, next}}});
  const Reference now = densify(Reference::of(conv.weight.data()), after);
  const Reference was = densify(Reference::of(first.state()[0].tensor), before);
  const Reference is = densify(Reference::of(second.state()[0].tensor), after);
  for (size_t i = 0; i < now.values.size(); ++i) {
    const int row = static_cast<int>(i) / 72 / 8, column = static_cast<int>(i) % 72 / 8;
    const bool kept = before.has(0, row, column) && after.has(0, row, column);
    CHECK(now[i] == (kept ? weight[i] : 0));
    CHECK(is[i] == (kept ? was[i] : 0));
  }
  CHECK(second.steps() == 1);
  // The second moments go the same way, and those of the bias, which has no layout, whole.
  REQUIRE(first.state().size() == second.state().size());
  for (size_t t = 0; t < first.state().size(); ++t) {
    const optim::NamedTensor from = first.state()[t], to = second.state()[t];
    CHECK(from.name == to.name);
    const Reference old_values = Reference::of(from.tensor), values = Reference::of(to.tensor);
    CHECK(largest(values) > 0);
    if (from.name.starts_with("bias")) {
      CHECK(values.values == old_values.values);
      continue;
    }
    const Reference left = densify(old_values, before), right = densify(values, after);
    for (size_t i = 0; i < right.values.size(); ++i) {
      const int row = static_cast<int>(i) / 72 / 8, column = static_cast<int>(i) % 72 / 8;
      const bool kept = before.has(0, row, column) && after.has(0, row, column);
      CHECK(right[i] == (kept ? left[i] : 0));
    }
  }
  step(second);
  CHECK(second.steps() == 2);
}

TEST_CASE("optim::carry_state: messages") {
  const LayoutPtr layout = Mask::random(1, 3, 9, 8, 0.6, 5).layout();
  const nn::BlockSparseConv2d conv(
      {.layout = layout, .kernel = {3, 3}, .bias = false, .device = test_device()});
  const nn::BlockSparseConv2d other({.layout = layout, .kernel = {3, 3}, .device = test_device()});
  const optim::AdamW first(conv);
  optim::AdamW second(other);
  CHECK_THROWS_WITH_AS(optim::carry_state(first, second, {}),
                       "carry_state: 2 tensors of state, then 4", Error);
}
