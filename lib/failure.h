#pragma once
/** @file An exception on its way out of a parallel region. */
#include <atomic>
#include <exception>

namespace bs {

/** @brief The first exception of a region's threads, thrown behind it. None may leave the region
 *  itself, and all that needs memory can throw. */
class Failure {
 public:
  /** @brief Calls `body`, unless a thread has failed already. */
  template <class Body>
  void guard(Body&& body) noexcept {
    if (any()) return;
    try {
      body();
    } catch (...) {
      if (!failed_.exchange(true)) first_ = std::current_exception();
    }
  }
  /** @brief Whether a thread has failed; behind a barrier all threads see the same. */
  bool any() const { return failed_; }
  /** @brief Throws the exception, if there was one; to be called behind the region. */
  void rethrow() const {
    if (any()) std::rethrow_exception(first_);
  }

 private:
  std::atomic<bool> failed_ = false;
  std::exception_ptr first_;
};

}  // namespace bs
