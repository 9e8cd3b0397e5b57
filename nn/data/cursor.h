#pragma once
/** @file A place in an endless series, which a checkpoint saves. */
#include <cstdint>

namespace bs::data {

/** @brief What every loader is to a checkpoint. */
class Cursor {
 public:
  virtual ~Cursor() = default;
  /** @brief Number of the next batch. */
  virtual int64_t cursor() const = 0;
  /** @brief Goes on from batch `cursor`. @throws Error for a negative one. */
  virtual void seek(int64_t cursor) = 0;
};

}  // namespace bs::data
