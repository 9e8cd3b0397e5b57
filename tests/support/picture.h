#pragma once
/** @file Patterns as pictures, to compare with ones drawn by hand. */
#include <bs/lib/layout.h>

#include <string>
#include <vector>

namespace bs::test {

using Picture = std::vector<std::string>;

/** @brief One head of a layout, a '#' for each block kept. */
inline Picture picture(const LayoutPtr& layout, int head = 0) {
  Picture lines;
  for (int row = 0; row < layout->rows(); ++row) {
    std::string line;
    for (int col = 0; col < layout->cols(); ++col)
      line += layout->contains(head, row, col) ? '#' : '.';
    lines.push_back(line);
  }
  return lines;
}

/** @brief Blocks kept in one line of a picture. */
inline int count(const std::string& line) {
  int kept = 0;
  for (char c : line) kept += c == '#';
  return kept;
}

inline bool is_causal(const Layout& layout) {
  const LayoutView v = layout.view(Device::cpu());
  for (int32_t i = 0; i < v.nnz; ++i)
    if (v.col_of[i] > v.row_of[i]) return false;
  return true;
}

}  // namespace bs::test
