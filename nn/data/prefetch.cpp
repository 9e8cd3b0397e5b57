#include <bs/nn/data/prefetch.h>

#include <bs/lib/check.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

namespace bs::data {

struct PrefetchThread::State {
  Make make;
  size_t depth;
  std::mutex mutex = {};
  std::condition_variable changed = {};
  std::deque<std::shared_ptr<void>> ready = {};
  std::exception_ptr error = {};
  bool stop = false;
  std::thread thread = {};

  void run(int64_t index) {
    for (;; ++index) {
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return stop || ready.size() < depth; });
        if (stop) return;
      }
      std::shared_ptr<void> made;
      std::exception_ptr thrown;
      try {
        made = make(index);
      } catch (...) {
        thrown = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex);
        if (made) ready.push_back(std::move(made));
        error = thrown;
      }
      changed.notify_all();
      if (thrown) return;
    }
  }
};

PrefetchThread::PrefetchThread(Make make, int64_t from, size_t depth)
    : state_(new State{std::move(make), depth}) {
  BS_CHECK(state_->make, "prefetch: there is no function to call");
  BS_CHECK(depth >= 1, "prefetch: a depth of 0, with which nothing is made");
  try {
    state_->thread = std::thread([this, from] { state_->run(from); });  // when all else is there
  } catch (const std::system_error& error) {
    BS_THROW(Error, "prefetch: no thread to be had: {}", error.what());
  }
}

PrefetchThread::~PrefetchThread() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

std::shared_ptr<void> PrefetchThread::next() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return !state_->ready.empty() || state_->error; });
  if (state_->ready.empty()) std::rethrow_exception(state_->error);
  std::shared_ptr<void> result = std::move(state_->ready.front());
  state_->ready.pop_front();
  lock.unlock();
  state_->changed.notify_all();
  return result;
}

}  // namespace bs::data
