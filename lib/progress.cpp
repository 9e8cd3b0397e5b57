#include <bs/lib/progress.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <utility>

namespace bs {

namespace {

int terminal_width(std::FILE* stream) {
  winsize size{};
  const bool known = ::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

template <class... Args>
std::string printed(const char* pattern, Args... args) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, pattern, args...);
  return buffer;
}

/// The first `width` characters of UTF-8 text: bytes 10xxxxxx continue one.
std::string cut(const std::string& text, int width) {
  int characters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
    if (begins && characters++ == width) return text.substr(0, i);
  }
  return text;
}

/// Seconds of a clock that only goes on.
double now_in_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string format_duration(double seconds) {
  const long long all = std::llround(std::max(seconds, 0.0));
  const long long minutes = all / 60;
  const long long hours = minutes / 60;
  if (hours >= 24) return printed("%lld d %02lld:%02lld", hours / 24, hours % 24, minutes % 60);
  if (hours > 0) return printed("%lld:%02lld:%02lld", hours, minutes % 60, all % 60);
  return printed("%lld:%02lld", minutes, all % 60);
}

std::string format_count(double value) {
  constexpr const char* prefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  while (std::abs(value) >= 999.5 && prefix + 1 < std::size(prefixes)) {
    value /= 1000;
    ++prefix;
  }
  char digits[32];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general, 3);
  return std::string(digits, end.ptr) + prefixes[prefix];
}

std::string progress_line(const ProgressState& s, int width) {
  std::string head(s.label);
  if (!head.empty()) head += "  ";
  std::string tail;
  if (s.total > 0) {
    const double share = std::clamp(double(s.done) / double(s.total), 0.0, 1.0);
    const std::string total = std::to_string(s.total);
    head +=
        printed("%*lld/", static_cast<int>(total.size()), static_cast<long long>(s.done)) + total;
    tail += printed(" %3d%%", static_cast<int>(share * 100));
  } else {
    head += std::to_string(s.done);
  }
  if (s.rate > 0) tail += "  " + format_count(s.rate) + " " + std::string(s.unit) + "/s";
  if (s.total > 0 && s.seconds_left >= 0) tail += "  " + format_duration(s.seconds_left) + " left";
  if (!s.note.empty()) tail += "  " + std::string(s.note);
  if (width <= 0) return head + tail;
  constexpr int longest_bar = 30;
  constexpr int shortest_bar = 5;
  const int room = width - static_cast<int>(head.size() + tail.size()) - 3;
  if (s.total > 0 && room >= shortest_bar) {
    const int length = std::min(room, longest_bar);
    const auto filled =
        static_cast<size_t>(std::clamp<int64_t>(s.done, 0, s.total) * int64_t{length} / s.total);
    head += " [" + std::string(filled, '#') +
            std::string(static_cast<size_t>(length) - filled, '-') + "]";
  }
  return cut(head + tail, width);
}

Progress::Progress(std::string label, int64_t total, ProgressOptions options)
    : label_(std::move(label)),
      total_(total),
      options_(std::move(options)),
      terminal_(::isatty(::fileno(options_.stream)) == 1),
      done_(options_.first),
      measured_(options_.first),
      last_draw_(now_in_seconds()),
      last_measure_(last_draw_) {}

Progress::~Progress() { finish(); }

/// Folds the steps since the last measure into the rate, with a time constant of five seconds.
void Progress::measure(double now) {
  const double elapsed = now - last_measure_;
  if (done_ <= measured_ || elapsed <= 0) return;
  const double recent = double(done_ - measured_) * options_.per_step / elapsed;
  const double weight = rate_ == 0 ? 1 : 1 - std::exp(-elapsed / 5);
  rate_ += weight * (recent - rate_);
  measured_ = done_;
  last_measure_ = now;
}

void Progress::update(int64_t done, std::string_view note) {
  done_ = done;
  note_ = note;
  const double now = now_in_seconds();
  if (now - last_measure_ >= 0.1) measure(now);
  const double wait = terminal_ ? options_.redraw_seconds : options_.line_seconds;
  const bool silent = !terminal_ && wait <= 0;
  if (silent || now - last_draw_ < wait) return;
  last_draw_ = now;
  draw();
}

void Progress::draw() {
  const double steps = rate_ / options_.per_step;
  const double left = steps > 0 ? double(total_ - done_) / steps : -1;
  const ProgressState state{label_, done_, total_, rate_, left, options_.unit, note_};
  if (terminal_) {
    // Erase to the end of the line: the one before may have been longer.
    const std::string line = progress_line(state, terminal_width(options_.stream) - 1);
    std::fprintf(options_.stream, "\r%s\x1b[K", line.c_str());
    drawn_ = true;
  } else {
    std::fprintf(options_.stream, "%s\n", progress_line(state, 0).c_str());
  }
  std::fflush(options_.stream);
}

void Progress::print(std::string_view line) {
  if (drawn_) std::fputs("\r\x1b[K", options_.stream);
  drawn_ = false;
  std::fprintf(options_.stream, "%.*s\n", static_cast<int>(line.size()), line.data());
  if (terminal_ && !finished_) draw();
  std::fflush(options_.stream);
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  measure(now_in_seconds());
  if (terminal_ || options_.line_seconds > 0) draw();
  if (drawn_) std::fputc('\n', options_.stream);
  drawn_ = false;
  std::fflush(options_.stream);
}

}  // namespace bs
