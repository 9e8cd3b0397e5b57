#include <bs/autograd/block_sparse_conv2d.h>
#include <bs/autograd/grad_check.h>
#include <bs/kernels/block_sparse_conv2d.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/lib/threads.h>
#include <bs/tests/kernels/block_sparse_conv2d_reference.h>
#include <bs/tests/kernels/conv2d_reference.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

enum class Format : uint8_t { rows, channels, gaps };

Reference whole(const Shape& shape, uint64_t seed, double most) {
  Reference r = random_reference(shape, seed, -most - 0.5, most + 0.5);
  for (double& v : r.values) v = std::round(v);
  return r;
}

Tensor image_of(const Reference& r, DType dtype, Format format) {
  const Tensor x = r.tensor(dtype, test_device());
  if (format == Format::rows) return x;
  if (format == Format::channels) return channels_last(x);
  const Shape& s = r.shape;
  const Tensor wide = full({s[0], s[2], 2 * s[1], 2 * s[3]}, 99, dtype, test_device());
  const Tensor view = wide.slice(2, 1, 2 * s[1], 2).slice(3, 0, 2 * s[3], 2).permute({0, 2, 1, 3});
  copy(x, view);
  return view;
}

struct Case {
  Mask mask;
  int64_t channels;
  Extent2 kernel;
  Shape x;
  Conv2dOptions options = {};
  DType dtype = f32;
  Format format = Format::channels;

  double products() const {
    return static_cast<double>(conv2d_shape(x, weight(), options).product()) *
           static_cast<double>(channels * kernel.h * kernel.w);
  }
  Shape weight() const { return {mask.height(), channels, kernel.h, kernel.w}; }
};

/// The three passes in whole numbers, bit for bit: all sums fit the type.
void check_exact(const Case& c, uint64_t seed) {
  CAPTURE(seed);
  CAPTURE(to_string(c.x));
  CAPTURE(to_string(c.weight()));
  CAPTURE(c.mask.block);
  const bool small = c.dtype == f16 || c.dtype == bf16;
  const double most = small ? 1 : 3;
  const Reference x = whole(c.x, seed, most), values = whole(c.mask.values(), seed + 1, most);
  const Reference w = dense_weight(values, c.mask, c.channels, c.kernel);
  Reference y = conv2d_of(x, w, c.options);
  const Reference bias = whole({c.mask.height()}, seed + 2, most);
  const Reference dy = whole(y.shape, seed + 3, most);
  const auto image = static_cast<size_t>(y.shape[2] * y.shape[3]), k = bias.values.size();
  for (size_t i = 0; i < y.values.size(); ++i) y[i] += bias[i / image % k];
  const SparseTensor sparse{c.mask.layout(), values.tensor(c.dtype, test_device())};
  const auto same = [&](const char* pass, const Tensor& actual, const Reference& expected) {
    CHECK_MESSAGE(actual.shape() == expected.shape, pass);
    CHECK_MESSAGE(Reference::of(actual).values == expected.values, pass);
  };
  const Tensor tx = image_of(x, c.dtype, c.format), tdy = image_of(dy, c.dtype, c.format);
  same("y",
       block_sparse_conv2d(tx, sparse, c.kernel, c.options, bias.tensor(c.dtype, test_device())),
       y);
  same("dx", block_sparse_conv2d_backward_x(tdy, sparse, c.kernel, c.x, c.options),
       conv2d_dx_of(dy, w, c.x, c.options));
  same("dw", block_sparse_conv2d_backward_w(tx, tdy, sparse.layout, c.kernel, c.options),
       blocks_of_weight(conv2d_dw_of(x, dy, w.shape, c.options), c.mask));
}

Mask dense_mask(int rows, int columns, int block) { return {1, rows, columns, block, 1}; }

}  // namespace

