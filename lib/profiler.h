#pragma once
/** @file Which operations ran, when, on what, and how fast: a table, and a trace for a viewer. */
#include <bs/lib/device.h>
#include <bs/lib/dims.h>
#include <bs/lib/dtype.h>
#include <bs/lib/operation.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace bs {

/** @brief A tensor that an operation was given. */
struct ProfiledTensor {
  DType dtype = DType::f32;
  Shape shape;
};

/** @brief One operation, or one TraceRange of a program, from its begin to its end on the host. */
struct ProfilerEvent {
  const char* name = nullptr;
  bool operation = false;  ///< else a TraceRange
  int thread = 0;          ///< from 0, in the order in which threads began to record
  int depth = 0;           ///< ranges of the thread around it
  int64_t begin = 0;       ///< nanoseconds since the profiler began
  int64_t end = 0;
  int64_t self = 0;     ///< nanoseconds in no range inside of it
  uint64_t number = 0;  ///< from 1, in the order in which ranges began
  Device device;
  Work work;  ///< its bytes are those of its tensors unless the operation says otherwise
  std::span<const ProfiledTensor> tensors;  ///< owned by the profiler
};

/** @brief A kernel, a copy or a fill of a GPU. */
struct DeviceEvent {
  std::string name;
  bool kernel = false;
  int device = 0;
  uint32_t stream = 0;  ///< a number for each
  int64_t begin = 0;    ///< nanoseconds since the profiler began
  int64_t end = 0;
  int64_t bytes = 0;           ///< that were copied or filled
  const char* from = nullptr;  ///< name of the range that launched it; null: none
  uint64_t number = 0;         ///< of that range
};

/** @brief What a device does at most, each a second; 0: not known. */
struct DeviceRates {
  double bytes = 0;   ///< that a copy reads and writes
  double half = 0;    ///< FLOP of dense products in 16 bits
  double single = 0;  ///< in f32
  double wide = 0;    ///< in f64

  /** @brief Seconds that the work takes at least, by its FLOP and its bytes; 0: not known. The
   * dtype is that of what is multiplied. */
  double least(const Work& work, DType dtype) const;
};
/** @brief Tells the rates of a device. device_rates() of kernels is one. */
using RatesOf = std::function<DeviceRates(Device)>;

/** @brief All events of one name, or of one name on the same shapes. */
struct ProfilerRow {
  std::string name;
  std::string tensors;  ///< such as "f32 [4, 8], f32 [8]"; empty where shapes are not told apart
  bool operation = false;
  int64_t calls = 0;
  double seconds = 0;         ///< from begin to end
  double self_seconds = 0;    ///< in no range inside of it
  double device_seconds = 0;  ///< of what it launched, but not the ranges inside of it
  double least_seconds = 0;   ///< that the work takes at the device's rates; 0: not known
  Work work;                  ///< sums; the density is the mean
  bool on_host = true;        ///< false: seconds are those of the launches, and rates say nothing
};

struct ProfilerOptions {
  int64_t most_events = 1 << 20;  ///< of a thread, and of GPUs; later ones are counted, not kept
  bool device_events = true;      ///< whether to ask CUPTI what GPUs do
};

struct ProfilerTableOptions {
  int64_t rows = 30;      ///< at most; 0: all
  bool by_shape = false;  ///< a row for each combination of shapes
  RatesOf rates = {};     ///< for the column "of peak", which is left out without
};

/** @brief Records all operations of all threads from its construction to stop(). An operation costs
 *  some tenths of a microsecond then. Where there is a GPU, CUPTI tells what it does; a launch
 * costs some microseconds more then. One at a time.
 *  @code
 *  Profiler profiler;
 *  train_step();
 *  profiler.stop();
 *  std::cout << profiler.table();
 *  profiler.write_trace("trace.json");  // for ui.perfetto.dev or chrome://tracing
 *  @endcode
 *  A TraceRange in a program is recorded too: its name must live as long as the profiler. */
class Profiler {
 public:
  /** @throws Error while another one records. */
  explicit Profiler(const ProfilerOptions& options = {});
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /** @brief Ends the recording. Ranges that have not ended are left out. */
  void stop();

  // What follows may be asked once it has stopped. @throws Error before
  /** @brief By thread, then by begin; a range stands before those inside of it. */
  std::span<const ProfilerEvent> events() const;
  /** @brief What GPUs did, by begin; nothing where they could not be watched. */
  std::span<const DeviceEvent> device_events() const;
  /** @brief Why GPUs were not watched; empty where they were, or where there is none. */
  const std::string& unwatched() const;
  /** @brief Events that came after ProfilerOptions::most_events. */
  int64_t dropped() const;
  /** @brief Operations and ranges by name, those with the most time of their own first. */
  std::vector<ProfilerRow> rows(bool by_shape = false, const RatesOf& rates = {}) const;
  /** @brief The rows as text: first operations, then ranges. */
  std::string table(const ProfilerTableOptions& options = {}) const;
  /** @brief Writes the events as a Chrome trace. @throws IoError */
  void write_trace(const std::string& path) const;

 private:
  void check_stopped(const char* what) const;
  void take_device_events();
  uint64_t session_ = 0;
  bool stopped_ = false;
  std::vector<ProfilerEvent> events_;
  std::vector<std::vector<ProfiledTensor>> tensors_;  ///< of each thread
  std::vector<DeviceEvent> device_events_;
  std::string unwatched_;
  int64_t dropped_ = 0;
};

}  // namespace bs
