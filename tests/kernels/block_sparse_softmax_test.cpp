#include <bs/autograd/block_sparse_matmul.h>
#include <bs/autograd/block_sparse_softmax.h>
#include <bs/kernels/block_sparse_softmax.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

struct Hidden {
  double scale = 1;
  bool causal = false;
  std::vector<std::vector<uint8_t>> keep = {};  ///< a row for each entry of the batch, or one
};

Tensor mask_tensor(const Hidden& hidden) {
  if (hidden.keep.empty()) return {};
  Reference r(
      {static_cast<int64_t>(hidden.keep.size()), static_cast<int64_t>(hidden.keep.front().size())});
  size_t at = 0;
  for (const auto& row : hidden.keep)
    for (uint8_t k : row) r[at++] = k;
  return r.tensor(boolean, test_device());
}

/// Softmax of dense rows without what no block stores and what an option hides.
Reference softmax_reference(const Reference& values, const Mask& mask, const Hidden& hidden) {
  constexpr double absent = -std::numeric_limits<double>::infinity();
  Reference x = densify(values, mask, absent);
  const int64_t n = mask.width(), height = mask.height();
  const int64_t lines = n == 0 ? 0 : x.shape.product() / n;
  const int64_t batch = x.shape.rank() > (mask.heads > 1 ? 3 : 2) ? x.shape[0] : 1;
  for (int64_t line = 0; line < lines; ++line) {
    const auto z = static_cast<size_t>(line / (lines / batch));
    long double sum = 0;
    const auto visible = [&](int64_t j) {
      const auto* keep =
          hidden.keep.empty() ? nullptr : &hidden.keep[hidden.keep.size() == 1 ? 0 : z];
      return (!hidden.causal || j <= line % height) && (!keep || (*keep)[static_cast<size_t>(j)]);
    };
    for (int64_t j = 0; j < n; ++j) {
      double& v = x[static_cast<size_t>(line * n + j)];
      v = visible(j) && v != absent ? std::exp(hidden.scale * v) : 0;
      sum += v;
    }
    const auto divisor = static_cast<double>(sum == 0 ? 1 : sum);
    for (int64_t j = 0; j < n; ++j) x[static_cast<size_t>(line * n + j)] /= divisor;
  }
  return sparsify(x, mask);
}

BlockSparseSoftmaxOptions options_of(const Hidden& hidden) {
  return {.scale = hidden.scale, .causal = hidden.causal, .key_padding_mask = mask_tensor(hidden)};
}

void check_softmax(const Mask& mask, const Shape& lead, const Hidden& hidden) {
  const LayoutPtr layout = mask.layout();
  const BlockSparseSoftmaxOptions options = options_of(hidden);
  check_op(
      {.name = "block_sparse_softmax",
       .inputs = {mask.values(lead)},
       .op =
           [&](const Variables& v) {
             return block_sparse_softmax(SparseVariable{layout, v[0]}, options).values;
           },
       .reference = [&](const References& in) { return softmax_reference(in[0], mask, hidden); },
       .low = -3,
       .high = 3});
}

/// Where differences would take too long: dx against scale * y * (dy - sum y dy) of dense rows.
void check_large_softmax(const Mask& mask, const Shape& lead, const Hidden& hidden) {
  for (DType dtype : {f32, f16}) {
    const auto draw = [&](uint64_t seed) {
      return random_reference(mask.values(lead), seed, -3, 3).tensor(dtype, test_device());
    };
    const Tensor x = draw(1), dy = draw(2);
    const SparseTensor s{mask.layout(), x};
    const SparseTensor y = block_sparse_softmax(s, options_of(hidden));
    const Reference expected = softmax_reference(Reference::of(x), mask, hidden);
    const Reference rows = densify(expected, mask);
    Reference dx = densify(Reference::of(dy), mask);
    const auto n = static_cast<size_t>(mask.width());
    for (size_t at = 0; at < dx.values.size(); at += n) {
      double dot = 0;
      for (size_t j = at; j < at + n; ++j) dot += rows[j] * dx[j];
      for (size_t j = at; j < at + n; ++j) dx[j] = hidden.scale * rows[j] * (dx[j] - dot);
    }
    const auto check = [&](const Tensor& actual, const Reference& wanted) {
      const Reference got = Reference::of(actual);
      double worst = 0, top = 0;
      for (size_t i = 0; i < got.values.size(); ++i) {
        worst = std::max(worst, std::abs(got[i] - wanted[i]));
        top = std::max(top, std::abs(wanted[i]));
      }
      CHECK(worst <= 16 * epsilon(dtype) * top);
    };
    check(y.values, expected);
    check(block_sparse_softmax_backward(y, dy, hidden.scale), sparsify(dx, mask));
  }
}

