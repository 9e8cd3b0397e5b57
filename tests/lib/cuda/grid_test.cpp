#include <bs/lib/cuda/grid.h>
#include <doctest/doctest.h>

using namespace bs;

TEST_CASE("grid: as many blocks as one launch can have, and no wrapped number of more") {
  CHECK(cuda::grid_of("softmax", 0) == 0);
  CHECK(cuda::grid_of("softmax", 2147483647) == 2147483647U);
  CHECK_THROWS_WITH_AS(
      cuda::grid_of("softmax", int64_t{1} << 32),
      "softmax: 4294967296 blocks of threads are more than one launch can have, 2147483647: cut "
      "the input",
      Error);
  CHECK_THROWS_AS(cuda::grid_of("softmax", int64_t{1} << 31), Error);
  CHECK_THROWS_AS(cuda::grid_of("softmax", -1), Error);
}
