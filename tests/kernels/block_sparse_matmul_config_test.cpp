#include <bs/kernels/cuda/block_sparse/plan/block_sparse_costs.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tile_order.h>
#include <doctest/doctest.h>

#include <algorithm>

using namespace bs::cuda;

TEST_CASE("tiles of the block-sparse products cover every block and fit the machine") {
  for (int size : {2, 4, 8})
    for (int block : {8, 16, 32, 64, 128})
      for (const bool split : {false, true})
        for (int cols = widest_tile(size, block, split); cols >= 64; cols /= 2) {
          if (split && size != 4) continue;
          const BlockSparseTile tile = block_sparse_tile(size, block, split, cols);
          CAPTURE(size);
          CAPTURE(block);
          CAPTURE(split);
          CAPTURE(cols);
          CHECK(tile.cols == cols);
          // A tile lies within one block row: it is the whole of it, or divides it.
          CHECK((block <= tile.rows ? tile.rows == std::max(block, 16) : block % tile.rows == 0));
          // It begins at a block column, or within one.
          CHECK((cols % block == 0 || block % cols == 0));
          // Lines of a stage are whole pieces of 16 bytes, which never straddle two blocks, and
          // enough of them that what a warp reads at once falls into distinct banks.
          CHECK((tile.depth * size == 64 || tile.depth * size == 128));
          CHECK((tile.depth % block == 0 || block % tile.depth == 0));
          CHECK(16 / size <= block);
          // Every warp has 16 rows by 16 columns, or several times that, as registers allow.
          CHECK(tile.rows / tile.warp_rows % 16 == 0);
          CHECK(cols / tile.warp_cols % 16 == 0);
          const int sums = tile.rows / tile.warp_rows * (cols / tile.warp_cols);
          CHECK(sums * (split || size == 8 ? 2 : 1) <= 64 * 64);
          CHECK(tile.threads() == 128);
          // One CTA fits the 99 KiB of the smallest multiprocessor from sm_80 on, two the 228 of
          // Hopper's, of which each takes one more.
          CHECK(tile.shared_bytes(size) <= 99 * 1024);
          CHECK(2 * (tile.shared_bytes(size) + 1024) <= 228 * 1024);
        }
  CHECK(block_sparse_tile(2, 128, false, 128) == BlockSparseTile{128, 128, 64, 3, 2, 2});
  CHECK(block_sparse_tile(4, 64, false, 256) == BlockSparseTile{64, 256, 16, 4, 1, 4});
  CHECK(block_sparse_tile(4, 128, true, 128) == BlockSparseTile{64, 128, 32, 4, 2, 2});
}

TEST_CASE("tiles of the block-sparse products are halved where that fills the machine") {
  const auto tile = [](int64_t rows, int64_t n) {  // of 16 bits, blocks of 64, 132 multiprocessors
    return soonest_tile(2, 64, false, n, rows, 132);
  };
  CHECK(tile(60, 256) == 64);    // 240 of them at once
  CHECK(tile(120, 256) == 128);  // 240, but 480 narrow ones
  CHECK(tile(264, 256) == 256);
  CHECK(tile(264, 128) == 128);  // half of a tile would be empty
  CHECK(tile(264, 60) == 64);
}

TEST_CASE("tiles of the block-sparse products on mma.sync take what their products do, at least") {
  const Gpu gpu;
  for (const Factors factors : {Factors::half, Factors::tf32, Factors::split, Factors::f64})
    for (const int block : {8, 16, 32, 64, 128}) {
      const int size = bytes_of(factors);
      const bool split = factors == Factors::split;
      for (int cols = widest_tile(size, block, split); cols >= 64; cols /= 2) {
        const BlockSparseTile t = block_sparse_tile(size, block, split, cols);
        const TilePace many = tile_pace(t, factors, block, 1000, gpu);
        CAPTURE(size);
        CAPTURE(block);
        CAPTURE(cols);
        // Their kernels are compiled for two at least.
        CHECK(many.resident >= 2);
        CHECK(many.resident * t.shared_bytes(size) <= gpu.shared_bytes);
        CHECK(many.resident * t.threads() <= 2048);
        const TilePace one = tile_pace(t, factors, block, 1, gpu);
        CHECK(one.resident == 1);
        CHECK(one.step <= many.step);
        // No faster than a thousand 16-bit TF on 132 multiprocessors.
        const double products = 2.0 * t.rows * t.cols * std::max(t.depth, block) * many.resident;
        CHECK(many.step * 7600.0 >= products);
        // Of less shared memory there are fewer.
        const TilePace small = tile_pace(t, factors, block, 1000, {.shared_bytes = 99 * 1024});
        CHECK(small.resident >= 1);
        CHECK(small.resident <= many.resident);
      }
    }
}