std::vector<uint8_t> kept(int64_t width, uint64_t seed) {
  std::vector<uint8_t> row;
  for (double v : random_reference({width}, seed).values) row.push_back(v > 0);
  return row;
}

}  // namespace

TEST_CASE("block-sparse softmax") {
  for (int block : {8, 16, 32, 64, 128})
    check_softmax(Mask::random(1, 2, 3, block, 0.6, 1), {}, {.scale = 0.4});
  for (int heads : {1, 3})
    for (const Shape& lead : {Shape{}, Shape{2}, Shape{2, 3}, Shape{0}})
      for (bool causal : {false, true}) {
        const Mask mask = Mask::random(heads, 4, 3, 8, 0.6, 2);
        check_softmax(mask, lead, {.causal = causal});
        check_softmax(mask, lead, {.scale = -1.5, .causal = causal, .keep = {kept(24, 3)}});
        if (lead.rank() > 0 && lead[0] == 2)
          check_softmax(mask, lead, {.causal = causal, .keep = {kept(24, 4), kept(24, 5)}});
      }
}

TEST_CASE("block-sparse softmax: the sizes of Torch-Blocksparse's tests") {
  for (int n : {256, 576})
    check_large_softmax(Mask::random(4, n / 16, n / 16, 16, 0.4, 6), {2},
                        {.scale = 0.4, .keep = {kept(n, 7), kept(n, 8)}});
}

TEST_CASE("block-sparse softmax: long rows, empty rows, nothing at all") {
  check_large_softmax(Mask(1, 1, 150, 32, 1), {}, {});
  check_large_softmax(Mask(1, 1, 40, 128, 1), {}, {.keep = {kept(40 * 128, 9)}});
  check_large_softmax(Mask(1, 1, 5000, 8, 1), {}, {.scale = 0.5});
  check_large_softmax(Mask(1, 4, 90, 32, 1), {2}, {.scale = -2, .causal = true});
  std::vector<uint8_t> late(size_t{40} * 128, 0);  // all that a lane sees first is hidden
  for (size_t i = 5000; i < late.size(); ++i) late[i] = i % 3 != 0;
  check_large_softmax(Mask(1, 1, 40, 128, 1), {}, {.keep = {late}});
  Mask holes(2, 3, 4, 8);
  holes.at(0, 0, 1) = holes.at(0, 2, 3) = holes.at(0, 2, 0) = 1;
  for (const Mask& mask : {holes, Mask(1, 2, 2, 16), Mask(1, 0, 0, 8)})
    check_softmax(mask, {2}, {.causal = true});
}

TEST_CASE("block-sparse softmax: a row with nothing left gives zeros, also for its gradient") {
  const Mask mask(1, 2, 2, 8, 1);
  const SparseTensor s{mask.layout(),
                       random_reference(mask.values(), 10).tensor(f32, test_device())};
  const Tensor none = Tensor::from<bool>({false, false, false, false, false, false, false, false,
                                          false, false, false, false, false, false, false, false});
  const SparseTensor y = block_sparse_softmax(s, {.key_padding_mask = none.to(test_device())});
  for (double v : Reference::of(y.values).values) CHECK(v == 0);
  const Tensor dy = random_reference(mask.values(), 11).tensor(f32, test_device());
  for (double v : Reference::of(block_sparse_softmax_backward(y, dy)).values) CHECK(v == 0);
}

TEST_CASE("block-sparse softmax: large scores do not overflow, and NaN is not hidden") {
  const Mask mask(1, 1, 2, 8, 1);
  Reference x(mask.values());
  for (size_t i = 0; i < x.values.size(); ++i) x[i] = i % 8 < 4 ? 6e4 : -6e4;
  const SparseTensor s{mask.layout(), x.tensor(f16, test_device())};
  for (double v : Reference::of(block_sparse_softmax(s).values).values)
    CHECK((v == 0 || v == 0.125));
  x[3] = std::numeric_limits<double>::quiet_NaN();
  const Reference y = Reference::of(
      block_sparse_softmax(SparseTensor{s.layout, x.tensor(f32, test_device())}).values);
  for (size_t i = 0; i < y.values.size(); ++i) CHECK(std::isnan(y[i]) == (i % 64 < 8));
}

