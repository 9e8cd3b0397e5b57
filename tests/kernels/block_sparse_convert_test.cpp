#include <bs/autograd/block_sparse_convert.h>
#include <bs/kernels/block_sparse_conv2d.h>
#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/copy.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

void check_conversions(const Mask& mask, const Shape& lead) {
  const LayoutPtr layout = mask.layout();
  check_op({.name = "to_dense",
            .inputs = {mask.values(lead)},
            .op =
                [&](const Variables& v) {
                  return to_dense(SparseVariable{layout, v[0]});
                },
            .reference = [&](const References& in) { return densify(in[0], mask); },
            .steps = 0});
  check_op({.name = "to_sparse",
            .inputs = {mask.dense(lead, mask.height(), mask.width())},
            .op = [&](const Variables& v) { return to_sparse(v[0], layout).values; },
            .reference = [&](const References& in) { return sparsify(in[0], mask); },
            .steps = 0});
}

}  // namespace

TEST_CASE("block-sparse conversion") {
  for (int block : {8, 16, 32, 64, 128})
    check_conversions(Mask::random(1, 2, 3, block, 0.5, 1), {});
  for (int heads : {1, 2})
    for (const Shape& lead : {Shape{}, Shape{3}, Shape{2, 3}, Shape{0}})
      check_conversions(Mask::random(heads, 3, 2, 8, 0.5, 2), lead);
  for (const Mask& mask : {Mask(2, 2, 3, 8), Mask(1, 2, 3, 8, 1), Mask(1, 0, 3, 8)})
    check_conversions(mask, {2});
  for (const double density : {0.1, 0.8}) {
    Mask mask = Mask::random(2, 5, 9, 16, density, 7);
    for (int col = 0; col < mask.cols; ++col) mask.at(1, 2, col) = 1, mask.at(0, 3, col) = 0;
    check_conversions(mask, {3});
  }
}

TEST_CASE("block-sparse conversion reads views, and brings values back as they were") {
  const Mask mask = Mask::random(2, 4, 3, 16, 0.4, 3);
  const LayoutPtr layout = mask.layout();
  const Reference x = random_reference({2, 48, 64}, 4);
  const Tensor view = x.tensor(f32, test_device()).transpose(1, 2);
  CHECK(Reference::of(to_sparse(view, layout).values).values ==
        sparsify(Reference::of(view), mask).values);
  const Tensor values = random_reference(mask.values({5}), 5).tensor(bf16, test_device());
  const SparseTensor back = to_sparse(to_dense(SparseTensor{layout, values}), layout);
  CHECK(Reference::of(back.values).values == Reference::of(values).values);
  // A tensor that begins off the boundary of 16 bytes.
  const Tensor shifted = random_reference({2 * 64 * 48 + 1}, 6).tensor(f16, test_device());
  const Tensor off = shifted.slice(0, 1, 2 * 64 * 48 + 1).view({2, 64, 48});
  CHECK(Reference::of(to_sparse(off, layout).values).values ==
        sparsify(Reference::of(off), mask).values);
}

TEST_CASE("block-sparse conversion refuses what does not fit") {
  const LayoutPtr layout = Mask(3, 2, 4, 8, 1).layout();
  CHECK_THROWS_WITH_AS(to_sparse(Tensor::empty({16, 32}, f32), layout),
                       "to_sparse: [16, 32] does not end in the [3, 16, 32] of the layout, "
                       "2 x 4 blocks of 8",
                       Error);
  CHECK_THROWS_WITH_AS(to_dense(SparseTensor{layout, Tensor::empty({23, 8, 8}, f32)}),
                       "to_dense: values [23, 8, 8] do not fit the layout, which asks for "
                       "[..., 24, 8, 8]",
                       Error);
  CHECK_THROWS_WITH_AS(to_sparse(Tensor::empty({3, 16, 32}, i64), layout),
                       "to_sparse: dtype i64 is not supported; expected f64, f32, f16 or bf16",
                       Error);
}

TEST_CASE("relayout keeps the blocks that both layouts have") {
  const Mask patterns[] = {Mask::random(2, 5, 4, 8, .5, 3), Mask::random(2, 5, 4, 8, .6, 4),
                           Mask(2, 5, 4, 8), Mask(2, 5, 4, 8, 1)};
  for (const Mask& from : patterns)
    for (const Mask& to : patterns) {
      const Reference values = random_reference(from.values(), 5);
      const Reference expected = sparsify(densify(values, from), to);
      for (const DType dtype : {f64, f32, f16, bf16, i32}) {
        const Tensor x = values.tensor(dtype, test_device());
        const Reference kept = Reference::of(expected.tensor(dtype, test_device()));
        CHECK(Reference::of(relayout(x, from.layout(), to.layout())).values == kept.values);
        const Tensor turned = clone(x.transpose(1, 2)).transpose(1, 2);
        CHECK(Reference::of(relayout(turned, from.layout(), to.layout())).values == kept.values);
      }
    }
  const Mask large = Mask::random(1, 2, 3, 128, .6, 6), other = Mask::random(1, 2, 3, 128, .6, 7);
  const Reference values = random_reference(large.values(), 8);
  const Tensor room = Tensor::empty({values.shape.product() + 1}, f32, test_device());
  const Tensor x = room.slice(0, 1, room.numel()).view(values.shape);  // not aligned
  copy(values.tensor(f32, test_device()), x);
  CHECK(Reference::of(relayout(x, large.layout(), other.layout())).values ==
        sparsify(densify(Reference::of(x), large), other).values);
  CHECK_THROWS_WITH_AS(relayout(x, large.layout(), patterns[0].layout()),
                       "relayout: two layouts of one size are expected", Error);
}
