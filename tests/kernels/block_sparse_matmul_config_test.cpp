#include <bs/kernels/cuda/block_sparse_matmul_config.h>
#include <doctest/doctest.h>

using namespace bs::cuda;

TEST_CASE("tiles of the block-sparse products cover every block and fit the machine") {
  for (int size : {2, 4, 8})
    for (int block : {8, 16, 32, 64, 128}) {
      const BlockSparseTile tile = block_sparse_tile(size, block);
      CAPTURE(size);
      CAPTURE(block);
      // A tile lies within one block row: it is the whole of it, or divides it.
      CHECK((block <= tile.rows ? tile.rows == std::max(block, 16) : block % tile.rows == 0));
      // A stage of a line is four pieces of 16 bytes, which never straddle two blocks.
      CHECK(tile.depth * size == 64);
      CHECK(16 / size <= block);
      // Every warp has whole instructions of the tensor cores: 16 rows (8 in f64) by 8 columns.
      CHECK(tile.rows / tile.warp_rows % (size == 8 ? 8 : 16) == 0);
      CHECK(tile.cols / tile.warp_cols % 8 == 0);
      CHECK(tile.threads() <= 256);
      // Two CTAs fit the 227 KiB of a Hopper SM, padding of at most 32 bytes a line included.
      const int a =
          std::max(tile.rows * (tile.depth * size + 32), tile.depth * (tile.rows * size + 32));
      const int b =
          std::max(tile.cols * (tile.depth * size + 32), tile.depth * (tile.cols * size + 32));
      CHECK(2 * tile.stages * (a + b) <= 227 * 1024);
    }
}

TEST_CASE("tiles of the warpgroup kernels fit the machine, and the choices among them are sound") {
  constexpr int most = 227 * 1024;
  for (const int block : {16, 32, 64, 128}) {
    CAPTURE(block);
    for (const int64_t n : {8, 64, 65, 128, 129, 4096}) {
      const WarpgroupTile tile = warpgroup_dsd_tile(n);
      CHECK(tile.dsd_shared_bytes() <= most);
      CHECK((tile.cols >= n || tile.cols == 256));
    }
    CHECK(WarpgroupTile::dsd_rows(block) * block == 128);
    for (const bool narrow : {false, true}) {
      const WarpgroupTile tile = warpgroup_sdd_tile(block, narrow);
      CHECK(tile.sdd_shared_bytes(block) <= most);
      CHECK(tile.sdd_cols(block) * block % 64 == 0);
    }
    // Denser is never the reason to go back to the sparse kernels.
    for (const bool sampled : {false, true}) {
      CHECK(!dense_is_faster(sampled, block, 0.1, 0));
      CHECK(dense_is_faster(sampled, block, 1, 0.04));
      // A copy that takes long is a reason to do without.
      CHECK(!dense_is_faster(sampled, block, 1, 4));
    }
  }
  CHECK(!dense_is_faster(false, 8, 1, 0));
}

TEST_CASE("the warpgroup kernels are for 16 bits on compute capability 9.0, and for no other") {
  for (const int capability : {75, 80, 86, 89, 90, 100, 103, 110, 120, 121})
    for (const bs::DType dtype : {bs::f16, bs::bf16, bs::f32, bs::f64}) {
      CAPTURE(capability);
      CAPTURE(to_string(dtype));
      const bool hopper = capability == 90 && (dtype == bs::f16 || dtype == bs::bf16);
      CHECK(warpgroup_applies(dtype, capability) == hopper);
    }
}
