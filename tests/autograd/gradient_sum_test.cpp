#include <bs/autograd/binary.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/lib/memory.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

using namespace bs;

namespace {

/// y = x, whose gradient comes dense in the order of `axes`.
Variable passed(const Variable& x, const Dims& axes) {
  return tape().record(
      "passed", {x}, x.data(),
      [axes](const Tensor& dy) {
        Dims back = axes;
        for (int i = 0; i < axes.rank(); ++i) back[static_cast<int>(axes[i])] = i;
        Tensor dx = Tensor::empty(dy.permute(axes).shape(), dy.dtype(), dy.device());
        copy(dy.permute(axes), dx);
        return Grads{dx.permute(back)};
      },
      GradientOrder::any);
}

/// Tensors that a backward through so many uses of x makes; also checks the sum.
int64_t made(int uses, const Dims& axes) {
  const Variable x(full({2, 3, 4}, 2.0, f32, test::test_device()), true);
  Variable total = passed(x, axes);
  for (int i = 1; i < uses; ++i) total = total + passed(x, axes);
  const Tensor dy = full(x.shape(), 1.5, f32, x.device());
  const int64_t before = memory_statistics(x.device()).allocations;
  total.backward(dy);
  const int64_t count = memory_statistics(x.device()).allocations - before;
  const Tensor sum = x.grad().to(Device::cpu());
  for (int64_t i = 0; i < sum.numel(); ++i) CHECK(sum.data<float>()[i] == 1.5 * uses);
  return count;
}

}  // namespace

TEST_CASE("gradient sums: each part is added in place, in whichever order its axes lie") {
  for (const Dims& axes : {Dims{0, 1, 2}, Dims{0, 2, 1}, Dims{2, 0, 1}}) {
    const int64_t one_more = made(8, axes) - made(7, axes);
    CHECK(one_more == 1);  // the part itself
  }
}
