#include <bs/lib/team.h>

#include <bs/lib/check.h>
#include <bs/lib/failure.h>
#include <bs/lib/threads.h>
#include <pthread.h>

#include <chrono>
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

/// Returns once `word` is no longer `old`.
template <class T>
void wait_while(const std::atomic<T>& word, T old, bool spins) {
  using Clock = std::chrono::steady_clock;
  if (spins) {
    const Clock::time_point end = Clock::now() + spinning;
    do {
      for (int i = 0; i < 64; ++i) {
        if (word.load(std::memory_order_acquire) != old) return;
        relax();
      }
    } while (Clock::now() < end);
  }
  word.wait(old, std::memory_order_acquire);
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
    working_.store(threads_ - 1, std::memory_order_relaxed);
    next_round();
    inside = true;
    work(0);
    inside = false;
    for (int left; (left = working_.load(std::memory_order_acquire)) != 0;)
      wait_while(working_, left, spins_);
    failure.rethrow();
  }

 private:
  void work(int number) {
    failure_->guard([&] { call_(body_, TeamThread(number, threads_, barrier_)); });
  }
  void next_round() {
    round_.fetch_add(1);
    round_.notify_all();
  }
  /// What a thread other than the team's owner does.
  void serve(int number) {
    inside = true;
    for (unsigned seen = 0;; ++seen) {
      wait_while(round_, seen, spins_);
      if (ended_) return;
      work(number);
      if (working_.fetch_sub(1) == 1) working_.notify_one();
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
  alignas(64) std::atomic<unsigned> round_ = 0;  ///< regions so far
  alignas(64) std::atomic<int> working_ = 0;     ///< threads that have not ended this one
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

void Barrier::wait() {
  const unsigned round = round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1) < threads_ - 1) return wait_while(round_, round, spins_);
  arrived_.store(0, std::memory_order_relaxed);
  round_.fetch_add(1);
  round_.notify_all();
}

bool in_team() { return inside; }

void detail::run_team(int threads, void (*call)(void*, const TeamThread&), void* body) {
  team_of(threads).run(call, body);
}

}  // namespace bs