TEST_CASE("block_sparse_conv2d of hundreds of random shapes, bit for bit") {
  const Reference draws = random_reference({20011}, 11, 0, 1);
  size_t at = 0;
  const auto draw = [&](int64_t low, int64_t high) {
    const double u = draws[at++ % draws.values.size()];
    return low +
           std::min(high - low, static_cast<int64_t>(u * static_cast<double>(high - low + 1)));
  };
  const int blocks[] = {8, 16, 32, 64, 128};
  const DType dtypes[] = {f32, f32, f64, f16, bf16};
  const double densities[] = {0, 0.1, 0.3, 0.6, 0.6, 1};
  int of_block[5] = {}, empty = 0;
  for (uint64_t i = 0; i < sampled<uint64_t>(1200); ++i) {
    const int64_t number = draw(0, 4);
    const int block = blocks[number];
    const int64_t most = block < 64 ? 3 : 2;
    const Extent2 kernel{draw(1, 4), draw(1, 3)};
    const auto rows = static_cast<int>(draw(1, most)), columns = static_cast<int>(draw(1, most));
    const auto taps = static_cast<int>(kernel.h * kernel.w);
    Case c{.mask = Mask::random(1, rows, taps * columns, block, densities[draw(0, 5)], i),
           .channels = int64_t{block} * columns,
           .kernel = kernel,
           .x = {}};
    Conv2dOptions& o = c.options;
    o.stride = {draw(1, 3), draw(1, 3)};
    o.dilation = {draw(1, 2), draw(1, 3)};
    o.padding = {draw(0, 2), draw(0, 2), draw(0, 2), draw(0, 2)};
    const auto least = [](int64_t filter, int64_t dilation, int64_t padding) {
      return std::max<int64_t>(dilation * (filter - 1) + 1 - padding, 1);
    };
    c.x = {draw(0, 9) == 0 ? 0 : draw(1, 3), c.channels,
           least(kernel.h, o.dilation.h, o.padding.top + o.padding.bottom) + draw(0, draw(0, 9)),
           least(kernel.w, o.dilation.w, o.padding.left + o.padding.right) + draw(0, draw(0, 9))};
    c.dtype = dtypes[draw(0, 4)];
    c.format =
        std::array{Format::rows, Format::channels, Format::gaps}[static_cast<size_t>(draw(0, 2))];
    if (c.products() > (block == 128 ? 1e6 : 2.5e5)) continue;
    ++of_block[number];
    empty += c.x[0] == 0;
    check_exact(c, i);
  }
  CHECK(of_block[0] + of_block[1] + of_block[2] + of_block[3] + of_block[4] > sampled(700));
  for (const int count : of_block) CHECK(count > sampled(70));
  CHECK(empty > sampled(60));
}

TEST_CASE("block_sparse_conv2d: rows, columns and places of the filter without blocks") {
  for (const int block : {8, 16, 64}) {
    Mask mask = dense_mask(3, 9 * 2, block);
    for (int column = 0; column < 18; ++column) mask.at(0, 1, column) = 0;
    for (int row = 0; row < 3; ++row) {
      for (int tap = 0; tap < 9; ++tap) mask.at(0, row, tap * 2 + 1) = 0;  // an input block
      mask.at(0, row, 2 * 4) = 0;                                          // the middle
    }
    for (const Conv2dOptions& o :
         {Conv2dOptions{.padding = {1, 1, 1, 1}},
          Conv2dOptions{.stride = {2, 3}, .padding = {1, 0, 1, 0}, .dilation = {1, 2}}})
      check_exact({.mask = mask,
                   .channels = 2 * block,
                   .kernel = {3, 3},
                   .x = {1, 2 * block, 5, 6},
                   .options = o},
                  static_cast<uint64_t>(block));
  }
}

TEST_CASE("block_sparse_conv2d: a dense layout is the dense convolution, forward and backward") {
  for (const int block : {8, 16, 32, 64, 128})
    for (const DType dtype : {f64, f32})
      for (const Conv2dOptions& o :
           {Conv2dOptions{}, Conv2dOptions{.stride = {2, 2}, .padding = {1, 1, 1, 1}},
            Conv2dOptions{.stride = {1, 3}, .padding = {2, 0, 0, 1}, .dilation = {2, 1}}}) {
        const Mask mask = dense_mask(2, 9, block);
        const Shape shape{2, block, 9, 8};
        const Reference x = whole(shape, 1, 3), values = whole(mask.values(), 2, 3);
        const Tensor in = channels_last(x.tensor(dtype, test_device()));
        const SparseTensor sparse{mask.layout(), values.tensor(dtype, test_device())};
        const Tensor w = dense_weight(values, mask, block, {3, 3}).tensor(dtype, test_device());
        const Tensor y = conv2d(in, w, o);
        const auto same = [](const Tensor& a, const Tensor& b) {
          CHECK(Reference::of(a).values == Reference::of(b).values);
        };
        same(block_sparse_conv2d(in, sparse, {3, 3}, o), y);
        const Tensor dy = channels_last(whole(y.shape(), 3, 3).tensor(dtype, test_device()));
        same(block_sparse_conv2d_backward_x(dy, sparse, {3, 3}, shape, o),
             conv2d_backward_x(dy, w, shape, o));
        const Tensor dw = conv2d_backward_w(in, dy, w.shape(), o);
        CHECK(Reference::of(block_sparse_conv2d_backward_w(in, dy, sparse.layout, {3, 3}, o))
                  .values == blocks_of_weight(Reference::of(dw), mask).values);
      }
}