TEST_CASE("steps of narrow tiles of dsd take less time, but more for each column") {
  for (const int cols : {64, 128}) {
    const int narrow = warpgroup_dsd_step(cols, {}), wide = warpgroup_dsd_step(2 * cols, {});
    CHECK(narrow < wide);
    CHECK(2 * narrow > wide);
  }
}

TEST_CASE("tiles of the warpgroup kernels fit the machine") {
  constexpr int most = 227 * 1024;
  for (const int block : {16, 32, 64, 128}) {
    CAPTURE(block);
    for (const int64_t n : {8, 64, 65, 128, 129, 4096}) {
      const WarpgroupTile tile = warpgroup_dsd_tile(n);
      CHECK(tile.dsd_shared_bytes() <= most);
      CHECK((tile.cols >= n || tile.cols == 256));
    }
    CHECK(WarpgroupTile::dsd_rows(block) * block == 128);
    for (const SddForm form : {SddForm{}, {.narrow = true}, {.gathered = true}, {true, true}}) {
      if (form.gathered && block == 128) continue;
      const WarpgroupTile tile = warpgroup_sdd_tile(block, form);
      CHECK(tile.sdd_shared_bytes(block) <= most);
      CHECK(tile.sdd_rows(block) * block % 64 == 0);
      CHECK(tile.sdd_cols(block) * block % 64 == 0);
    }
  }
}

TEST_CASE("tiles of the f32 kernels of wgmma fit the machine") {
  for (const int block : {32, 64, 128})
    for (const bool split : {false, true})
      for (const bool large : {false, true}) {
        CAPTURE(block);
        CAPTURE(split);
        CAPTURE(large);
        const Tf32Tile tile = tf32_tile(block, split, large);
        CHECK(tile.split == split);
        CHECK((tile.n == 64 || tile.n == 128));
        CHECK(tile.rows * block % tile.n == 0);
        CHECK((tile.rows == 1 || tile.n == tile.rows * block));
        // Columns gathered by sdd are whole blocks, and a dsd's come in boxes of 256 lines at most.
        CHECK(tile.columns() % 256 == 0);
        CHECK(tile.stages >= 3);
        CHECK(tile.shared_bytes() <= 227 * 1024);
        // Sums, and as many again where those of a stage are apart.
        CHECK(tile.wide * tile.n / 2 * (split ? 2 : 1) <= 128);
      }
}

TEST_CASE("tiles of the f32 kernels of wgmma that gather rows fit the machine") {
  for (const bool split : {false, true}) {
    CAPTURE(split);
    const Tf32Tile tile = tf32_gathered_tile(split);
    CHECK(tile.split == split);
    CHECK(tile.n % 64 == 0);
    CHECK(tile.n <= 8 * 16);  // block rows of which the layout is told
    CHECK(tile.gathered_columns() * tile.ranges() == tile.columns());
    CHECK(tile.stages >= 3);
    CHECK(tile.shared_bytes() <= 227 * 1024);
    CHECK(tile.wide * tile.n / 2 * (split ? 2 : 1) <= 128);
  }
}

TEST_CASE("steps of f32's sdd of gathered rows take longer for more lines and products") {
  CHECK(short_lines(32) > short_lines(64));
  CHECK(short_lines(64) > 1);
  CHECK(short_lines(64) < 2);
  CHECK(short_lines(128) == 1);
  const Gpu gpu;
  const auto step = [&](bool split, int lines) {
    return tf32_step(tf32_gathered_tile(split), lines, gpu);
  };
  CHECK(step(false, 640) > step(false, 512));
  CHECK(step(true, 384) > step(false, 384));
}
