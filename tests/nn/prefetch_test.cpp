#include <bs/lib/check.h>
#include <bs/nn/data/prefetch.h>
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

using bs::Error;
using bs::data::Prefetcher;

namespace {
/// Waits until `done` or for some seconds; returns whether it came.
template <class F>
bool comes_true(F&& done) {
  for (int i = 0; i < 5000 && !done(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return done();
}
}  // namespace

TEST_CASE("prefetch: results come in order, from the number asked for") {
  Prefetcher<int64_t> squares([](int64_t i) { return i * i; }, 5, 3);
  for (int64_t i = 5; i < 200; ++i) CHECK(squares.next() == i * i);
}

TEST_CASE("prefetch: runs ahead, and no further than told") {
  std::atomic<int64_t> made = 0;
  Prefetcher<int64_t> numbers([&](int64_t i) { return ++made, i; }, 0, 3);
  CHECK(comes_true([&] { return made == 3; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(made == 3);
  CHECK(numbers.next() == 0);
  CHECK(comes_true([&] { return made == 4; }));
}

TEST_CASE("prefetch: an exception comes in its turn, and stays") {
  Prefetcher<int64_t> numbers(
      [](int64_t i) {
        if (i == 2) throw Error("number two");
        return i;
      },
      0, 8);
  CHECK(numbers.next() == 0);
  CHECK(numbers.next() == 1);
  CHECK_THROWS_WITH_AS(numbers.next(), "number two", Error);
  CHECK_THROWS_WITH_AS(numbers.next(), "number two", Error);
}

TEST_CASE("prefetch: ends cleanly at any moment, and takes what moves only") {
  for (int taken = 0; taken < 20; ++taken) {
    Prefetcher<std::unique_ptr<int64_t>> numbers(
        [](int64_t i) { return std::make_unique<int64_t>(i); }, 0,
        1 + static_cast<size_t>(taken) % 3);
    for (int i = 0; i < taken; ++i) CHECK(*numbers.next() == i);
  }
}

TEST_CASE("prefetch: refuses what would make nothing") {
  const auto same = [](int64_t i) { return i; };
  CHECK_THROWS_WITH_AS(Prefetcher<int64_t>(same, 0, 0),
                       "prefetch: a depth of 0, with which nothing is made", Error);
  CHECK_THROWS_WITH_AS(Prefetcher<int64_t>(nullptr, 0, 1), "prefetch: there is no function to call",
                       Error);
}
