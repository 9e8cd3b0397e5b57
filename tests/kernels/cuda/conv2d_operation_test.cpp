#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/tests/kernels/conv2d_cases.h>
#include <bs/tests/support/kernel_sweep.h>
#include <doctest/doctest.h>

#include <functional>

using namespace bs;
using namespace bs::cuda;
using namespace bs::test;

namespace {

/// Those of the examples, of each instruction, and with plain and vector loads of each size.
std::vector<Conv2dDescription> descriptions() {
  constexpr Element f16e = Element::f16, f32e = Element::f32, f64e = Element::f64;
  using enum MathOperation;
  const MathInstruction all[] = {math(f16e, f32e),
                                 math(f16e, f16e),
                                 math(f32e, f32e),
                                 math(f32e, f32e, OpClass::tensor_op, fast_bf16),
                                 math(f32e, f32e, OpClass::tensor_op, fast_f32),
                                 math(f32e, f32e, OpClass::simt),
                                 math(f64e, f64e, OpClass::simt),
                                 math(f64e, f64e)};
  std::vector<Conv2dDescription> out;
  for (const Conv2dCase& c : conv2d_examples()) out.push_back(c.description);
  for (const Conv2dKind kind : {Conv2dKind::fprop, Conv2dKind::dgrad, Conv2dKind::wgrad})
    for (const MathInstruction& one : all)
      for (int alignment = 1; alignment * size_of(one.a) <= 16; alignment *= 2)
        for (const SplitK split : {SplitK::none, SplitK::serial, SplitK::parallel}) {
          out.push_back(describe(kind, Conv2dIterator::analytic, one, {64, 64, 32}, {2, 2, 1},
                                 alignment, one.a));
          out.back().split_k = split;
        }
  // Gradients of inputs on warpgroups, of any stride and of 1, row by row and by the copy engine.
  for (const Element e : {f16e, Element::bf16})
    for (const StrideSupport stride : {StrideSupport::unit, StrideSupport::strided})
      for (const SplitK split : {SplitK::none, SplitK::serial, SplitK::parallel}) {
        const MathInstruction math{{64, 64, 16}, e, e, f32e, OpClass::warpgroup, multiply_add};
        out.push_back(describe(Conv2dKind::dgrad, Conv2dIterator::optimized, math, {128, 64, 64},
                               {8, 1, 1}, 8, e));
        out.back().d.alignment = 8;
        out.back().stride = stride;
        out.back().split_k = split;
      }
  return out;
}

jit::Source source_of(const Conv2dDescription& d) {
  return {conv2d_name(d.kind, gemm_of(d), loads_of(d)), Conv2dOperation(d).to_source(),
          device_headers()};
}

}  // namespace

TEST_CASE("conv2d_operation: descriptions compile without spills") {
  const auto is_warpgroup = [](const Conv2dDescription& d) {
    return d.tile.math.op_class == OpClass::warpgroup;
  };
  std::vector<Conv2dDescription> single = descriptions(), groups = single;
  std::erase_if(single, is_warpgroup);
  std::erase_if(groups, std::not_fn(is_warpgroup));
  check_kernels(single, source_of, 179);
  check_kernels(groups, source_of, 7, {90});
}
