#pragma once
/** @file A place in an endless series, which a checkpoint saves. */
#include <cstdint>

namespace bs::data {

/** @brief What every loader is to a checkpoint. */
class Cursor {
 public:
  /** @brief More batches than any run has: a loader gives no batch past it. Up to here no number
   *  made of a cursor overflows. */
  static constexpr int64_t most = int64_t{1} << 40;

  virtual ~Cursor() = default;
  /** @brief Number of the next batch. */
  virtual int64_t cursor() const = 0;
  /** @brief Goes on from batch `cursor`. @throws Error unless it is from 0 to `most`. */
  virtual void seek(int64_t cursor) = 0;
};

}  // namespace bs::data