TEST_CASE("block_sparse_conv2d: the first library's case, fewer images") {
  // Blocks of 16 at density .5; without input block 1, output block 1 and place (0, 0) of the
  // filter, but with all of output block 0.
  Mask mask = Mask::random(1, 4, 9 * 2, 16, 0.5, 9);
  for (int tap = 0; tap < 9; ++tap)
    for (int row = 0; row < 4; ++row)
      for (int in = 0; in < 2; ++in) {
        uint8_t& kept = mask.at(0, row, tap * 2 + in);
        if (row == 1 || in == 1 || tap == 0) kept = 0;
        if (row == 0) kept = 1;
      }
  check_exact({.mask = mask,
               .channels = 32,
               .kernel = {3, 3},
               .x = {3, 32, 27, 27},
               .options = {.stride = {2, 2}, .padding = {1, 1, 1, 1}}},
              5);
}

TEST_CASE("block_sparse_conv2d: layers of a WRN-22-2 at density .8, smaller images") {
  struct Layer {
    int64_t in, out, size, stride;
  };
  for (const Layer& layer : {Layer{32, 32, 16, 1}, Layer{32, 64, 16, 2}, Layer{64, 64, 8, 1},
                             Layer{64, 128, 8, 2}, Layer{128, 128, 4, 1}}) {
    CAPTURE(layer.in);
    CAPTURE(layer.out);
    const Mask mask = Mask::random(1, static_cast<int>(layer.out / 16),
                                   static_cast<int>(9 * layer.in / 16), 16, 0.8, 7);
    const Conv2dOptions o{.stride = {layer.stride, layer.stride}, .padding = {1, 1, 1, 1}};
    const Shape shape{2, layer.in, layer.size, layer.size};
    const auto rounded = [](const Reference& r) {
      return Reference::of(r.tensor(f32, Device::cpu()));
    };
    const Reference x = rounded(random_reference(shape, 1));
    const Reference values = rounded(random_reference(mask.values(), 2));
    const Reference w = dense_weight(values, mask, layer.in, {3, 3});
    const Reference y = conv2d_of(x, w, o), dy = rounded(random_reference(y.shape, 3));
    const Reference dx = conv2d_dx_of(dy, w, shape, o);
    const Reference dw = blocks_of_weight(conv2d_dw_of(x, dy, w.shape, o), mask);
    const SparseTensor sparse{mask.layout(), values.tensor(f32, test_device())};
    const auto on_device = [](const Reference& r) {
      return channels_last(r.tensor(f32, test_device()));
    };
    const auto close = [](const char* what, const Tensor& actual, const Reference& expected) {
      check_close(what, Reference::of(actual), expected, 1e-4 * largest(expected));
    };
    close("y", block_sparse_conv2d(on_device(x), sparse, {3, 3}, o), y);
    close("dx", block_sparse_conv2d_backward_x(on_device(dy), sparse, {3, 3}, shape, o), dx);
    close("dw",
          block_sparse_conv2d_backward_w(on_device(x), on_device(dy), sparse.layout, {3, 3}, o),
          dw);
  }
}

TEST_CASE("block_sparse_conv2d: gradients by differences") {
  const Mask mask = Mask::random(1, 2, 6, 8, 0.5, 3);
  const LayoutPtr layout = mask.layout();
  const auto variable = [](const Shape& shape, uint64_t seed) {
    return Variable(random_reference(shape, seed).tensor(f64, test_device()), true);
  };
  for (const Conv2dOptions& o :
       {Conv2dOptions{.padding = {1, 0, 1, 1}},
        Conv2dOptions{.stride = {2, 2}, .padding = {0, 1, 1, 0}, .dilation = {2, 1}}})
    for (const bool last : {false, true})
      gradcheck(
          [&](const std::vector<Variable>& v) {
            return block_sparse_conv2d(v[0], {layout, v[1]}, {3, 2}, v[2], o);
          },
          {last ? Variable(channels_last(variable({2, 8, 5, 4}, 1).data()), true)
                : variable({2, 8, 5, 4}, 1),
           variable(mask.values(), 2), variable({16}, 3)});
}

TEST_CASE("block_sparse_conv2d: the same bits each time, for any number of threads") {
  // More pixels than one part of the gradient of the weight has.
  const Mask mask = Mask::random(1, 3, 9 * 2, 16, 0.4, 4);
  const Shape shape{3, 32, 40, 40};
  const Conv2dOptions o{.padding = {1, 1, 1, 1}};
  const Tensor x = channels_last(random_reference(shape, 1).tensor(f32, test_device()));
  const SparseTensor w{mask.layout(),
                       random_reference(mask.values(), 2).tensor(f32, test_device())};
  const auto all = [&] {
    const Tensor y = block_sparse_conv2d(x, w, {3, 3}, o);
    return std::vector{y, block_sparse_conv2d_backward_x(y, w, {3, 3}, shape, o),
                       block_sparse_conv2d_backward_w(x, y, w.layout, {3, 3}, o)};
  };
  const int team = threads();
  const std::vector<Tensor> before = all(), again = all();
  set_threads(team == 1 ? 3 : 1);
  const std::vector<Tensor> after = all();
  set_threads(team);
  for (size_t i = 0; i < before.size(); ++i) {
    CHECK(same_bits(before[i], again[i]));
    CHECK(same_bits(before[i], after[i]));
  }
}

