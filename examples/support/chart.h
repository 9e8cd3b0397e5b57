#pragma once
/** @file Curves over the steps of a run, as SVG. */
#include <string>
#include <vector>

namespace bs::example {

struct Point {
  double step, value;
};

/** @brief Values over steps. */
struct Curve {
  std::string name, colour;
  std::vector<Point> points;
  bool noisy = false;  ///< drawn faintly under its moving average; else with a dot at each point
};
/** @brief A value to get below, as a line. */
struct Level {
  std::string name, colour;
  double value = 0;
};

/** @brief All of them in one picture with axes and a legend; the title names the unit, `axis` what
 *  stands for steps. */
std::string chart(const std::string& title, const std::vector<Curve>& curves,
                  const std::vector<Level>& levels = {}, const std::string& axis = "step");

/** @brief A coordinate to a tenth of a pixel. */
std::string coordinate(double x);

}  // namespace bs::example
