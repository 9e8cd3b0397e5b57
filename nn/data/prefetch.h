#pragma once
/** @file Making things one after the other on a thread of their own, ahead of their use. */
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace bs::data {

/** @brief The thread of a Prefetcher, which does not know what it makes. */
class PrefetchThread {
 public:
  using Make = std::function<std::shared_ptr<void>(int64_t)>;
  /** @throws Error for no function, or a depth of 0: nothing would ever be made. */
  PrefetchThread(Make make, int64_t from, size_t depth);
  ~PrefetchThread();
  PrefetchThread(const PrefetchThread&) = delete;
  PrefetchThread& operator=(const PrefetchThread&) = delete;
  std::shared_ptr<void> next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/** @brief Calls make(from), make(from + 1), ... on a thread, at most `depth` ahead of next(). An
 *  exception of make reaches the caller of next() in its turn, and ends the series. When it is
 *  destroyed it waits for the call of make that is under way, if any. */
template <class T>
class Prefetcher {
 public:
  /** @throws Error for no function, or a depth of 0: nothing would ever be made. */
  Prefetcher(std::function<T(int64_t)> make, int64_t from, size_t depth)
      : thread_(maker(std::move(make)), from, depth) {}

  /** @brief The next result, waited for where it is not ready. @throws what make threw. */
  T next() { return std::move(*std::static_pointer_cast<T>(thread_.next())); }

 private:
  static PrefetchThread::Make maker(std::function<T(int64_t)> make) {
    if (!make) return {};
    return [make = std::move(make)](int64_t i) { return std::make_shared<T>(make(i)); };
  }
  PrefetchThread thread_;
};

}  // namespace bs::data