namespace {

/// What is added to scores, dense: an input of the operation, keys' biases and a mask of elements.
struct Added {
  Shape bias;                    ///< broadcasts to the dense matrix
  Reference keys = Reference();  ///< [width] or [batch, width]
  Reference mask = Reference();  ///< [height, width]
  bool mask_adds = false;        ///< or hides where it is 0
};

/// Element (z, h, i, j) of something that broadcasts to [batch, heads, height, width].
double broadcast_at(const Reference& x, const Shape& dense, std::vector<int64_t> index) {
  const auto skipped = static_cast<size_t>(dense.rank() - x.shape.rank());
  int64_t at = 0;
  for (int axis = 0; axis < x.shape.rank(); ++axis)
    at = at * x.shape[axis] + (x.shape[axis] == 1 ? 0 : index[skipped + static_cast<size_t>(axis)]);
  return x.values[static_cast<size_t>(at)];
}

Reference biased_softmax(const References& in, const Mask& mask, double scale, const Added& more) {
  constexpr double absent = -std::numeric_limits<double>::infinity();
  Reference x = densify(in[0], mask, absent);
  const int64_t height = mask.height(), width = mask.width();
  for (int64_t line = 0; line < x.shape.product() / width; ++line) {
    const int64_t i = line % height, h = line / height % mask.heads, z = line / height / mask.heads;
    double sum = 0;
    for (int64_t j = 0; j < width; ++j) {
      double& v = x[static_cast<size_t>(line * width + j)];
      std::vector<int64_t> index = {z};
      if (mask.heads > 1) index.push_back(h);
      index.push_back(i);
      index.push_back(j);
      double s = scale * v + broadcast_at(in[1], x.shape, index);
      if (!more.keys.shape.empty())
        s += more.keys.shape.rank() == 1 ? more.keys.at({j}) : more.keys.at({z, j});
      if (!more.mask.shape.empty()) {
        const double m = more.mask.at({i, j});
        s = more.mask_adds ? s + m : m == 0 ? absent : s;
      }
      v = std::isinf(s) ? 0 : std::exp(s);
      sum += v;
    }
    for (int64_t j = 0; j < width; ++j)
      x[static_cast<size_t>(line * width + j)] /= sum == 0 ? 1 : sum;
  }
  return sparsify(x, mask);
}

void check_biased(const Mask& mask, const Added& more) {
  const LayoutPtr layout = mask.layout();
  check_op({.name = "block_sparse_softmax",
            .inputs = {mask.values({2}), more.bias},
            .op =
                [&](const Variables& v) {
                  BlockSparseSoftmaxOptions o{.scale = .4};
                  if (!more.keys.shape.empty()) o.key_bias = more.keys.tensor(f32, test_device());
                  if (!more.mask.shape.empty())
                    o.attention_mask =
                        more.mask.tensor(more.mask_adds ? f32 : boolean, test_device());
                  return block_sparse_softmax(SparseVariable{layout, v[0]}, o, v[1]).values;
                },
            .reference = [&](const References& in) { return biased_softmax(in, mask, .4, more); },
            .steps = 32});
}

/// Multiples of 1/64, some of them -infinity.
Reference some_hidden(const Shape& shape, uint64_t seed) {
  Reference r = random_reference(shape, seed);
  for (double& v : r.values)
    v = v > .6 ? -std::numeric_limits<double>::infinity() : std::round(v * 64) / 64;
  return r;
}

}  // namespace

TEST_CASE("block-sparse softmax: biases with gradients") {
  const Mask heads = Mask::random(2, 3, 4, 8, .6, 21), one = Mask::random(1, 3, 4, 8, .6, 22);
  for (const Shape& bias : {Shape{24, 32}, Shape{2, 24, 32}, Shape{1, 24, 32}, Shape{1, 2, 24, 32},
                            Shape{2, 1, 24, 32}, Shape{2, 2, 24, 32}})
    check_biased(heads, {.bias = bias});
  for (const Shape& bias : {Shape{24, 32}, Shape{1, 24, 32}, Shape{2, 24, 32}})
    check_biased(one, {.bias = bias});
}

TEST_CASE("block-sparse softmax: masks that add and masks that hide") {
  for (const int count : {1, 2}) {
    const Mask mask = Mask::random(count, 3, 4, 8, .6, 23);
    for (const bool adds : {false, true}) {
      Added more{.bias = {24, 32}, .mask_adds = adds};
      more.keys = some_hidden(adds ? Shape{32} : Shape{2, 32}, 24);
      more.mask = some_hidden({24, 32}, 25);
      if (!adds)
        for (double& v : more.mask.values) v = std::isinf(v) ? 0 : 1;
      for (int64_t j = 0; j < 32; ++j)  // a row with nothing left
        more.mask.at({5, j}) = adds ? -std::numeric_limits<double>::infinity() : 0;
      check_biased(mask, more);
    }
  }
}

