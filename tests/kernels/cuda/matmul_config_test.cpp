#include <bs/kernels/cuda/matmul_config.h>
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
  CHECK(path({.dtype = f32, .m = 1024, .n = 1024, .k = 1024}) == MatmulPath::library);
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

TEST_CASE("matmul config: the estimate is that of the measurement") {
  const MatmulProblem cube{.dtype = f32, .m = 4096, .n = 4096, .k = 4096};
  CHECK(seconds_in_parts(cube, 132) == doctest::Approx(1140e-6).epsilon(.05));
  CHECK(seconds_of_library(cube) == doctest::Approx(2700e-6).epsilon(.05));
}
