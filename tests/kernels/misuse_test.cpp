// Arguments of other calls, of no call and of no size: an error, never memory that is not ours. Run
// under AddressSanitizer too.
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/lstm.h>
#include <bs/kernels/norm.h>
#include <bs/lib/patterns.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

constexpr int64_t huge = int64_t{1} << 40;

Tensor some(const Shape& shape, DType dtype = f32) { return ones(shape, dtype, test_device()); }

}  // namespace

TEST_CASE("misuse: gradients of sparse values of the wrong shape") {
  const LayoutPtr layout = patterns::dense({.rows = 2, .block = 8});
  const Tensor dc = some({16, 4}), b = some({16, 4});
  CHECK(dsd_backward_s(dc, b, layout, {4, 8, 8}).shape() == Shape{4, 8, 8});
  CHECK_THROWS_WITH_AS(dsd_backward_s(dc, b, layout, {1, 8, 8}),
                       "dsd_backward_s: values [1, 8, 8] do not fit the layout, which asks for "
                       "[..., 4, 8, 8]",
                       Error);
  CHECK_THROWS_AS(dsd_backward_s(dc, b, layout, {4, 8}), Error);
  CHECK_THROWS_AS(dsd_backward_s(dc, b, layout, {}), Error);
  CHECK_THROWS_AS(dsd_backward_s(dc, b, nullptr, {4, 8, 8}), Error);
  CHECK_THROWS_AS(dsd_backward_s(some({16}), b, layout, {4, 8, 8}), Error);
  const Tensor a = some({4, 16}), da = some({4, 16});
  CHECK(dds_backward_s(a, da, layout, {4, 8, 8}).shape() == Shape{4, 8, 8});
  CHECK_THROWS_AS(dds_backward_s(a, da, layout, {4, 4, 4}), Error);
  CHECK_THROWS_AS(dds_backward_s(a, da, nullptr, {4, 8, 8}), Error);
  CHECK_THROWS_AS(dds_backward_s(a, some({}), layout, {4, 8, 8}), Error);
}

TEST_CASE("misuse: gradients of dense operands without a layout, or of no matrix") {
  const LayoutPtr layout = patterns::dense({.rows = 2, .block = 8});
  const SparseTensor s{layout, some({4, 8, 8})}, none{nullptr, some({4, 8, 8})};
  const Tensor x = some({16, 16});
  for (const Shape& shape : {Shape{16}, Shape{}, Shape{16, 3}}) {
    CHECK_THROWS_AS(sdd_backward_a(s, x, shape), Error);
    CHECK_THROWS_AS(sdd_backward_b(x, s, shape), Error);
    CHECK_THROWS_AS(dsd_backward_b(s, x, shape), Error);
    CHECK_THROWS_AS(dds_backward_a(x, s, shape), Error);
  }
  CHECK_THROWS_AS(sdd_backward_a(none, x, {16, 16}), Error);
  CHECK_THROWS_AS(sdd_backward_b(x, none, {16, 16}), Error);
  CHECK_THROWS_AS(dsd_backward_b(none, x, {16, 16}), Error);
  CHECK_THROWS_AS(dds_backward_a(x, none, {16, 16}), Error);
  CHECK_THROWS_AS(sdd(x, x, nullptr), Error);
}

TEST_CASE("misuse: statistics of another norm") {
  const Tensor x = some({4, 6}), dy = some({4, 6}), weight = some({6});
  const Tensor right = some({4});
  CHECK(layer_norm_backward(x, weight, right, right, dy, true).dx.shape() == x.shape());
  for (const Tensor& wrong : {Tensor(), some({3}), some({6}), some({}), some({4}, f64)}) {
    CHECK_THROWS_AS(layer_norm_backward(x, weight, right, wrong, dy, true), Error);
    CHECK_THROWS_AS(layer_norm_backward(x, weight, wrong, right, dy, true), Error);
    CHECK_THROWS_AS(rms_norm_backward(x, weight, wrong, dy), Error);
  }
  CHECK_THROWS_WITH_AS(rms_norm_backward(x, weight, Tensor(), dy),
                       "rms_norm_backward: rstd is undefined", Error);
}

TEST_CASE("misuse: an LSTM's results of another call") {
  const auto direction = [](int64_t cells, int64_t in) {
    return LSTMDirection{.weights = {.ih = some({4 * cells, in}), .hh = some({4 * cells, cells})}};
  };
  const LSTMDirection d = direction(8, 4);
  const Tensor x = some({5, 3, 4});
  const auto right = lstm(x, {&d, 1});
  const LSTMUpstream up{};
  CHECK(lstm_backward(x, {&d, 1}, {}, right, {&up, 1}).x.shape() == x.shape());
  const LSTMDirection wide = direction(16, 4);
  const auto shorter = lstm(some({2, 3, 4}), {&d, 1}), fewer = lstm(some({5, 1, 4}), {&d, 1}),
             wider = lstm(x, {&wide, 1});
  for (const auto* wrong : {&shorter, &fewer, &wider})
    CHECK_THROWS_AS(lstm_backward(x, {&d, 1}, {}, *wrong, {&up, 1}), Error);
  const LSTMResult empty;
  CHECK_THROWS_AS(lstm_backward(x, {&d, 1}, {}, {&empty, 1}, {&up, 1}), Error);
  LSTMResult mixed = right.front();
  mixed.gates = shorter.front().gates;
  CHECK_THROWS_AS(lstm_backward(x, {&d, 1}, {}, {&mixed, 1}, {&up, 1}), Error);
}

TEST_CASE("misuse: shapes that nobody could count") {
  const Tensor x = some({4});
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  CHECK_THROWS_AS(Tensor::empty({huge, huge}, f32), Error);
  CHECK_THROWS_AS(some({1, 1}).expand({huge, huge}), Error);
  CHECK(some({1, 1, 0}).expand({huge, huge, 0}).numel() == 0);
  CHECK_THROWS_AS(x.as_strided({huge, huge}, {huge, huge}, 0), Error);
  CHECK_THROWS_AS(x.as_strided({3}, {most}, 0), Error);
  CHECK_THROWS_AS(x.as_strided({3}, {-most}, most), Error);
  CHECK_THROWS_AS(x.as_strided({1}, {1}, most), Error);
  CHECK_THROWS_AS(x.view({huge, huge}), Error);
  float one = 1;
  CHECK_THROWS_AS(Tensor::from_blob(nullptr, {huge, huge}, f32), Error);
  CHECK_THROWS_AS(Tensor::from_blob(nullptr, {huge}, f32), Error);
  CHECK_THROWS_AS(Tensor::from_blob(&one, {huge, huge}, f32), Error);
  CHECK_THROWS_AS(Tensor::from_blob(&one, {-1}, f32), Error);
  CHECK_THROWS_WITH_AS(patterns::stack_heads(std::vector<LayoutPtr>{nullptr}),
                       "stack_heads: layout 0 of 1 is null", Error);
}
