#include <bs/examples/rnnt_lstm/alignment_chart.h>
#include <bs/examples/support/chart.h>
#include <bs/lib/format_fixed.h>

#include <algorithm>
#include <cmath>

namespace bs::example {
namespace {

constexpr double cell = 12, left = 40, top = 30, bottom = 40;

std::string escaped(const std::string& character) {
  if (character == "<") return "&lt;";
  if (character == "&") return "&amp;";
  if (character == " ") return "\u2423";
  return character;
}

std::string text(double x, double y, const std::string& what, const char* anchor) {
  return "<text x='" + coordinate(x) + "' y='" + coordinate(y) + "' text-anchor='" + anchor + "'>" +
         what + "</text>\n";
}

}  // namespace

std::string alignment_chart(const decode::LatticePosterior& posterior,
                            const std::vector<std::string>& characters, double seconds) {
  const int64_t frames = posterior.frames, rows = posterior.tokens + 1;
  const double width = left + cell * static_cast<double>(frames) + 16;
  const double height = top + cell * static_cast<double>(rows) + bottom;
  const auto x = [](int64_t t) { return left + cell * static_cast<double>(t); };
  const auto y = [=](int64_t u) { return height - bottom - cell * static_cast<double>(u + 1); };
  std::string svg = "<svg xmlns='http://www.w3.org/2000/svg' width='" + coordinate(width) +
                    "' height='" + coordinate(height) +
                    "' font-family='sans-serif' font-size='11' fill='#333'>\n"
                    "<rect width='100%' height='100%' fill='white'/>\n";
  for (int64_t t = 0; t < frames; ++t)
    for (int64_t u = 0; u < rows; ++u) {
      const double p = posterior.node[static_cast<size_t>(t * rows + u)];
      if (p < 0.005) continue;
      svg += "<rect x='" + coordinate(x(t)) + "' y='" + coordinate(y(u)) + "' width='" +
             coordinate(cell) + "' height='" + coordinate(cell) +
             "' fill='#2171b5' fill-opacity='" + format_fixed(std::sqrt(p), 2) + "'/>\n";
    }
  for (int64_t u = 0; u < posterior.tokens; ++u) {
    int64_t best = 0;
    const auto emit = [&](int64_t t) {
      return posterior.emit[static_cast<size_t>(t * posterior.tokens + u)];
    };
    for (int64_t t = 1; t < frames; ++t)
      if (emit(t) > emit(best)) best = t;
    svg += "<circle r='4' fill='none' stroke='#d94801' stroke-width='1.5' cx='" +
           coordinate(x(best) + cell / 2) + "' cy='" + coordinate(y(u) + cell / 2) + "'/>\n";
    svg += text(left - 6, y(u) + cell - 2, escaped(characters[static_cast<size_t>(u)]), "end");
  }
  const auto marks = static_cast<int64_t>(std::max(1.0, std::round(0.5 / seconds)));
  for (int64_t t = 0; t < frames; t += marks)
    svg += text(x(t), height - bottom + 16, coordinate(static_cast<double>(t) * seconds), "middle");
  svg += text(left + cell * static_cast<double>(frames) / 2, height - 6, "seconds", "middle");
  svg += text(left, 18, "where each character is heard", "start");
  return svg + "</svg>\n";
}

}  // namespace bs::example
