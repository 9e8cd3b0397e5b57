#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_tiled.h>
#include <bs/tests/kernels/cuda/epilogue_of_all_kinds.h>
#include <bs/tests/support/kernel_sweep.h>
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

using namespace bs;
using namespace bs::cuda;

TEST_CASE("block-sparse products: the kernels of mma.sync compile and keep to registers") {
  test::check_kernels(
      all_tiled_kernels(), [](const TiledKernel& k) { return source_of(k); }, 331);
}

TEST_CASE("block-sparse products: the kernels of mma.sync compile with an epilogue of all kinds") {
  test::check_kernels(
      all_tiled_kernels(),
      [](TiledKernel k) {
        k.c_by_columns = !k.sampled && k.block % 3 == 2;  // 8, 32, 128
        const GemmEpilogue e = test::epilogue_of_all_kinds(element_of(k.dtype));
        return source_of(k, &e);
      },
      661);
}

TEST_CASE("block-sparse products: the kernels of mma.sync compile with reductions") {
  test::check_kernels(
      all_tiled_kernels(),
      [](TiledKernel k) {
        k.c_by_columns = !k.sampled && k.block % 3 == 1;  // 16, 64
        const GemmEpilogue e = test::epilogue_that_reduces(element_of(k.dtype));
        return source_of(k, &e);
      },
      757);
}

TEST_CASE("block-sparse products: the widest tiles of mma.sync keep to registers") {
  struct One {
    TiledKernel kernel;
    int capability;
  };
  // Of each kind that once did not: sampled, dtype, block, both orders, tf32, columns.
  const One widest[] = {
      {{{true, bf16, 64, true, true}, false, 256}, 80},
      {{{true, f32, 64, true, true}, true, 256}, 80},
      {{{false, f64, 64, true, false}, false, 128}, 90},
      {{{true, f64, 128, false, false}, false, 128}, 90},
      {{{true, f32, 64, true, true}, false, 128}, 90},
      {{{false, f16, 128, false, false}, false, 128}, 100},
      {{{true, f16, 64, false, true}, false, 256}, 100},
      {{{true, bf16, 64, true, true}, false, 128}, 100},
      {{{false, f32, 64, true, false}, true, 256}, 100},
      {{{true, f32, 128, false, true}, true, 128}, 100},
      {{{false, f64, 128, true, false}, false, 128}, 100},
  };
  for (const int capability : {80, 90, 100}) {
    if (!jit::compiles_for(capability)) continue;
    std::vector<TiledKernel> kernels;
    for (const One& one : widest)
      if (one.capability == capability) kernels.push_back(one.kernel);
    test::check_kernels(kernels,
                        [](TiledKernel k) {
                          k.c_by_columns = !k.sampled && k.dtype == f64;
                          const GemmEpilogue e =
                              test::epilogue_of_all_kinds_that_reduces(element_of(k.dtype));
                          return source_of(k, &e);
                        },
                        1, {capability});
  }
}

TEST_CASE("block-sparse products: the text of a kernel is what it was, and its name its own") {
  TiledKernel kernel{{.sampled = true, .dtype = bf16, .block = 32, .a_along_k = true}};
  kernel.cols = 256;
  // 32 x 256 of the result, 32 of the depth in each of 4 stages of shared memory.
  CHECK(source_of(kernel).code ==
        R"(#include <bs/kernels/cuda/device/block_sparse/block_sparse_matmul.cuh>

using namespace bs::cuda::device;
using Product = TileProduct<__nv_bfloat16, 32, 256, 32, 4, 1, 4, true, false, true>;
static_assert(Product::threads == 128 && Product::shared_bytes <= 73728);

extern "C" __global__ void __launch_bounds__(Product::threads, 2)
    sdd_bf16_b32_kn_n256(const __grid_constant__ SddArguments arguments) {
  sdd_tile<Product, 32>(arguments);
}
)");
  std::set<std::string> names;
  const std::vector<TiledKernel> all = all_tiled_kernels();
  for (const TiledKernel& one : all) names.insert(source_of(one).name);
  CHECK(names.size() == all.size());
}
