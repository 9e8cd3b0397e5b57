#include <bs/lib/progress.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

using namespace bs;

namespace {

/// A terminal of 60 columns that remembers what was written to it. There is none where the system
/// has no pseudo-terminals, as in a chroot without /dev/pts.
class Terminal {
 public:
  Terminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0) return;
    const char* name = ::ptsname(master_);
    const int slave = name ? ::open(name, O_RDWR | O_NOCTTY) : -1;
    if (slave < 0) return;
    winsize size{};
    size.ws_col = 60;
    ::ioctl(slave, TIOCSWINSZ, &size);
    stream_ = ::fdopen(slave, "w");
    if (!stream_) ::close(slave);
  }
  ~Terminal() {
    if (stream_) std::fclose(stream_);
    if (master_ >= 0) ::close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  /// Null where the system gave no terminal.
  std::FILE* stream() const { return stream_; }
  /// What was written since the last call. The kernel hands it over in pieces, so a mark of our own
  /// tells where it ends.
  std::string text() const {
    constexpr char mark = '\1';
    std::fputc(mark, stream_);
    std::fflush(stream_);
    std::string text;
    while (!text.ends_with(mark)) {
      char buffer[1024];
      const ssize_t got = ::read(master_, buffer, sizeof buffer);
      if (got <= 0) break;
      text.append(buffer, static_cast<size_t>(got));
    }
    return text.substr(0, text.size() - 1);
  }

 private:
  int master_;
  std::FILE* stream_ = nullptr;
};

std::string content(std::FILE* file) {
  std::string text(static_cast<size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  CHECK(std::fread(text.data(), 1, text.size(), file) == text.size());
  return text;
}

}  // namespace

TEST_CASE("progress durations and counts") {
  CHECK(format_duration(0) == "0:00");
  CHECK(format_duration(59.6) == "1:00");
  CHECK(format_duration(65) == "1:05");
  CHECK(format_duration(3600 * 2 + 60 * 3 + 4) == "2:03:04");
  CHECK(format_duration(86400 * 3 + 3600 * 4 + 300) == "3 d 04:05");
  CHECK(format_duration(-5) == "0:00");
  CHECK(format_count(0) == "0");
  CHECK(format_count(987) == "987");
  CHECK(format_count(1.25) == "1.25");
  CHECK(format_count(999.6) == "1k");
  CHECK(format_count(12345) == "12.3k");
  CHECK(format_count(4.56e7) == "45.6M");
}

TEST_CASE("progress line") {
  ProgressState s{.label = "train",
                  .done = 30,
                  .total = 120,
                  .rate = 3400,
                  .seconds_left = 35,
                  .unit = "token",
                  .note = "loss 2.31"};
  CHECK(progress_line(s, 0) == "train   30/120  25%  3.4k token/s  0:35 left  loss 2.31");
  CHECK(progress_line(s, 100) ==
        "train   30/120 [#######-----------------------]  25%  3.4k token/s  0:35 left  loss 2.31");
  CHECK(progress_line(s, 72) ==
        "train   30/120 [###-----------]  25%  3.4k token/s  0:35 left  loss 2.31");
  CHECK(progress_line(s, 56) == "train   30/120  25%  3.4k token/s  0:35 left  loss 2.31");
  CHECK(progress_line(s, 19) == "train   30/120  25%");
  s.done = 120;
  CHECK(progress_line(s, 90).find("[##############################] 100%") != std::string::npos);
  CHECK(progress_line({.done = 7, .unit = "step"}, 0) == "7");
  CHECK(progress_line({.label = "read", .done = 7, .rate = 2, .unit = "step"}, 80) ==
        "read  7  2 step/s");
  CHECK(progress_line({.label = "ééé", .done = 1}, 2) == "éé");
}

TEST_CASE("progress is quiet where nobody watches") {
  std::FILE* file = std::tmpfile();
  {
    Progress progress("train", 10, {.stream = file});
    for (int i = 1; i <= 10; ++i) progress.update(i, "loss 1");
    progress.print("saved");
    CHECK(std::ftell(file) == 6);
  }
  const std::string text = content(file);  // one line at the end, and no control characters
  CHECK(text.starts_with("saved\ntrain  10/10 100%"));
  CHECK(text.ends_with("loss 1\n"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
  CHECK(text.find_first_of("\r\x1b") == std::string::npos);
  std::fclose(file);

  std::FILE* silent = std::tmpfile();
  {
    Progress progress("train", 10, {.line_seconds = 0, .stream = silent});
    progress.update(10);
  }
  CHECK(std::ftell(silent) == 0);
  std::fclose(silent);
}

TEST_CASE("progress redraws on a terminal and never wraps") {
  const Terminal terminal;
  if (!terminal.stream()) {
    MESSAGE("SKIPPED: this system gives no pseudo-terminal");
    return;
  }
  Progress progress("train", 1000, {.redraw_seconds = 0, .stream = terminal.stream()});
  progress.update(1, std::string(100, 'x'));
  const std::string first = terminal.text();
  CHECK(first.starts_with("\rtrain     1/1000"));
  CHECK(first.ends_with("x\x1b[K"));
  CHECK(first.size() == 59 + 4);
  progress.print("saved");
  CHECK(terminal.text().starts_with("\r\x1b[Ksaved\r\n\rtrain     1/1000"));
  progress.update(1000);
  progress.finish();
  progress.finish();
  const std::string last = terminal.text();
  CHECK(last.find("] 100%") != std::string::npos);
  CHECK(last.ends_with("\x1b[K\r\n"));
  CHECK(std::count(last.begin(), last.end(), '\n') == 1);
}

TEST_CASE("progress tells the rate") {
  std::FILE* file = std::tmpfile();
  Progress progress("train", 100, {.first = 50, .per_step = 1000, .unit = "token", .stream = file});
  CHECK(progress.rate() == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  progress.update(60);
  CHECK(progress.rate() > 100);     // 10 steps of 1000 tokens in 0.2 s, or more on a busy machine:
  CHECK(progress.rate() <= 50000);  // the 50 steps done before do not count
  progress.finish();
  CHECK(content(file).find("token/s") != std::string::npos);
  std::fclose(file);
}
