#include <bs/examples/sparse_transformer/chart.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace bs::example {
namespace {

constexpr double width = 760, height = 420;
constexpr double left = 56, right = 16, top = 40, bottom = 44;

struct Point {
  double step, bits;
};

/// A number without trailing zeros.
std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", x);
  return text;
}
/// A coordinate to a tenth of a pixel.
std::string coordinate(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", x);
  return text;
}

/// 1, 2 or 5 times a power of ten, so that an axis of this length has about six marks.
double mark_distance(double length) {
  const double rough = length / 6;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

/// The plane of the picture, and what is drawn on it so far.
class Plane {
 public:
  Plane(double steps, double lowest, double highest)
      : steps_(steps), lowest_(lowest), highest_(highest) {}

  double x(double step) const { return left + step / steps_ * (width - left - right); }
  double y(double bits) const {
    return height - bottom - (bits - lowest_) / (highest_ - lowest_) * (height - top - bottom);
  }

  void line(double x1, double y1, double x2, double y2, const char* style) {
    svg_ += "<line x1='" + coordinate(x1) + "' y1='" + coordinate(y1) + "' x2='" + coordinate(x2) +
            "' y2='" + coordinate(y2) + "' " + style + "/>\n";
  }
  void text(double x, double y, const std::string& text, const char* style) {
    svg_ += "<text x='" + coordinate(x) + "' y='" + coordinate(y) + "' " + style + ">" + text +
            "</text>\n";
  }
  void curve(const std::vector<Point>& points, const char* style) {
    svg_ += "<polyline fill='none' points='";
    for (const Point& p : points) svg_ += coordinate(x(p.step)) + "," + coordinate(y(p.bits)) + " ";
    svg_ += "' " + std::string(style) + "/>\n";
  }
  void dots(const std::vector<Point>& points, const char* style) {
    for (const Point& p : points)
      svg_ += "<circle r='3' cx='" + coordinate(x(p.step)) + "' cy='" + coordinate(y(p.bits)) +
              "' " + style + "/>\n";
  }
  void axes() {
    const double step_marks = mark_distance(steps_);
    for (double s = 0; s <= steps_; s += step_marks)
      text(x(s), height - bottom + 18, number(s), "text-anchor='middle'");
    const double bit_marks = mark_distance(highest_ - lowest_);
    for (double b = std::ceil(lowest_ / bit_marks) * bit_marks; b <= highest_; b += bit_marks) {
      line(left, y(b), width - right, y(b), "stroke='#ddd'");
      text(left - 8, y(b) + 4, number(b), "text-anchor='end'");
    }
    text((left + width - right) / 2, height - 8, "step", "text-anchor='middle'");
    text(left, 24, "bits per byte", "font-weight='bold'");
  }

  std::string finish() const {
    return "<svg xmlns='http://www.w3.org/2000/svg' width='" + number(width) + "' height='" +
           number(height) +
           "' font-family='sans-serif' font-size='12' fill='#333'>\n"
           "<rect width='100%' height='100%' fill='white'/>\n" +
           svg_ + "</svg>\n";
  }

 private:
  double steps_, lowest_, highest_;
  std::string svg_;
};

/// Mean over a window of a fortieth of the curve around each point.
std::vector<Point> smooth(const std::vector<Point>& points) {
  const size_t n = points.size(), radius = n / 80;
  std::vector<double> sums(n + 1, 0);
  for (size_t i = 0; i < n; ++i) sums[i + 1] = sums[i] + points[i].bits;
  std::vector<Point> result = points;
  for (size_t i = 0; i < n; ++i) {
    const size_t first = i > radius ? i - radius : 0, last = std::min(n, i + radius + 1);
    result[i].bits = (sums[last] - sums[first]) / static_cast<double>(last - first);
  }
  return result;
}

}  // namespace

std::string loss_chart(const History& history) {
  std::vector<Point> training, held_out;
  for (const StepMetrics& m : history.steps())
    training.push_back({static_cast<double>(m.step), bits(m.loss)});
  for (const EvaluationMetrics& m : history.evaluations())
    held_out.push_back({static_cast<double>(m.step), bits(m.loss)});
  const double bigram =
      history.evaluations().empty() ? 0 : bits(history.evaluations().back().bigram);

  double last = 1, lowest = bigram, highest = std::max(bigram, 1.0);
  for (const auto* points : {&training, &held_out})
    for (const Point& p : *points) {
      last = std::max(last, p.step);
      lowest = std::min(lowest, p.bits);
      highest = std::max(highest, p.bits);
    }
  Plane plane(last, std::floor(lowest), std::ceil(highest));
  plane.axes();
  plane.curve(training, "stroke='#9ecae1'");
  plane.curve(smooth(training), "stroke='#2171b5' stroke-width='2'");
  plane.curve(held_out, "stroke='#d94801'");
  plane.dots(held_out, "fill='#d94801'");
  if (bigram > 0)
    plane.line(left, plane.y(bigram), width - right, plane.y(bigram),
               "stroke='#238b45' stroke-dasharray='6 4'");
  plane.text(width - right, 24,
             "<tspan fill='#2171b5'>training</tspan>  <tspan fill='#d94801'>held out</tspan>  "
             "<tspan fill='#238b45'>bigram</tspan>",
             "text-anchor='end' xml:space='preserve'");
  return plane.finish();
}

}  // namespace bs::example
