#pragma once
/** @file Where random numbers come from: a seed and a count of the operations that drew. */
#include <bs/lib/host_device.h>

#include <cstdint>
#include <mutex>

namespace bs {

/** @brief Names one sequence of random numbers: element i of an operation is a pure function of
 *  (seed, offset, i). It is the same on every device and for any number of threads. */
struct RandomState {
  uint64_t seed = 0;
  uint64_t offset = 0;
  /** While a graph is recorded: a word of the device that each replay adds to the offset. */
  const uint64_t* shift = nullptr;
  /** @brief The number of the sequence, for the twin that draws. */
  BS_HOST_DEVICE uint64_t sequence() const { return shift ? offset + *shift : offset; }
  bool operator==(const RandomState&) const = default;
};

/** @brief Hands out sequences, a new one to each operation. Thread-safe. */
class Generator {
 public:
  explicit Generator(uint64_t seed = 0) : state_{seed, 0} {}
  /** @brief The sequence the next operation will get: all there is to save. */
  RandomState state() const;
  void set_state(RandomState state);
  /** @brief Starts over from `seed`. */
  void manual_seed(uint64_t seed) { set_state({seed, 0}); }
  /** @brief The sequence for one operation; the state moves on to the next. */
  RandomState next();
  /** @brief The first of `count` sequences in a row, behind which the state moves. While the seed
   *  is another than `seed`, the state stays and is returned. */
  RandomState advance(uint64_t count, uint64_t seed);

 private:
  mutable std::mutex mutex_;
  RandomState state_;
};

/** @brief The process' generator, which operations use when given no other. Starts with seed 0. */
Generator& default_generator();
/** @brief Restarts the default generator from `seed`. */
inline void manual_seed(uint64_t seed) { default_generator().manual_seed(seed); }

}  // namespace bs
