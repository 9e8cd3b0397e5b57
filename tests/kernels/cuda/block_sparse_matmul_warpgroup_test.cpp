#include <bs/kernels/binary.h>
#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_warpgroup.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/random.h>
#include <bs/lib/cuda/jit_cache.h>
#include <bs/tests/kernels/block_sparse_exact_cases.h>
#include <bs/tests/kernels/cuda/epilogue_of_all_kinds.h>
#include <bs/tests/kernels/cuda/hopper.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/environment.h>
#include <bs/tests/support/kernel_sweep.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <vector>

using namespace bs;
using namespace bs::cuda;

TEST_CASE("block-sparse products: the kernels of wgmma compile and keep to registers") {
  bs::test::check_kernels(all_warpgroup_kernels(),
                          [](const WarpgroupKernel& k) { return source_of(k); }, 89, {90});
}

namespace {

jit::Source source_of_all_kinds(WarpgroupKernel k) {
  k.staged = 2;
  const bs::GemmEpilogue e = bs::test::epilogue_of_all_kinds(bs::element_of(k.dtype));
  return source_of(k, &e);
}

jit::Source reducing_source(const WarpgroupKernel& k) {
  const bs::GemmEpilogue e = bs::test::epilogue_that_reduces(bs::element_of(k.dtype));
  return source_of(k, &e);
}

}  // namespace

TEST_CASE("block-sparse products: the kernels of wgmma compile with an epilogue of all kinds") {
  bs::test::check_kernels(all_warpgroup_kernels(true), source_of_all_kinds, 311, {90});
  // It once did not keep to registers.
  const std::vector<WarpgroupKernel> widest{{{true, bs::bf16, 32, true, true}, 256, true}};
  bs::test::check_kernels(widest, source_of_all_kinds, 1, {90});
}

TEST_CASE("block-sparse products: the kernels of wgmma compile with reductions") {
  bs::test::check_kernels(all_warpgroup_kernels(true), reducing_source, 293, {90});
  // Of each kind that once did not keep to registers.
  const std::vector<WarpgroupKernel> widest{{{false, bs::bf16, 16, true, false}, 256},
                                            {{false, bs::bf16, 32, true, false, true}, 256, true},
                                            {{false, bs::bf16, 32, true, true}, 256, true},
                                            {{true, bs::bf16, 128, true, true}, 256}};
  bs::test::check_kernels(widest, reducing_source, 1, {90});
}

TEST_CASE("block-sparse products: the kernels of wgmma compile with bias and gelu") {
  bs::test::check_kernels(all_warpgroup_kernels(true),
                          [](const WarpgroupKernel& k) {
                            const bs::GemmEpilogue e =
                                bs::test::bias_and_gelu(bs::element_of(k.dtype));
                            return source_of(k, &e);
                          },
                          179, {90});
}

TEST_CASE("block-sparse products: tiles of dsd are narrow where there is little work" *
          doctest::skip(!test::runs_wgmma())) {
  const Device device = test::test_device();
  using namespace bs::epilogue;
  // A kernel is recorded when a process first asks for it; no other test has these numbers.
  const struct {
    int64_t batch, n;
    double factor;
    const char* name;
  } cases[] = {
      {1, 256, 0.171875, "_n64_"}, {20, 128, 0.203125, "_n128_"}, {1, 8448, 0.234375, "_n256_"}};
  const test::Mask mask = test::Mask::random(1, 64, 64, 32, 0.1, 3);
  const auto whole = [&](const Shape& shape) { return randint(-1, 2, shape, bf16, device); };
  const SparseTensor s{mask.layout(), whole(mask.values())};
  for (const auto& one : cases) {
    CAPTURE(one.name);
    const ProductOptions options{.epilogue = GemmEpilogue(accumulator() * one.factor)};
    const test::Scratch scratch;
    const test::Environment variable("BS_JIT_RECORD", scratch / "kernels");
    const Tensor right = whole({one.batch, mask.width(), one.n});
    const Tensor want = matmul(cast(to_dense(s), f32), cast(right, f32));
    const Tensor got = dsd(s, right, {}, options);
    CHECK(test::same_bits(got, cast(mul(want, one.factor), bf16)));
    int found = 0;
    for (const jit::Recorded& kernel : jit::read_recorded(scratch / "kernels", device_headers())) {
      if (kernel.source.name.find("dsd_wgmma_") == std::string::npos) continue;
      CAPTURE(kernel.source.name);
      CHECK(kernel.source.name.find(one.name) != std::string::npos);
      ++found;
    }
    CHECK(found == 1);
  }
}
