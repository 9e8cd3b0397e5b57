#include <bs/lib/team.h>

#include <bs/lib/check.h>
#include <bs/lib/failure.h>
#include <bs/lib/threads.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace bs {

namespace {

/// Until a thread that waits goes to sleep. Loops of a training step follow each other in less.
constexpr std::chrono::microseconds spinning{200};

/// Tells the processor that this thread waits for another.
void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Linux' own sleep. That of std::atomic yields first: beside busy programs, to all of their
/// slices.
void futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  static_assert(sizeof(word) == sizeof(uint32_t));
  syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}

/// Set in the threads of a region, always in those that wait for one, and in a thread that ends.
thread_local bool inside = false;

/// A thread's team.
class Team {
 public:
  explicit Team(int threads)
      : threads_(threads), spins_(threads <= cores()), barrier_(threads, spins_) {
    others_.reserve(static_cast<size_t>(threads - 1));
    try {
      for (int i = 1; i < threads; ++i) others_.emplace_back([this, i] { serve(i); });
    } catch (const std::system_error& e) {
      end();
      BS_CHECK(false, "threads: the system gave {} of {} threads: {}", others_.size() + 1, threads,
               e.what());
    } catch (...) {
      end();
      throw;
    }
  }
  ~Team() { end(); }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int threads() const { return threads_; }

  void run(void (*call)(void*, const TeamThread&), void* body) {
    Failure failure;
    call_ = call;
    body_ = body;
    failure_ = &failure;
    working_.store(static_cast<uint32_t>(threads_ - 1));
    next_round();
    inside = true;
    work(0);
    inside = false;
    for (uint32_t left; (left = working_.load()) != 0;) working_.wait_while(left, spins_);
    failure.rethrow();
  }

 private:
  void work(int number) {
    failure_->guard([&] { call_(body_, TeamThread(number, threads_, barrier_)); });
  }
  void next_round() {
    round_.increase();
    round_.wake();
  }
  /// What a thread other than the team's owner does.
  void serve(int number) {
    inside = true;
    for (uint32_t seen = 0;; ++seen) {
      round_.wait_while(seen, spins_);
      if (ended_) return;
      work(number);
      if (working_.decrease() == 1) working_.wake();
    }
  }
  void end() {
    ended_ = true;
    next_round();
    for (std::thread& other : others_) other.join();
  }

  const int threads_;
  const bool spins_;  ///< not where threads wait for a core
  Barrier barrier_;
  void (*call_)(void*, const TeamThread&) = nullptr;  ///< of this round, as the next two
  void* body_ = nullptr;
  Failure* failure_ = nullptr;
  bool ended_ = false;
  alignas(64) Awaited round_;    ///< regions so far
  alignas(64) Awaited working_;  ///< threads that have not ended this one
  std::vector<std::thread> others_;
};

thread_local Team* own = nullptr;

/// Ends the team with its thread. What else runs while the thread ends does without one.
struct End {
  ~End() {
    delete own;
    own = nullptr;
    inside = true;
  }
};

Team& team_of(int threads) {
  static std::once_flag once;
  // The threads of a team stay in the parent: there is nothing to join in the child.
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { own = nullptr; }); });
  thread_local End end;
  if (own && own->threads() != threads) {
    delete own;
    own = nullptr;
  }
  if (!own) own = new Team(threads);
  return *own;
}

}  // namespace

void Awaited::wake() {
  if (sleepers_ > 0) futex(value_, FUTEX_WAKE, std::numeric_limits<int>::max());
}

void Awaited::wait_while(uint32_t old, bool spins) {
  using Clock = std::chrono::steady_clock;
  if (spins) {
    const Clock::time_point end = Clock::now() + spinning;
    do {
      for (int i = 0; i < 64; ++i) {
        if (load() != old) return;
        relax();
      }
    } while (Clock::now() < end);
  }
  ++sleepers_;
  while (value_ == old) futex(value_, FUTEX_WAIT, old);  // Linux looks once more
  --sleepers_;
}

void Barrier::wait() {
  const uint32_t round = round_.load();
  if (arrived_.fetch_add(1) < threads_ - 1) return round_.wait_while(round, spins_);
  arrived_.store(0, std::memory_order_relaxed);
  round_.increase();
  round_.wake();
}

bool in_team() { return inside; }

void detail::run_team(int threads, void (*call)(void*, const TeamThread&), void* body) {
  team_of(threads).run(call, body);
}

}  // namespace bs
