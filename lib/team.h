#pragma once
/** @file Regions of code that several threads run together.
 *
 *  A thread that calls run_team has a team of its own: itself and threads that wait for its next
 *  region. They are made at the first one, and again where another number of threads is wanted.
 *  Whoever waits spins for a bounded time, which ends before a busy machine feels it, and then
 *  sleeps. A process made by fork() has no team, and makes one when it needs it. */
#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace bs {

/** @brief A number that threads wait for to change. */
class Awaited {
 public:
  uint32_t load() const { return value_.load(std::memory_order_acquire); }
  /** @brief For a number that nobody waits for yet. */
  void store(uint32_t value) { value_.store(value, std::memory_order_relaxed); }
  /** @brief These return what it was. */
  uint32_t increase() { return value_.fetch_add(1); }
  uint32_t decrease() { return value_.fetch_sub(1); }
  /** @brief Wakes whoever sleeps in wait_while, to look again. */
  void wake();
  /** @brief Returns once it is no longer `old`. `spins`: looks a bounded time before it sleeps. */
  void wait_while(uint32_t old, bool spins);

 private:
  std::atomic<uint32_t> value_ = 0;
  std::atomic<int> sleepers_ = 0;
};

/** @brief Where the threads of a region wait for each other. */
class Barrier {
 public:
  /** @brief For so many threads, which sleep at once unless each `spins` a while. */
  Barrier(int threads, bool spins) : threads_(threads), spins_(spins) {}
  /** @brief Returns once all threads have called it as often as this one. */
  void wait();

 private:
  const int threads_;
  const bool spins_;
  std::atomic<int> arrived_ = 0;
  Awaited round_;
};

/** @brief A thread of a region, as it sees itself. */
class TeamThread {
 public:
  /** @brief Alone. */
  TeamThread() = default;
  TeamThread(int number, int size, Barrier& barrier)
      : number_(number), size_(size), barrier_(&barrier) {}

  /** @brief From 0, the thread that called run_team, to size() - 1. */
  int number() const { return number_; }
  int size() const { return size_; }
  /** @brief Waits until every thread of the region has come here. */
  void barrier() const {
    if (barrier_) barrier_->wait();
  }

 private:
  int number_ = 0, size_ = 1;
  Barrier* barrier_ = nullptr;
};

/** @brief Whether the calling thread runs a region of more than one thread, or ends. */
bool in_team();

namespace detail {
void run_team(int threads, void (*call)(void*, const TeamThread&), void* body);
}  // namespace detail

/** @brief Calls `body(const TeamThread&)` once on each of so many threads, and returns when all
 *  have returned. Within a region, or for one thread, it calls `body` once, alone.
 *
 *  The first exception of a body is thrown again behind the region. A body that has a
 *  barrier must not throw where others still wait for it.
 *  @throws Error where the system gives no threads */
template <class Body>
void run_team(int threads, Body&& body) {
  if (threads <= 1 || in_team()) return static_cast<void>(body(TeamThread()));
  using Plain = std::remove_reference_t<Body>;
  detail::run_team(
      threads, [](void* f, const TeamThread& t) { (*static_cast<Plain*>(f))(t); },
      const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}

/** @brief Calls `body(i)` for each i in [0, n) on so many threads, which take one item after the
 *  other: for items of unequal cost. */
template <class Body>
void parallel_each(int64_t n, int threads, Body&& body) {
  std::atomic<int64_t> next = 0;
  run_team(threads, [&](const TeamThread&) {
    for (int64_t i; (i = next++) < n;) body(i);
  });
}

}  // namespace bs
