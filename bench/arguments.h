#pragma once
/** @file The command line of a benchmark, and the options that all of them have. */
#include <bs/bench/measure.h>
#include <bs/lib/dtype.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bs::bench {

/** @brief `--name value` pairs, each read once by its name into a variable that holds the default.
 *
 *      Arguments arguments(argc, argv, "bench_x [options]\n  --size N   default 512\n");
 *      const Settings settings(arguments);
 *      arguments.read("--size", size);
 *      arguments.finish();  // complains about what nobody read
 */
class Arguments {
 public:
  /** @brief For `--help` prints `help` and the options of Settings, and exits. */
  Arguments(int argc, char** argv, std::string_view help);

  void read(const char* name, int64_t& value);
  void read(const char* name, int& value);
  void read(const char* name, double& value);
  void read(const char* name, std::string& value);
  void read(const char* name, Device& value);
  void read(const char* name, DType& value);
  /** @name Lists, separated by commas
   *  @{ */
  void read(const char* name, std::vector<int64_t>& values);
  void read(const char* name, std::vector<int>& values);
  void read(const char* name, std::vector<double>& values);
  void read(const char* name, std::vector<std::string>& values);
  /** @} */
  /** @throws Error naming an option that was not read. */
  void finish() const;

  /** @brief The command that measures the same: as it was typed, without the folder of the program
   *  and the file that takes the figures. */
  const std::string& command() const { return command_; }

 private:
  /// The value of an option, or null; it counts as read from now on.
  const std::string* take(const char* name);
  std::string command_;
  std::vector<std::pair<std::string, std::string>> options_;
  std::vector<std::string> read_;
};

/** @brief What every benchmark may be told: `--device --dtype --seconds --runs --json`. */
struct Settings {
  explicit Settings(Arguments& arguments, DType default_dtype = f32);
  Device device;
  DType dtype;
  MeasureOptions measure;
  std::string json;     ///< file for the record; empty: none
  std::string command;  ///< see Arguments::command
};

}  // namespace bs::bench
