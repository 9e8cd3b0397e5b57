#include <bs/lib/check.h>
#include <bs/lib/team.h>
#include <bs/lib/threads.h>
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <numeric>
#include <thread>
#include <vector>

using namespace bs;

namespace {

/// How often each number of a region came.
std::vector<int> calls(int threads) {
  std::vector<int> count(static_cast<size_t>(threads));
  run_team(threads, [&](const TeamThread& t) {
    CHECK(t.size() == threads);
    CHECK(in_team() == (threads > 1));
    ++count.at(static_cast<size_t>(t.number()));
  });
  return count;
}

auto threads_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

std::atomic<int> yields = 0;

}  // namespace

/** The C library's, counted. */
extern "C" int sched_yield() noexcept {
  ++yields;
  return 0;
}

TEST_CASE("team: every thread runs a region once, however many there were before") {
  for (const int threads : {1, 2, 5, 5, 3, 1, 2}) {
    CAPTURE(threads);
    CHECK(calls(threads) == std::vector<int>(static_cast<size_t>(threads), 1));
    CHECK_FALSE(in_team());
  }
}

TEST_CASE("team: what threads wrote before a barrier, all of them see after") {
  for (const int threads : {2, 4}) {
    std::vector<int> numbers(static_cast<size_t>(threads));
    std::vector<int> sums = numbers;
    run_team(threads, [&](const TeamThread& t) {
      const auto me = static_cast<size_t>(t.number());
      for (int round = 0; round < 1000; ++round) {
        numbers[me] = round + t.number();
        t.barrier();
        sums[me] += std::accumulate(numbers.begin(), numbers.end(), 0);
        t.barrier();
      }
    });
    const int sum = threads * 999 * 1000 / 2 + 1000 * threads * (threads - 1) / 2;
    CHECK(sums == std::vector<int>(static_cast<size_t>(threads), sum));
  }
}

TEST_CASE("team: a region within a region has the thread alone") {
  std::vector<int> sizes(3);
  run_team(3, [&](const TeamThread& outer) {
    run_team(3, [&](const TeamThread& inner) {
      inner.barrier();
      sizes[static_cast<size_t>(outer.number())] += inner.size();
    });
  });
  CHECK(sizes == std::vector<int>{1, 1, 1});
}

TEST_CASE("team: an exception of any thread comes out behind the region, and the next one runs") {
  for (int thrower = 0; thrower < 3; ++thrower) {
    CHECK_THROWS_WITH_AS(
        run_team(
            3, [&](const TeamThread& t) { BS_CHECK(t.number() != thrower, "thread {}", thrower); }),
        ("thread " + std::to_string(thrower)).c_str(), Error);
    CHECK(calls(3) == std::vector<int>(3, 1));
  }
}

TEST_CASE("team: threads have teams of their own, which end with them") {
  calls(2);
  const auto before = threads_of_process();
  std::vector<std::thread> users;
  std::vector<int> wrong(4);
  users.reserve(wrong.size());
  for (int& count : wrong)
    users.emplace_back([&count] {
      for (int i = 0; i < 200; ++i) {
        std::vector<int> numbers(3);
        run_team(3, [&](const TeamThread& t) { ++numbers[static_cast<size_t>(t.number())]; });
        count += numbers != std::vector<int>{1, 1, 1};
      }
    });
  for (std::thread& user : users) user.join();
  CHECK(wrong == std::vector<int>(4));
  CHECK(threads_of_process() == before);
}

TEST_CASE("team: threads that wait for a region sleep soon") {
  calls(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(std::clock() - before < CLOCKS_PER_SEC / 50);
}

#ifndef __SANITIZE_THREAD__  // which allows no threads behind fork()
TEST_CASE("team: threads that wait yield to nobody, who might have the core for long") {
  const int more_than_cores = cores() + 2;
  calls(more_than_cores);
  yields = 0;
  for (int region = 0; region < 20; ++region) calls(more_than_cores);
  CHECK(yields == 0);
}

TEST_CASE("team: a process made by fork has a team of its own") {
  calls(2);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int count = 0;
    run_team(2, [&](const TeamThread& t) {
      t.barrier();
      if (t.number() == 1) count = t.size();
    });
    _exit(count == 2 ? 0 : 1);
  }
  int status = 1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(calls(2) == std::vector<int>(2, 1));
}
#endif
