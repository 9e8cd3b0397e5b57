#include <bs/lib/check.h>
#include <bs/lib/dims.h>
#include <doctest/doctest.h>

using namespace bs;

TEST_CASE("dims hold up to eight numbers") {
  const Dims empty;
  CHECK(empty.rank() == 0);
  CHECK(empty.empty());
  CHECK(empty.product() == 1);
  CHECK(to_string(empty) == "[]");
  Dims d{2, 3, 5};
  CHECK(d.rank() == 3);
  CHECK(d[0] == 2);
  CHECK(d[-1] == 5);
  CHECK(d.front() == 2);
  CHECK(d.back() == 5);
  CHECK(d.product() == 30);
  CHECK(to_string(d) == "[2, 3, 5]");
  d[-2] = 7;
  CHECK(d == Dims{2, 7, 5});
  CHECK_FALSE(d == Dims{2, 7});
  CHECK_FALSE(d == Dims{2, 7, 5, 1});
  CHECK(Dims::filled(3, -1) == Dims{-1, -1, -1});
  CHECK(Dims{1, 2, 3, 4, 5, 6, 7, 8}.rank() == 8);
  CHECK(Dims{0, 5}.product() == 0);
}

TEST_CASE("dims change in place") {
  Dims d{2, 3};
  d.push_back(4);
  d.insert(0, 1);
  d.insert(2, 9);
  CHECK(d == Dims{1, 2, 9, 3, 4});
  d.erase(2);
  d.erase(-1);
  CHECK(d == Dims{1, 2, 3});
  CHECK(d.slice(1, 3) == Dims{2, 3});
  CHECK(d.slice(1, 1) == Dims{});
}

TEST_CASE("dims refuse what is outside") {
  Dims d{2, 3};
  CHECK_THROWS_WITH_AS(d[2], "dims: position 2 in [2, 3]", Error);
  CHECK_THROWS_WITH_AS(d[-3], "dims: position -3 in [2, 3]", Error);
  CHECK_THROWS_WITH_AS(Dims{}.back(), "dims: position -1 in []", Error);
  CHECK_THROWS_WITH_AS(d.slice(1, 3), "dims: slice 1:3 of [2, 3]", Error);
  CHECK_THROWS_WITH_AS(d.insert(3, 1), "dims: insert at 3 into [2, 3]", Error);
  CHECK_THROWS_WITH_AS(d.erase(2), "dims: position 2 in [2, 3]", Error);
  CHECK_THROWS_WITH_AS((Dims{1, 2, 3, 4, 5, 6, 7, 8, 9}), "dims: rank 9 is more than 8", Error);
  CHECK_THROWS_WITH_AS(Dims::filled(9, 0), "dims: rank 9 is not in 0..8", Error);
  Dims full = Dims::filled(8, 1);
  CHECK_THROWS_WITH_AS(
      full.push_back(1),
      "dims: [1, 1, 1, 1, 1, 1, 1, 1] with one more axis is of rank 9, more than 8", Error);
}

TEST_CASE("contiguous strides") {
  CHECK(contiguous_strides({}) == Dims{});
  CHECK(contiguous_strides({5}) == Dims{1});
  CHECK(contiguous_strides({2, 3, 4}) == Dims{12, 4, 1});
  CHECK(contiguous_strides({2, 0, 4}) == Dims{4, 4, 1});
}

TEST_CASE("shapes broadcast as NumPy's") {
  CHECK(broadcast_shapes("add", {2, 3}, {2, 3}) == Shape{2, 3});
  CHECK(broadcast_shapes("add", {2, 3}, {3}) == Shape{2, 3});
  CHECK(broadcast_shapes("add", {}, {4}) == Shape{4});
  CHECK(broadcast_shapes("add", {5, 1, 4}, {3, 1}) == Shape{5, 3, 4});
  CHECK(broadcast_shapes("add", {1}, {0}) == Shape{0});
  CHECK(broadcast_shapes("add", {2, 1}, {1, 0}) == Shape{2, 0});
  CHECK_THROWS_WITH_AS(broadcast_shapes("add", {2, 3}, {4}),
                       "add: shapes [2, 3] and [4] do not broadcast (3 against 4)", Error);
  CHECK_THROWS_WITH_AS(broadcast_shapes("mul", {0}, {2}),
                       "mul: shapes [0] and [2] do not broadcast (0 against 2)", Error);
}

TEST_CASE("axes count from both ends") {
  CHECK(normalize_axis("sum", 0, 3) == 0);
  CHECK(normalize_axis("sum", -1, 3) == 2);
  CHECK(normalize_axis("sum", -3, 3) == 0);
  CHECK_THROWS_WITH_AS(normalize_axis("sum", 3, 3), "sum: axis 3 is out of range for rank 3",
                       Error);
  CHECK_THROWS_WITH_AS(normalize_axis("sum", -4, 3), "sum: axis -4 is out of range for rank 3",
                       Error);
  CHECK_THROWS_WITH_AS(normalize_axis("sum", 0, 0), "sum: axis 0 is out of range for rank 0",
                       Error);
}
