#include <bs/examples/image_classifier/pictures.h>
#include <bs/kernels/copy.h>
#include <bs/lib/check.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace bs::example {
namespace {

/// Grey values row by row, each a square of `scale` pixels.
std::string pgm(int64_t width, int64_t height, int64_t scale, const std::vector<uint8_t>& grey) {
  std::string text = format("P5\n{} {}\n255\n", width * scale, height * scale);
  for (int64_t row = 0; row < height * scale; ++row)
    for (int64_t column = 0; column < width * scale; ++column)
      text.push_back(
          static_cast<char>(grey[static_cast<size_t>(row / scale * width + column / scale)]));
  return text;
}

}  // namespace

std::string confusion_picture(const std::vector<int64_t>& confusion, int64_t classes) {
  std::vector<uint8_t> grey;
  for (int64_t row = 0; row < classes; ++row) {
    const auto first = confusion.begin() + row * classes;
    const auto all = static_cast<double>(std::accumulate(first, first + classes, int64_t{0}));
    for (int64_t column = 0; column < classes; ++column) {
      const double share = all > 0 ? static_cast<double>(first[column]) / all : 0;
      // The root, so that a few in a hundred can be seen.
      grey.push_back(static_cast<uint8_t>(std::lround(255 * (1 - std::sqrt(share)))));
    }
  }
  return pgm(classes, classes, 12, grey);
}

std::string filter_picture(const Tensor& weight) {
  const Tensor w = to(cast(weight, f32), Device::cpu());
  const int64_t filters = w.size(0), rows = w.size(2), columns = w.size(3);
  const int64_t across = std::min<int64_t>(filters, 8), down = ceil_div(filters, across);
  const int64_t width = across * (columns + 1) + 1, height = down * (rows + 1) + 1;
  std::vector<uint8_t> grey(static_cast<size_t>(width * height), 255);
  for (int64_t k = 0; k < filters; ++k) {
    std::vector<double> values;
    double top = 1e-30;
    for (int64_t i = 0; i < rows * columns; ++i) {
      values.push_back(
          w.select(0, k).select(0, 0).select(0, i / columns).select(0, i % columns).item());
      top = std::max(top, std::abs(values.back()));
    }
    for (int64_t i = 0; i < rows * columns; ++i) {
      const int64_t row = k / across * (rows + 1) + 1 + i / columns;
      const int64_t column = k % across * (columns + 1) + 1 + i % columns;
      grey[static_cast<size_t>(row * width + column)] =
          static_cast<uint8_t>(std::lround(127.5 + 127.5 * values[static_cast<size_t>(i)] / top));
    }
  }
  return pgm(width, height, 8, grey);
}

std::string worst_pairs(const std::vector<int64_t>& confusion,
                        const std::vector<std::string>& names, size_t count) {
  std::vector<size_t> order;
  for (size_t i = 0; i < confusion.size(); ++i)
    if (i / names.size() != i % names.size() && confusion[i] > 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return confusion[a] > confusion[b]; });
  std::string text;
  for (size_t i = 0; i < std::min(count, order.size()); ++i)
    text += format("{}{} as {} ({})", i == 0 ? "" : ", ", names[order[i] / names.size()],
                   names[order[i] % names.size()], confusion[order[i]]);
  return text;
}

}  // namespace bs::example
