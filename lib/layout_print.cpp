#include <bs/lib/integers.h>
#include <bs/lib/layout.h>

#include <algorithm>

namespace bs {

namespace {

/// Whether two heads hold the same blocks.
bool same_pattern(const LayoutView& v, int a, int b) {
  const int32_t* first = v.row_offsets + int64_t{a} * v.rows;
  const int32_t* second = v.row_offsets + int64_t{b} * v.rows;
  for (int row = 0; row <= v.rows; ++row)
    if (first[row] - first[0] != second[row] - second[0]) return false;
  return std::equal(v.col_of + first[0], v.col_of + first[v.rows], v.col_of + second[0]);
}

/// One character for each square of `side` blocks of a head: kept, kept in part, or absent.
void draw_head(const LayoutView& v, int head, int side, std::string& text) {
  const auto across = static_cast<int>(ceil_div(v.cols, side));
  std::vector<int> kept(static_cast<size_t>(across));
  for (int top = 0; top < v.rows; top += side) {
    const int bottom = std::min(top + side, v.rows);
    std::fill(kept.begin(), kept.end(), 0);
    const int32_t* offsets = v.row_offsets + int64_t{head} * v.rows;
    for (int32_t i = offsets[top]; i < offsets[bottom]; ++i)
      ++kept[static_cast<size_t>(v.col_of[i] / side)];
    for (int x = 0; x < across; ++x) {
      const int count = kept[static_cast<size_t>(x)];
      const int64_t all = int64_t{bottom - top} * std::min(side, v.cols - x * side);
      text += count == 0 ? "·" : count == all ? "█" : "▒";
    }
    text += '\n';
  }
}

}  // namespace

std::string to_string(const Layout& layout, int width) {
  BS_CHECK(width > 0, "layout: a picture of width {}", width);
  const LayoutView v = layout.view(Device::cpu());
  std::string text = format("Layout({} heads of {} x {} blocks of {}, {} kept, density {})\n",
                            v.heads, v.rows, v.cols, v.block, v.nnz, layout.density());
  const int side = std::max(1, v.cols / width + (v.cols % width != 0));
  for (int head = 0; head < v.heads;) {
    int end = head + 1;
    while (end < v.heads && same_pattern(v, head, end)) ++end;
    if (v.heads > 1)
      text += end - head > 1 ? format("heads {}-{}:\n", head, end - 1) : format("head {}:\n", head);
    draw_head(v, head, side, text);
    head = end;
  }
  return text;
}

std::string to_svg(const Layout& layout) {
  constexpr double panel = 240;  // the longer side of one head, in pixels
  constexpr double gap = 16;
  const LayoutView v = layout.view(Device::cpu());
  const double cell = panel / std::max({v.rows, v.cols, 1});
  const double width = v.cols * cell;
  const double height = v.rows * cell;
  std::string text = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n",
      gap + v.heads * (width + gap), height + 2 * gap);
  for (int head = 0; head < v.heads; ++head) {
    text += format(
        "<g transform=\"translate({} {})\"><text y=\"-4\">head {}, {} blocks</text>\n"
        "<rect width=\"{}\" height=\"{}\" fill=\"#eef0f3\"/>\n<path fill=\"#2f5fb3\" d=\"",
        gap + head * (width + gap), gap, head, layout.nnz(head), width, height);
    for (int row = 0; row < v.rows; ++row) {
      const int32_t* line = v.row_offsets + int64_t{head} * v.rows + row;
      for (int32_t i = line[0]; i < line[1];) {  // neighbours in a row make one rectangle
        int32_t end = i + 1;
        while (end < line[1] && v.col_of[end] == v.col_of[end - 1] + 1) ++end;
        text += format("M{} {}h{}v{}h-{}z", v.col_of[i] * cell, row * cell, (end - i) * cell, cell,
                       (end - i) * cell);
        i = end;
      }
    }
    text += "\"/></g>\n";
  }
  return text + "</svg>\n";
}

}  // namespace bs