TEST_CASE("block_sparse_conv2d: 16 bits are summed in f32") {
  // 9 x 128 ones: sums in bf16 would stay at 256.
  const Mask mask = dense_mask(1, 9, 128);
  const Tensor x = ones({1, 128, 3, 3}, bf16, test_device());
  const SparseTensor w{mask.layout(), ones(mask.values(), bf16, test_device())};
  CHECK(Reference::of(block_sparse_conv2d(x, w, {3, 3})).values == std::vector<double>(128, 1152));
  const Tensor dy = ones({1, 128, 5, 5}, bf16, test_device());
  const Reference dx = Reference::of(
      block_sparse_conv2d_backward_x(dy, w, {3, 3}, {1, 128, 5, 5}, {.padding = {1, 1, 1, 1}}));
  CHECK(dx.at({0, 5, 2, 2}) == 1152);
  const Tensor wide = ones({8, 128, 16, 16}, bf16, test_device());
  const Tensor dw = block_sparse_conv2d_backward_w(
      wide, ones({8, 128, 16, 16}, bf16, test_device()), dense_mask(1, 1, 128).layout(), {1, 1});
  CHECK(Reference::of(dw).values == std::vector<double>(size_t{128} * 128, 2048));
}

TEST_CASE("block_sparse_conv2d: absent blocks never spread what is not finite") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  // Output blocks 0, 1 and 2 see input block 0, 1 and none, through all places of the filter.
  // On a GPU only the kernels for large blocks of 16 bits promise this.
  const bool gpu = test_device().is_cuda();
  const int block = gpu ? 64 : 16;
  Mask mask(1, 3, 18, block);
  for (int tap = 0; tap < 9; ++tap) mask.at(0, 0, tap * 2) = mask.at(0, 1, tap * 2 + 1) = 1;
  const Shape shape{2, 2 * block, 5, 5};
  const Conv2dOptions o{.padding = {1, 1, 1, 1}};
  const Reference w = random_reference(mask.values(), 1);
  for (const DType dtype : gpu ? std::vector{bf16} : std::vector{f64, f32, bf16}) {
    const SparseTensor sparse{mask.layout(), w.tensor(dtype, test_device())};
    Reference x = random_reference(shape, 2), dy = random_reference({2, 3 * block, 5, 5}, 3);
    for (int64_t c = block; c < 2 * block; ++c)
      for (int64_t i = 0; i < 5; ++i) x.at({0, c, i, i}) = nan;
    for (int64_t k = block; k < 3 * block; ++k) dy.at({1, k, 2, 2}) = nan;
    const Tensor tx = channels_last(x.tensor(dtype, test_device()));
    const Tensor tdy = channels_last(dy.tensor(dtype, test_device()));
    const Reference y = Reference::of(block_sparse_conv2d(tx, sparse, {3, 3}, o));
    const Reference dx =
        Reference::of(block_sparse_conv2d_backward_x(tdy, sparse, {3, 3}, shape, o));
    const auto nans = [&](const Reference& r, int64_t n, int64_t first, int64_t last) {
      int64_t count = 0;
      for (int64_t c = first; c < last; ++c)
        for (int64_t i = 0; i < 25; ++i) count += std::isnan(r.at({n, c, i / 5, i % 5}));
      return count;
    };
    CHECK(nans(y, 0, 0, block) == 0);
    CHECK(nans(y, 0, block, 2 * block) > 0);
    CHECK(nans(y, 0, 2 * block, 3 * block) == 0);
    CHECK(nans(y, 1, 0, 3 * block) == 0);
    CHECK(nans(dx, 1, 0, block) == 0);
    CHECK(nans(dx, 1, block, 2 * block) == 9 * block);
    CHECK(nans(dx, 0, 0, 2 * block) == 0);
    const Reference dw =
        Reference::of(block_sparse_conv2d_backward_w(tx, tdy, sparse.layout, {3, 3}, o));
    for (size_t i = 0; i < dw.values.size(); ++i)  // the first 9 blocks are output block 0's
      CHECK(std::isnan(dw[i]) == (i >= size_t{9} * block * block));
  }
}
