#include <bs/kernels/cuda/gemm/matmul_config.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::cuda;

namespace {

const Gpu h100;

MatmulPath path(const MatmulProblem& p, int capability = 90) {
  return choose_matmul(p, {.capability = capability});
}
MatmulPath path(const MatmulProblem& p, int64_t memory, int64_t free) {
  return choose_matmul(p, {.memory_bytes = memory, .free_bytes = free});
}

double time_of_cube(int64_t size, int64_t depth, const PartsTile& tile, const Gpu& gpu) {
  return time_in_parts({.dtype = f32, .m = size, .n = size, .k = depth}, tile, gpu);
}

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
  CHECK(time_in_parts(shared, h100) < time_in_parts(batch, h100));
}

TEST_CASE("matmul config: parts take a quarter of the memory at most") {
  const MatmulProblem cube{.dtype = f32, .m = 32768, .n = 32768, .k = 32768};
  constexpr int64_t gib = int64_t{1} << 30;
  CHECK(bytes_in_parts(cube) == 16 * gib);
  CHECK(path(cube, 63 * gib, 63 * gib) == MatmulPath::library);
  CHECK(path(cube, 64 * gib, 64 * gib) == MatmulPath::parts);
}

TEST_CASE("matmul config: parts take half of what is free at most, and small ones don't ask") {
  const MatmulProblem cube{.dtype = f32, .m = 8192, .n = 8192, .k = 8192};
  constexpr int64_t gib = int64_t{1} << 30;
  CHECK(bytes_in_parts(cube) == gib);
  CHECK(path(cube, 80 * gib, 2 * gib) == MatmulPath::parts);
  CHECK(path(cube, 80 * gib, 2 * gib - 1) == MatmulPath::library);
  CHECK(asks_for_memory(cube, {.memory_bytes = 63 * gib}));
  CHECK(!asks_for_memory(cube, {.memory_bytes = 64 * gib}));
  const MatmulProblem half_cube{.dtype = f16, .m = 65536, .n = 65536, .k = 65536};
  CHECK(!asks_for_memory(half_cube, {.memory_bytes = gib}));
}

TEST_CASE("matmul config: parts go in the tile that fills the GPU") {
  const auto& [broad, narrow, tall] = parts_tiles;
  const auto tile = [](int64_t m, int64_t n, int64_t k, const Gpu& gpu) {
    return &parts_tiles[parts_tile({.dtype = f32, .m = m, .n = n, .k = k}, gpu)];
  };
  for (const int64_t count : {60, 96, 132}) {
    CAPTURE(count);
    const Gpu gpu{.multiprocessors = static_cast<int>(count)};
    // Tiles for half of the multiprocessors, or twice as many of half the width.
    CHECK(tile(broad.rows * count / 2, broad.cols, 1024, gpu) == &narrow);
    CHECK(tile(broad.rows * count / 2, 2 * narrow.cols, 1024, gpu) == &narrow);
    // As many tall tiles as there are multiprocessors, for which half as many others are too many.
    CHECK(tile(tall.rows * count / 12, 12 * tall.cols, 2048, gpu) == &tall);
    // All at work, again and again.
    CHECK(tile(2 * broad.rows * count, 4 * broad.cols, 2048, gpu) == &broad);
  }
  CHECK(tile(4096, 4096, 4096, h100) == &broad);
  CHECK(tile(3000, 1000, 1000, h100) == &tall);
}

TEST_CASE("matmul config: the estimate grows with the depth and with whole waves of tiles") {
  for (const PartsTile& tile : parts_tiles) {
    CAPTURE(tile.cols);
    const auto time = [&](int64_t m, int64_t n, int64_t k) {
      return time_in_parts({.dtype = f32, .m = m, .n = n, .k = k}, tile, h100);
    };
    CHECK(time(2048, 2048, 4096) > time(2048, 2048, 2048));
    CHECK(time(2048, 2048, 4096) < 2 * time(2048, 2048, 2048));  // launches and ends are once
    // A column more than fills the GPU takes another wave; a column of tiles less saves none.
    const int64_t rows = tile.rows * tile.cluster, wave = h100.multiprocessors / tile.cluster;
    const double full = time(rows, wave * tile.cols, 65536);
    CHECK(time(rows, wave * tile.cols + 1, 65536) > full + 65536 / 32 * tile.step(h100));
    CHECK(time(rows, wave * tile.cols - tile.cols, 65536) > .9 * full);
  }
}

TEST_CASE("matmul config: a GPU of another pace takes another time for the same") {
  for (const PartsTile& tile : parts_tiles) {
    CAPTURE(tile.cols);
    const double time = time_of_cube(8192, 8192, tile, h100);
    CHECK(time_of_cube(8192, 8192, tile, {.clock = 2 * h100.clock}) < .6 * time);
    CHECK(time_of_cube(8192, 8192, tile, {.tf32_products = h100.tf32_products / 2}) > 1.8 * time);
    CHECK(time_of_cube(8192, 8192, tile, {.multiprocessors = 66}) > 1.8 * time);
    CHECK(time_of_cube(8192, 32, tile, {.copy_rate = h100.copy_rate / 2}) >
          time_of_cube(8192, 32, tile, h100));
  }
  const MatmulProblem cube{.dtype = f32, .m = 4096, .n = 4096, .k = 4096};
  CHECK(time_of_library(cube, {.multiprocessors = 66}) > 1.9 * time_of_library(cube, h100));
  // Tensor cores that are no faster than the library's lanes have nothing to give.
  CHECK(choose_matmul(cube, {.tf32_products = 128}) == MatmulPath::library);
}
