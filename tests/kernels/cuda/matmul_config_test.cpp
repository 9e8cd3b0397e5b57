#include <bs/kernels/cuda/gemm/matmul_config.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::cuda;

namespace {

MatmulPath path(MatmulProblem p, int capability = 90) { return choose_matmul(p, capability, 132); }

}  // namespace

TEST_CASE("matmul config: large f32 products on Hopper go in parts") {
  const MatmulProblem cube{.dtype = f32, .m = 4096, .n = 4096, .k = 4096};
  CHECK(path(cube) == MatmulPath::parts);
  CHECK(path(cube, 80) == MatmulPath::library);
  CHECK(path(cube, 100) == MatmulPath::library);
  for (const DType dtype : {f64, f16, bf16}) {
    MatmulProblem other = cube;
    other.dtype = dtype;
    CHECK(path(other) == MatmulPath::library);
  }
}

TEST_CASE("matmul config: 16-bit products of many tiles that fill the matrix are ours") {
  MatmulProblem p{.dtype = bf16, .m = 8192, .n = 8192, .k = 8192, .lines_aligned = true};
  CHECK(path(p) == MatmulPath::tiles);
  CHECK(path(p, 80) == MatmulPath::library);
  p.lines_aligned = false;
  CHECK(path(p) == MatmulPath::library);
  p.lines_aligned = true;
  p.n = 64;
  p.m *= 128;
  CHECK(path(p) == MatmulPath::library);
  CHECK(path({.dtype = f16, .m = 4096, .n = 4096, .k = 4096, .lines_aligned = true}) ==
        MatmulPath::library);
  CHECK(path({.dtype = f16, .m = 1024, .n = 4096, .k = 64, .batch = 9, .lines_aligned = true}) ==
        MatmulPath::tiles);
}

TEST_CASE("matmul config: the library keeps what splitting costs more than it saves") {
  CHECK(path({.dtype = f32, .m = 512, .n = 512, .k = 512}) == MatmulPath::library);
  CHECK(path({.dtype = f32, .m = 1024, .n = 1024, .k = 1024}) == MatmulPath::parts);
  CHECK(path({.dtype = f32, .m = 2048, .n = 2048, .k = 2048}) == MatmulPath::parts);
  CHECK(path({.dtype = f32, .m = 8192, .n = 64, .k = 8192}) == MatmulPath::library);
  CHECK(path({.dtype = f32, .m = 1, .n = 8192, .k = 8192}) == MatmulPath::library);
  CHECK(path({.dtype = f32, .m = 8192, .n = 8192, .k = 8}) == MatmulPath::library);
  // A matrix that all of a batch meets is split once.
  const MatmulProblem batch{
      .dtype = f32, .m = 128, .n = 512, .k = 512, .batch = 64, .a_matrices = 64, .b_matrices = 64};
  MatmulProblem shared = batch;
  shared.b_matrices = 1;
  CHECK(seconds_in_parts(shared, 132) < seconds_in_parts(batch, 132));
}

TEST_CASE("matmul config: parts take a quarter of the memory at most") {
  const MatmulProblem cube{.dtype = f32, .m = 32768, .n = 32768, .k = 32768};
  constexpr int64_t gib = int64_t{1} << 30;
  CHECK(bytes_in_parts(cube) == 16 * gib);
  CHECK(choose_matmul(cube, 90, 132, {63 * gib}) == MatmulPath::library);
  CHECK(choose_matmul(cube, 90, 132, {64 * gib}) == MatmulPath::parts);
}

TEST_CASE("matmul config: parts take half of what is free at most, and small ones don't ask") {
  const MatmulProblem cube{.dtype = f32, .m = 8192, .n = 8192, .k = 8192};
  constexpr int64_t gib = int64_t{1} << 30;
  CHECK(bytes_in_parts(cube) == gib);
  CHECK(choose_matmul(cube, 90, 132, {80 * gib, 2 * gib}) == MatmulPath::parts);
  CHECK(choose_matmul(cube, 90, 132, {80 * gib, 2 * gib - 1}) == MatmulPath::library);
  CHECK(asks_for_memory(cube, 63 * gib));
  CHECK(!asks_for_memory(cube, 64 * gib));
  CHECK(!asks_for_memory({.dtype = f16, .m = 65536, .n = 65536, .k = 65536}, gib));
}

TEST_CASE("matmul config: parts go in the tile that fills the GPU") {
  const auto tile = [](int64_t m, int64_t n, int64_t k) {
    const PartsTile& t = parts_tiles[parts_tile({.dtype = f32, .m = m, .n = n, .k = k}, 132)];
    return t.rows * 1000 + t.cols;
  };
  CHECK(tile(4096, 4096, 4096) == 128128);
  CHECK(tile(2048, 2048, 2048) == 128128);
  CHECK(tile(8192, 1024, 1024) == 128128);
  CHECK(tile(1024, 1024, 1024) == 128064);  // 128 of these, 64 of 128 x 128, for 132
  CHECK(tile(1536, 1536, 1536) == 192128);  // 96 of these, 144 of 128 x 128
  CHECK(tile(3000, 1000, 1000) == 192128);
}

TEST_CASE("matmul config: the estimate grows with the depth and with whole waves of tiles") {
  for (const PartsTile& tile : parts_tiles) {
    CAPTURE(tile.cols);
    const auto seconds = [&](int64_t m, int64_t n, int64_t k) {
      return seconds_in_parts({.dtype = f32, .m = m, .n = n, .k = k}, tile, 132);
    };
    CHECK(seconds(2048, 2048, 4096) > seconds(2048, 2048, 2048));
    CHECK(seconds(2048, 2048, 4096) < 2 * seconds(2048, 2048, 2048));  // launches and ends are once
    // A column more than fills the GPU takes another wave; a column of tiles less saves none.
    const int64_t rows = tile.rows * tile.cluster, wave = 132 / tile.cluster;
    const double full = seconds(rows, wave * tile.cols, 65536);
    CHECK(seconds(rows, wave * tile.cols + 1, 65536) > full + 65536 / 32 * tile.step);
    CHECK(seconds(rows, wave * tile.cols - tile.cols, 65536) > .9 * full);
  }
}
