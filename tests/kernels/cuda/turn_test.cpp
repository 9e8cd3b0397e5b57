#include <doctest/doctest.h>
#include <bs/kernels/cuda/turn.cuh>

#include <array>
#include <cstdint>

using namespace bs;
using namespace bs::cuda;

namespace {

template <int M>
bool finds(const Shape& shape, const std::array<Strides, M>& strides, Turn<M>& turn) {
  return find_turn(ordered_loop<M>(shape, strides), turn);
}

}  // namespace

TEST_CASE("a matrix and a transposed one are turned in squares") {
  Turn<3> turn;
  REQUIRE(finds<3>({5, 72, 136}, {Strides{9792, 136, 1}, {9792, 136, 1}, {9792, 1, 72}}, turn));
  CHECK(turn.nx == 136);
  CHECK(turn.ny == 72);
  CHECK(turn.tiles == 5 * 2 * 3);
  CHECK((!turn.across[0] && !turn.across[1] && turn.across[2]));
  CHECK(turn.lines[0].step[0][0] == 136);  // lines along x, by number of y
  CHECK(turn.lines[2].step[0][0] == 72);   // and the other way round
  CHECK(turn.batch.step[0][2] == 9792);
  alignas(16) static uint16_t data[16];
  CHECK(turn.has_vectors<8>(2, data));
  CHECK(!turn.has_vectors<16>(2, data));
  CHECK(!turn.has_vectors<8>(2, data + 1));
}

TEST_CASE("lines of a turn go on over axes that lie side by side") {
  // [b, s, h, d] seen as [d, h, s, b]: lines of the result are 4 of b by 40 of s.
  Turn<2> turn;
  const Shape shape = {64, 3, 40, 4};
  REQUIRE(finds<2>(shape, {contiguous_strides(shape), {1, 64, 192, 7680}}, turn));
  CHECK(turn.nx == 160);
  CHECK(turn.ny == 64);
  CHECK(turn.tiles == 3 * 3);
}

TEST_CASE("what is no turn is left to other walks") {
  Turn<2> two;
  const Shape shape = {64, 64};
  CHECK(!finds<2>(shape, {Strides{64, 1}, {64, 1}}, two));   // along
  CHECK(!finds<2>(shape, {Strides{64, 1}, {128, 2}}, two));  // every second element
  CHECK(!finds<2>({64, 8}, {Strides{8, 1}, {1, 64}}, two));  // few lines
  CHECK(!finds<2>(shape, {Strides{128, 2}, {1, 64}}, two));  // a result with gaps
  Turn<3> three;  // one lies across, the other strides over all
  CHECK(!finds<3>(shape, {Strides{64, 1}, {1, 64}, {128, 2}}, three));
  // What repeats along x may lie anyhow.
  CHECK(finds<3>(shape, {Strides{64, 1}, {1, 64}, {3, 0}}, three));
}
