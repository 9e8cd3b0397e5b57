// The epilogues of docs/block_sparse.md.
#include <bs/kernels/activation.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace bs;
using namespace bs::test;

namespace {

Tensor layer(const Tensor& x, const SparseTensor& w, const Tensor& bias, const Tensor& before) {
  using namespace bs::epilogue;
  const Value t = accumulator() + row("bias", Element::f16);
  const Tensor y = dds(x, w, {.b = true},
                       {.epilogue = GemmEpilogue(gelu_tanh(t)).store("t", t, Element::f16),
                        .tensors = {{"bias", bias}, {"t", before}}});
  return y;
}

SparseTensor reduced(const Tensor& q, const Tensor& k, const LayoutPtr& layout, const Tensor& most,
                     const Tensor& total) {
  using namespace bs::epilogue;
  const Value score = scalar("scale") * accumulator();
  const GemmEpilogue reducing =
      GemmEpilogue(score).row_max("most", score).row_sum("total", exp(score));
  const SparseTensor scores = sdd(q, k, layout, {.b = true},
                                  {.epilogue = reducing,
                                   .tensors = {{"most", most}, {"total", total}},
                                   .scalars = {{"scale", 0.125}}});
  return scores;
}

}  // namespace

TEST_CASE("block-sparse products: the example of the documentation") {
  const Mask mask = Mask::random(1, 3, 4, 16, 0.5, 1);
  const auto drawn = [](const Shape& shape, uint64_t seed) {
    return random_reference(shape, seed).tensor(f16, test_device());
  };
  const SparseTensor w{mask.layout(), drawn(mask.values(), 2)};
  const Tensor x = drawn({40, 64}, 3), bias = drawn({48}, 4);
  const Tensor before = Tensor::empty({40, 48}, f16, test_device());
  const Tensor y = layer(x, w, bias, before);
  const Tensor sums = dds(x, w, {.b = true}) + bias;
  const double tolerance = 16 * epsilon(f16) * largest(Reference::of(sums));
  check_close("before", Reference::of(before), Reference::of(sums), tolerance);
  check_close("y", Reference::of(y), Reference::of(gelu(sums, Gelu::tanh)), tolerance);

  const Tensor q = drawn({48, 24}, 5), k = drawn({64, 24}, 6);
  const Tensor most = Tensor::empty({48}, f32, test_device());
  const Tensor total = Tensor::empty({48}, f32, test_device());
  const Reference scores = densify(Reference::of(reduced(q, k, mask.layout(), most, total).values),
                                   mask, -1000);  // exp: 0
  Reference maxima({48}), totals({48});
  for (int64_t i = 0; i < 48; ++i) {
    maxima.at({i}) = -1000;
    for (int64_t j = 0; j < 64; ++j) {
      maxima.at({i}) = std::max(maxima.at({i}), scores.at({i, j}));
      totals.at({i}) += std::exp(scores.at({i, j}));
    }
  }
  // Scores were rounded to f16 behind the reductions.
  check_close("most", Reference::of(most), maxima, 4 * epsilon(f16));
  check_close("total", Reference::of(total), totals, 4 * epsilon(f16) * 64 * std::exp(1.0));
}
