#include <bs/lib/check.h>
#include <bs/lib/threads.h>
#include <doctest/doctest.h>

#include <thread>

using namespace bs;

TEST_CASE("threads: set for the calling thread, at least one") {
  const int before = threads();
  CHECK(before >= 1);
  set_threads(3);
  CHECK(threads() == 3);
  int other = 0;
  std::thread([&] { other = threads(); }).join();
  CHECK(other == before);
  set_threads(before);
  CHECK_THROWS_WITH_AS(set_threads(0), "set_threads: 0 threads", Error);
}
