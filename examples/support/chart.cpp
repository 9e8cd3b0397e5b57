#include <bs/examples/support/chart.h>
#include <bs/lib/check.h>
#include <bs/lib/format_fixed.h>

#include <algorithm>
#include <cmath>

namespace bs::example {

std::string coordinate(double x) { return format_fixed(x, 1); }

namespace {

constexpr double width = 760, height = 420;
constexpr double left = 56, right = 16, top = 40, bottom = 44;

/// A number without trailing zeros.
std::string number(double x) { return format("{}", x); }
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
  double y(double value) const {
    return height - bottom - (value - lowest_) / (highest_ - lowest_) * (height - top - bottom);
  }

  void line(double x1, double y1, double x2, double y2, const std::string& style) {
    svg_ += "<line x1='" + coordinate(x1) + "' y1='" + coordinate(y1) + "' x2='" + coordinate(x2) +
            "' y2='" + coordinate(y2) + "' " + style + "/>\n";
  }
  void text(double x, double y, const std::string& text, const std::string& style) {
    svg_ += "<text x='" + coordinate(x) + "' y='" + coordinate(y) + "' " + style + ">" + text +
            "</text>\n";
  }
  void curve(const std::vector<Point>& points, const std::string& style) {
    svg_ += "<polyline fill='none' points='";
    for (const Point& p : points)
      svg_ += coordinate(x(p.step)) + "," + coordinate(y(p.value)) + " ";
    svg_ += "' " + style + "/>\n";
  }
  void dots(const std::vector<Point>& points, const std::string& style) {
    for (const Point& p : points)
      svg_ += "<circle r='3' cx='" + coordinate(x(p.step)) + "' cy='" + coordinate(y(p.value)) +
              "' " + style + "/>\n";
  }
  void axes(const std::string& title, const std::string& axis) {
    const double step_marks = mark_distance(steps_);
    for (double s = 0; s <= steps_; s += step_marks)
      text(x(s), height - bottom + 18, number(s), "text-anchor='middle'");
    const double marks = mark_distance(highest_ - lowest_);
    for (double b = std::ceil(lowest_ / marks) * marks; b <= highest_; b += marks) {
      line(left, y(b), width - right, y(b), "stroke='#ddd'");
      text(left - 8, y(b) + 4, number(b), "text-anchor='end'");
    }
    text((left + width - right) / 2, height - 8, axis, "text-anchor='middle'");
    text(left, 24, title, "font-weight='bold'");
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
  for (size_t i = 0; i < n; ++i) sums[i + 1] = sums[i] + points[i].value;
  std::vector<Point> result = points;
  for (size_t i = 0; i < n; ++i) {
    const size_t first = i > radius ? i - radius : 0, last = std::min(n, i + radius + 1);
    result[i].value = (sums[last] - sums[first]) / static_cast<double>(last - first);
  }
  return result;
}

}  // namespace

std::string chart(const std::string& title, const std::vector<Curve>& curves,
                  const std::vector<Level>& levels, const std::string& axis) {
  double last = 1, lowest = 1e300, highest = -1e300;
  for (const Curve& curve : curves)
    for (const Point& p : curve.points) {
      last = std::max(last, p.step);
      lowest = std::min(lowest, p.value);
      highest = std::max(highest, p.value);
    }
  for (const Level& level : levels) {
    lowest = std::min(lowest, level.value);
    highest = std::max(highest, level.value);
  }
  if (lowest > highest) lowest = 0, highest = 1;
  Plane plane(last, std::floor(lowest), std::max(std::ceil(highest), std::floor(lowest) + 1));
  plane.axes(title, axis);
  std::string legend;
  const auto name = [&](const std::string& colour, const std::string& text) {
    legend += "<tspan fill='" + colour + "'>" + text + "</tspan>  ";
  };
  for (const Curve& curve : curves) {
    const std::string stroke = "stroke='" + curve.colour + "'";
    if (curve.noisy) {
      plane.curve(curve.points, stroke + " stroke-opacity='0.35'");
      plane.curve(smooth(curve.points), stroke + " stroke-width='2'");
    } else {
      plane.curve(curve.points, stroke);
      plane.dots(curve.points, "fill='" + curve.colour + "'");
    }
    name(curve.colour, curve.name);
  }
  for (const Level& level : levels) {
    plane.line(left, plane.y(level.value), width - right, plane.y(level.value),
               "stroke='" + level.colour + "' stroke-dasharray='6 4'");
    name(level.colour, level.name);
  }
  plane.text(width - right, 24, legend, "text-anchor='end' xml:space='preserve'");
  return plane.finish();
}

}  // namespace bs::example
