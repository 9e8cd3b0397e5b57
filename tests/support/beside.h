#pragma once
/** @file What else a program may do on the GPU while tests run. */
#include <bs/lib/device.h>

#include <memory>

namespace bs::test {

/** @brief Until the end of the scope the calling thread's work goes to a stream that is not the
 *  library's own. */
class OtherStream {
 public:
  explicit OtherStream(Device device);
  OtherStream(const OtherStream&) = delete;
  OtherStream& operator=(const OtherStream&) = delete;
  ~OtherStream();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/** @brief Until the end of the scope a thread copies memory on a stream of its own, again and
 * again, with a launch each few microseconds. */
class BusyStream {
 public:
  explicit BusyStream(Device device);
  BusyStream(const BusyStream&) = delete;
  BusyStream& operator=(const BusyStream&) = delete;
  ~BusyStream();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bs::test
