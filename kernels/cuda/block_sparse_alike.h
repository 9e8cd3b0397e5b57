#pragma once
/** @file Which block rows had better be worked on together: those that have most columns in common.
 *  What sdd and dsd choose rows by. */
#include <cstddef>
#include <vector>

namespace bs::cuda {

/** @brief Chooses rows one after the other. */
class AlikeRows {
 public:
  /** @brief Adds to `chosen`, which has one row, until there are `most` or none is left: each time
   *  the row that has most in common with those before it, and of such the longest.
   *  @param[in] length length(row): 0: never chosen
   *  @param[in] brought brought(row): once for each row chosen; gives a function common(other), how
   *             much of what it brought the other one has */
  template <class Length, class Brought>
  void extend(std::vector<int>& chosen, size_t most, int rows, const Length& length,
              const Brought& brought) {
    likeness_.assign(static_cast<size_t>(rows), 0);
    while (chosen.size() < most) {
      likeness_[static_cast<size_t>(chosen.back())] = -1;
      const auto common = brought(chosen.back());
      int best = -1, greatest = -1, longest = 0;
      for (int row = 0; row < rows; ++row) {
        int& like = likeness_[static_cast<size_t>(row)];
        if (like < 0 || length(row) == 0) continue;
        like += common(row);
        if (like < greatest || (like == greatest && length(row) <= longest)) continue;
        best = row;
        greatest = like;
        longest = length(row);
      }
      if (best < 0) return;
      chosen.push_back(best);
    }
  }

 private:
  std::vector<int> likeness_;  // of each row, with all chosen ones; -1: is one of them
};

}  // namespace bs::cuda