TEST_CASE("block-sparse softmax: what a mask hides may be anything") {
  const Mask mask(1, 1, 2, 8, 1);
  Reference x = random_reference(mask.values(), 26), keys({16});
  const auto run = [&] {
    return Reference::of(
        block_sparse_softmax(SparseTensor{mask.layout(), x.tensor(f32, test_device())},
                             {.key_bias = keys.tensor(f32, test_device())})
            .values);
  };
  keys.at({3}) = -std::numeric_limits<double>::infinity();
  const Reference clean = run();
  for (size_t row = 0; row < 8; ++row) x[row * 8 + 3] = std::numeric_limits<double>::quiet_NaN();
  CHECK(run().values == clean.values);
}

TEST_CASE("block-sparse softmax: what is hidden by place may be anything, whatever the scale") {
  const Mask mask = Mask::random(2, 3, 4, 16, .7, 27);
  const Hidden options{.causal = true, .keep = {kept(64, 28)}};
  const Reference clean = random_reference(mask.values({2}), 29, -2, 2);
  // Only what is seen has weight in rows of ones.
  const Reference seen = softmax_reference(Reference(mask.values({2})), mask, options);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {f32, f64, f16, bf16})
    for (const double scale : {1.0, -0.5, 0.0, 1e-60})
      for (const double hidden : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()}) {
        Reference x = clean;
        for (size_t i = 0; i < x.values.size(); ++i)
          if (seen[i] == 0) x[i] = hidden;
        Hidden scaled = options;
        scaled.scale = scale;
        const auto run = [&](const Reference& values) {
          return Reference::of(
              block_sparse_softmax(SparseTensor{mask.layout(), values.tensor(dtype, test_device())},
                                   options_of(scaled))
                  .values);
        };
        CHECK(run(x).values == run(clean).values);
      }
}

TEST_CASE("block-sparse softmax refuses biases that do not fit") {
  const Mask mask(1, 1, 2, 8, 1);
  const SparseTensor s{mask.layout(), Tensor::empty(mask.values(), f32, test_device())};
  const Tensor wrong = Tensor::empty({8, 8}, f32, test_device());
  CHECK_THROWS_WITH_AS(
      block_sparse_softmax(s, {.bias = wrong}),
      "block_sparse_softmax: bias [8, 8] does not broadcast to the dense matrix of "
      "values [2, 8, 8]",
      Error);
  CHECK_THROWS_WITH_AS(block_sparse_softmax(s, {.key_bias = wrong}),
                       "block_sparse_softmax: key_bias [8, 8] is neither [16] nor [batch, 16]",
                       Error);
  CHECK_THROWS_WITH_AS(block_sparse_softmax(s, {.attention_mask = wrong.select(0, 0)}),
                       "block_sparse_softmax: attention_mask [8] is not [height, width]", Error);
}

TEST_CASE("block-sparse products and softmax compose to attention") {
  const Mask mask = Mask::random(2, 3, 4, 8, 0.6, 12);
  const LayoutPtr layout = mask.layout();
  check_op({.name = "attention",
            .inputs = {{2, 2, 24, 5}, {2, 2, 32, 5}, {2, 2, 32, 3}},
            .op =
                [&](const Variables& v) {
                  const SparseVariable scores = sdd(v[0], v[1], layout, {.b = true});
                  return dsd(block_sparse_softmax(scores, {.scale = 0.5, .causal = true}), v[2]);
                },
            .reference =
                [&](const References& in) {
                  const Reference scores = sparsify(product(in[0], in[1], false, true), mask);
                  const Hidden hidden{.scale = 0.5, .causal = true};
                  const Reference p = softmax_reference(scores, mask, hidden);
                  return product(densify(p, mask), in[2], false, false);
                }});
}

TEST_CASE("block-sparse softmax refuses what does not fit") {
  const Mask mask(1, 2, 4, 8, 1);
  const SparseTensor s{mask.layout(), Tensor::empty({3, 8, 8, 8}, f32)};
  CHECK_THROWS_WITH_AS(
      block_sparse_softmax(s, {.key_padding_mask = Tensor::empty({2, 32}, boolean)}),
      "block_sparse_softmax: key_padding_mask [2, 32] is neither [32] nor [batch, 32] for values "
      "[3, 8, 8, 8]",
      Error);
  CHECK_THROWS_WITH_AS(block_sparse_softmax(s, {.key_padding_mask = Tensor::empty({32}, u8)}),
                       "block_sparse_softmax: key_padding_mask is u8, not bool", Error);
  CHECK_THROWS_WITH_AS(block_sparse_softmax_backward(s, Tensor::empty({8, 8, 8}, f32)),
                       "block_sparse_softmax_backward: shapes [3, 8, 8, 8] and [8, 8, 8] differ",
                       Error);
}
