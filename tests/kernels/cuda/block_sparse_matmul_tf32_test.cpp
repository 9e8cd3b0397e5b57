#include <bs/kernels/binary.h>
#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_tf32.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/kernels/math_mode.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/random.h>
#include <bs/kernels/settings.h>
#include <bs/lib/cuda/jit_cache.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/patterns.h>
#include <bs/tests/kernels/block_sparse_exact_cases.h>
#include <bs/tests/kernels/cuda/epilogue_of_all_kinds.h>
#include <bs/tests/kernels/cuda/hopper.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/environment.h>
#include <bs/tests/support/kernel_sweep.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <algorithm>

using namespace bs;
using namespace bs::cuda;

namespace {

void check_with(const GemmEpilogue& epilogue, int staged, size_t share) {
  test::check_kernels(all_tf32_kernels(true),
                      [&](Tf32Kernel k) {
                        k.staged = staged;
                        return source_of(k, &epilogue);
                      },
                      share, {90});
}

}  // namespace

TEST_CASE("block-sparse products: the f32 kernels of wgmma compile and keep to registers") {
  test::check_kernels(all_tf32_kernels(), [](const Tf32Kernel& k) { return source_of(k); }, 37,
                      {90});
}

TEST_CASE("block-sparse products: the f32 kernels of wgmma compile with epilogues") {
  check_with(test::epilogue_of_all_kinds(Element::f32), 2, 109);
  check_with(test::epilogue_that_reduces(Element::f32), 1, 89);
  check_with(test::bias_and_gelu(Element::f32), 1, 97);
}

TEST_CASE("block-sparse products: f32 with an epilogue goes to wgmma" *
          doctest::skip(!test::runs_wgmma())) {
  const Device device = test::test_device();
  using namespace bs::epilogue;
  // A kernel is recorded when a process first asks for it; no other test has this number.
  const Value t = accumulator() * 0.3125;
  const ProductOptions options{.epilogue = GemmEpilogue(t)};
  const test::Scratch scratch;
  const test::Environment variables("BS_JIT_RECORD", scratch / "kernels");
  const SettingsGuard always({.gathered_products = true});
  for (const int block : {32, 64, 128})
    for (const bool tf32 : {false, true}) {
      const TF32Guard guard(tf32);
      const int side = 256 / std::min(block, 64);
      const LayoutPtr layout = patterns::dense({.rows = side, .cols = side, .block = block});
      const Tensor x = Tensor::empty({side * block, side * block}, f32, device);
      const SparseTensor s{layout, Tensor::empty({side * side, block, block}, f32, device)};
      if (block > 32) sdd(x, x, layout, {}, options);
      dsd(s, x, {}, options);
      dds(x, s, {}, options);
    }
  int epilogues = 0;
  for (const jit::Recorded& one : jit::read_recorded(scratch / "kernels", device_headers())) {
    CAPTURE(one.source.name);
    if (one.source.name.find("_epilogue") == std::string::npos) continue;
    ++epilogues;
    CHECK(one.source.name.find("_wgmma_") != std::string::npos);
  }
  CHECK(epilogues == 16);
}

TEST_CASE("block-sparse products: pairs of f32 rows that are alike are gathered" *
          doctest::skip(!test::runs_wgmma())) {
  const Device device = test::test_device();
  using namespace bs::epilogue;
  const Value t = accumulator() * 0.4375;  // only this test's, see above
  const ProductOptions options{.epilogue = GemmEpilogue(t)};
  const test::Scratch scratch;
  const test::Environment variables("BS_JIT_RECORD", scratch / "kernels");
  const SettingsGuard always({.gathered_products = true});
  const test::Mask mask = test::alike_rows(1, 62, 59, 4, 32);
  const auto whole = [&](const Shape& shape) { return randint(-1, 2, shape, f32, device); };
  const SparseTensor s{mask.layout(), whole(mask.values())};
  const Tensor dense = to_dense(s);
  for (const bool tf32 : {false, true}) {
    const TF32Guard guard(tf32);
    const Tensor right = whole({mask.width(), 260}), left = whole({260, mask.height()});
    CHECK(test::same_bits(dsd(s, right, {}, options), mul(matmul(dense, right), 0.4375)));
    CHECK(test::same_bits(dds(left, s, {}, options), mul(matmul(left, dense), 0.4375)));
  }
  int gathered = 0;
  for (const jit::Recorded& one : jit::read_recorded(scratch / "kernels", device_headers())) {
    CAPTURE(one.source.name);
    if (one.source.name.find("_epilogue") == std::string::npos) continue;
    ++gathered;
    CHECK(one.source.name.find("_gathered_") != std::string::npos);
  }
  CHECK(gathered == 4);
}
