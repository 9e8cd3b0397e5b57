#pragma once
/** @file A GPU as plans see it: plain numbers, in nanoseconds and bytes. */
#include <bs/lib/device.h>

#include <cstdint>

namespace bs::cuda {

/** @brief What times are estimated from. The values here are those of an H100 SXM under load, which
 *  stand in where there is no GPU. */
struct Gpu {
  int multiprocessors = 132;
  int capability = 90;                       ///< 10 * major + minor
  int64_t shared_bytes = 227 * 1024;         ///< shared memory that one CTA may have
  int64_t l2_bytes = int64_t{50} << 20;      ///< of the L2 cache
  int64_t memory_bytes = int64_t{80} << 30;  ///< of device memory
  int64_t free_bytes = memory_bytes;         ///< of it, as a plan is made
  double clock = 1.7;         ///< cycles a nanosecond, while tensor cores are at work
  double memory_rate = 3352;  ///< bytes a nanosecond of the memory bus
  double copy_rate = 2800;    ///< bytes a nanosecond that copies move; an H200\'s too
  double launch = 4000;       ///< nanoseconds until a small kernel is done

  /// Nanoseconds in which L2 hands one multiprocessor a line of 128 bytes.
  double line() const { return 3.2 / clock; }
  /// Multiply-adds a nanosecond of dense products, all multiprocessors together.
  double half_rate() const { return scaled(395e3); }
  double tf32_rate() const { return scaled(208e3); }
  double split_rate() const { return scaled(62e3); }  ///< f32 as three products of TF32
  bool operator==(const Gpu&) const = default;

 private:
  /// A rate measured with 132 multiprocessors at 1.7 GHz, for this GPU.
  double scaled(double rate) const { return rate * multiprocessors * clock / (132 * 1.7); }
};

/** @brief The GPU of a device by its properties, none of whose memory is taken; the values above
 *  for the host. */
const Gpu& gpu_of(Device device);
/** @brief The same with the memory that is free now. Takes some microseconds. */
Gpu gpu_now(Device device);

}  // namespace bs::cuda
