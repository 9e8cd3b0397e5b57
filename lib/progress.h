#pragma once
/** @file Progress of a long run: a line that redraws on a terminal, a line now and then elsewhere.
 */
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace bs {

struct ProgressOptions {
  int64_t first = 0;            ///< steps done before, by the run being resumed
  double per_step = 1;          ///< what the rate counts in one step, for example its tokens
  std::string unit = "step";    ///< ... and its name: "1.2k step/s"
  double redraw_seconds = 0.1;  ///< on a terminal, at most this often
  double line_seconds = 30;     ///< elsewhere, a whole line this often; 0: nothing at all
  std::FILE* stream = stderr;
};

/** @brief Shows `label  120/1000 [###---] 12%  3.4k token/s  0:35 left  note`.
 *
 *  Not thread-safe. On a terminal the line is cut to its width and never wraps. */
class Progress {
 public:
  /** @param[in] total steps in all, or 0 when nobody knows: then no bar and no time left */
  Progress(std::string label, int64_t total, ProgressOptions options = {});
  /** @brief Ends the line. */
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /** @brief `done` steps are done; `note` may tell the loss or the like. */
  void update(int64_t done, std::string_view note = {});
  /** @brief Prints a line of its own above the progress. */
  void print(std::string_view line);
  /** @brief Units a second: smoothed over the last seconds, not the average of all. */
  double rate() const { return rate_; }
  /** @brief Draws the last state and ends the line; the destructor does it too. */
  void finish();

 private:
  void measure(double now);
  void draw();
  std::string label_;
  int64_t total_;
  ProgressOptions options_;
  bool terminal_;
  bool finished_ = false;
  bool drawn_ = false;  // the terminal's cursor stands in our line
  int64_t done_ = 0, measured_ = 0;
  double rate_ = 0;
  std::string note_;
  double last_draw_, last_measure_;  // seconds of a steady clock
};

/** @brief What a progress line says. */
struct ProgressState {
  std::string_view label = {};
  int64_t done = 0, total = 0;
  double rate = 0;          ///< units a second; 0: not known yet
  double seconds_left = 0;  ///< negative: not known
  std::string_view unit = {}, note = {};
};
/** @brief The line for `state`, in at most `width` characters (0: no limit, and no bar). */
std::string progress_line(const ProgressState& state, int width);
/** @brief Seconds as "1:05", "2:03:04" or "3 d 04:05". */
std::string format_duration(double seconds);
/** @brief Three digits and a prefix of thousand: "987", "1.23k", "45.6M". */
std::string format_count(double value);

}  // namespace bs
