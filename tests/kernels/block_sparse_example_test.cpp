// The epilogue of docs/block_sparse.md.
#include <bs/kernels/activation.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

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
}
