#pragma once
/** @file A GPU as plans see it: plain numbers, in nanoseconds and bytes. */
#include <bs/lib/device.h>

#include <cstdint>

namespace bs::cuda {

/** @brief What times are estimated from. The values here are those of an H100 SXM under load, which
 *  stand in where there is no GPU, and serve an H200 too. */
struct Gpu {
  int multiprocessors = 132;
  int capability = 90;                       ///< 10 * major + minor
  int64_t shared_bytes = 227 * 1024;         ///< shared memory that one CTA may have
  int64_t l2_bytes = int64_t{50} << 20;      ///< of the L2 cache
  int64_t memory_bytes = int64_t{80} << 30;  ///< of device memory
  int64_t free_bytes = memory_bytes;         ///< of it, as a plan is made
  double memory_rate = 3352;                 ///< bytes a nanosecond of the memory bus
  double clock = 1.7;        ///< cycles a nanosecond, while tensor cores are at work
  double copy_rate = 2800;   ///< bytes a nanosecond that copies move, read and written
  double launch = 4000;      ///< nanoseconds until a small kernel is done
  double line_cycles = 3.2;  ///< in which L2 hands one multiprocessor a line of 128 bytes
  /// Multiply-adds of dense products in a cycle of a multiprocessor: of 16 bits, and of TF32.
  double half_products = 395e3 / (132 * 1.7);
  double tf32_products = 208e3 / (132 * 1.7);

  /// Nanoseconds in which L2 hands one multiprocessor a line of 128 bytes.
  double line() const { return line_cycles / clock; }
  /// Multiply-adds a nanosecond of dense products, all multiprocessors together.
  double half_rate() const { return half_products * clock * multiprocessors; }
  double tf32_rate() const { return tf32_products * clock * multiprocessors; }
  double split_rate() const { return tf32_rate() * 62 / 208; }  ///< f32 as three of TF32
  bool operator==(const Gpu&) const = default;
};

/** @brief The GPU of a device by its properties, none of whose memory is taken; the values above
 *  for the host. */
const Gpu& gpu_of(Device device);
/** @brief The same with the memory that is free now. Takes some microseconds. */
Gpu gpu_now(Device device);

}  // namespace bs::cuda
