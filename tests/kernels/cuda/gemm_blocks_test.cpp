// Dense products of which only blocks that exist are stored, in whole numbers.
#include <bs/kernels/cuda/block_sparse/block_sparse_numbers.h>
#include <bs/kernels/cuda/block_sparse/gemm_blocks.h>
#include <bs/kernels/random.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

#include <cmath>

using namespace bs;
using namespace bs::cuda;
using namespace bs::test;

namespace {

/// Asked before main() finds out that there is no GPU.
bool hopper() {
  return test_device().is_cuda() && cuda_available() &&
         device_properties(test_device()).capability == 90;
}

/// Whole numbers from -1 to 1, as they lie in memory: `turned` columns first, and with `beside`
/// elements that are none of the matrix at the end of each line.
struct Whole {
  Reference reference;
  Tensor tensor;

  Whole(int64_t rows, int64_t columns, bool turned, int64_t beside, DType dtype, uint64_t seed) {
    const Shape lying = turned ? Shape{columns, rows} : Shape{rows, columns};
    Reference all = random_reference({lying[0], lying[1] + beside}, seed, -1.5, 1.5);
    for (double& x : all.values) x = std::round(x);
    const Tensor lines = all.tensor(dtype, test_device()).slice(1, 0, lying[1]);
    tensor = turned ? lines.transpose(0, 1) : lines;
    reference = Reference::of(tensor);
  }
};

/// Random blocks, but for a row and a column that have none where there are several.
Mask holes(int rows, int cols, int block, double density, uint64_t seed) {
  Mask mask = Mask::random(1, rows, cols, block, density, seed);
  for (int col = 0; col < cols && rows > 1; ++col) mask.at(0, rows / 2, col) = 0;
  for (int row = 0; row < rows && cols > 1; ++row) mask.at(0, row, cols / 3) = 0;
  return mask;
}

size_t wrong_values(const Mask& mask, int64_t k, bool a_turned, bool b_turned, int64_t beside,
                    DType dtype) {
  const Device device = test_device();
  const Whole a(mask.height(), k, a_turned, beside, dtype, 1);
  const Whole b(k, mask.width(), b_turned, beside, dtype, 2);
  const LayoutPtr layout = mask.layout();
  const Tensor values = Tensor::empty(mask.values(), dtype, device);
  const Stream stream = current_stream(device);
  gemm_blocks(a.tensor, b.tensor, values, block_numbers(*layout, stream)->table.data<int32_t>(),
              mask.block, stream);
  const Reference got = Reference::of(values);
  const Reference want = sparsify(product(a.reference, b.reference, false, false), mask);
  size_t wrong = 0;
  for (size_t i = 0; i < want.values.size(); ++i) wrong += !(got[i] == want[i]);
  return wrong;
}

}  // namespace

TEST_CASE("block numbers: the number of the block at each place, or -1" *
          doctest::skip(!test_device().is_cuda())) {
  const Device device = test_device();
  for (const auto& [heads, rows, cols] :
       {std::tuple{1, 1, 1}, {1, 7, 300}, {3, 33, 5}, {2, 4, 1000}})
    for (const double density : {0.0, 0.3, 1.0}) {
      const Mask mask = Mask::random(heads, rows, cols, 16, density, 5);
      const LayoutPtr layout = mask.layout();
      const Kept<BlockNumbers> numbers = block_numbers(*layout, current_stream(device));
      const Tensor table = numbers->table.to(Device::cpu());
      REQUIRE(table.shape() == Shape{heads, rows, cols});
      int next = 0, wrong = 0;
      for (size_t i = 0; i < mask.kept.size(); ++i)
        wrong += table.data<int32_t>()[i] != (mask.kept[i] ? next++ : -1);
      CHECK(wrong == 0);
      CHECK(&*block_numbers(*layout, current_stream(device)) == &*numbers);
    }
}

TEST_CASE("dense products by blocks: whole numbers come out exact, and nothing else is written" *
          doctest::skip(!hopper())) {
  for (const int block : {16, 32, 64, 128})
    for (const bool a : {false, true})
      for (const bool b : {false, true}) {
        CAPTURE(block);
        CAPTURE(a);
        CAPTURE(b);
        const DType dtype = a == b ? bf16 : f16;
        // Tiles of 128 x 256 that are half outside, and several of them down and across.
        const Mask odd = holes(384 / block + 1, 512 / block + 1, block, 0.6, 3);
        CHECK(wrong_values(odd, 200, a, b, 0, dtype) == 0);
        const Mask dense(1, 3, 5, block, 1);
        CHECK(wrong_values(dense, 72, a, b, 8, dtype) == 0);
        CHECK(wrong_values(Mask(1, 1, 1, block, 1), 8, a, b, 24, dtype) == 0);
      }
  // More tiles than CTAs: the boxes of one leave while the next one is multiplied.
  for (const int block : {16, 64})
    CHECK(wrong_values(holes(4096 / block, 2048 / block, block, 0.7, 9), 64, false, block == 64, 0,
                       bf16) == 0);
}

TEST_CASE("dense products by blocks: the same bits run after run" * doctest::skip(!hopper())) {
  const Device device = test_device();
  for (const int block : {16, 32, 64, 128}) {
    const Mask mask = holes(1024 / block, 1280 / block, block, 0.8, 4);
    const LayoutPtr layout = mask.layout();
    const Tensor a = randn({mask.height(), 1000}, bf16, device);
    const Tensor b = randn({1000, mask.width()}, bf16, device);
    const auto run = [&] {
      const Tensor values = Tensor::empty(mask.values(), bf16, device);
      const Stream stream = current_stream(device);
      gemm_blocks(a, b, values, block_numbers(*layout, stream)->table.data<int32_t>(), block,
                  stream);
      return values;
    };
    const Tensor first = run();
    for (int i = 0; i < 10; ++i) CHECK(same_bits(run(), first));
  }
}
