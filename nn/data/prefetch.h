#pragma once
/** @file Making things one after the other on a thread of their own, ahead of their use. */
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace bs::data {

/** @brief Calls make(from), make(from + 1), ... on a thread, at most `depth` ahead of next(). An
 *  exception of make reaches the caller of next() in its turn, and ends the series. */
template <class T>
class Prefetcher {
 public:
  Prefetcher(std::function<T(int64_t)> make, int64_t from, size_t depth)
      : make_(std::move(make)), depth_(depth), thread_([this, from] { run(from); }) {}
  /** @brief Waits for the call of make that is under way, if any. */
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /** @brief The next result, waited for where it is not ready. @throws what make threw. */
  T next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !ready_.empty() || error_; });
    if (ready_.empty()) std::rethrow_exception(error_);
    T result = std::move(ready_.front());
    ready_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return result;
  }

 private:
  void run(int64_t index) {
    for (;; ++index) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || ready_.size() < depth_; });
        if (stop_) return;
      }
      std::optional<T> made;
      std::exception_ptr error;
      try {
        made = make_(index);
      } catch (...) {
        error = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        if (made) ready_.push_back(std::move(*made));
        error_ = error;
      }
      changed_.notify_all();
      if (error) return;
    }
  }

  std::function<T(int64_t)> make_;
  size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> ready_;
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;  // last: it starts when all else is there
};

}  // namespace bs::data
