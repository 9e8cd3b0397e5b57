// Sets and counts by the bit, and rows that are chosen by them, beside the same done one by one.
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_alike.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <vector>

using namespace bs::cuda;

namespace {

template <int most>
std::vector<int> numbers(const BitSet<most>& set) {
  std::vector<uint16_t> list(BitSet<most>::listed);
  return {list.data(), set.list(list.data())};
}

/// Bits of a square change places; a word of bits is cut at both ends of a set.
void check_squares(std::mt19937& random) {
  BitSquare square;
  for (uint64_t& word : square) word = random() * uint64_t{0x9E3779B97F4A7C15};
  BitSquare turned = square;
  transpose(turned);
  int wrong = 0;
  for (size_t i = 0; i < 64; ++i)
    for (size_t j = 0; j < 64; ++j) wrong += (square[i] >> j & 1) != (turned[j] >> i & 1);
  CHECK(wrong == 0);
  for (const int at : {-64, -63, -1, 0, 1, 63, 64, 100, 191, 192, 255, 256}) {
    BitSet<256> set;
    set.put_word(at, square[0]);
    for (int i = 0; i < 256; ++i)
      wrong += set.has(i) != (i >= at && i < at + 64 && (square[0] >> (i - at) & 1) != 0);
  }
  CHECK(wrong == 0);
}

/// Sets of less than `most`, by bits and as they are; and what is counted of them.
template <int most>
void check_counts(std::mt19937& random) {
  const size_t sets = 8 * (1 + random() % 5);
  const auto thinned = 1 + random() % 8;
  std::vector<BitSet<most>> bits(sets);
  std::vector<size_t> counts(most);
  for (BitSet<most>& set : bits) {
    std::vector<int> listed;
    for (int i = 0; i < most; ++i)
      if (random() % thinned == 0) {
        set.put(i);
        listed.push_back(i);
        ++counts[static_cast<size_t>(i)];
      }
    CHECK(numbers(set) == listed);
    CHECK(set.size() == static_cast<int>(listed.size()));
    CHECK(set.first() == (listed.empty() ? -1 : listed[0]));
    BitSet<most> few = set;
    const size_t kept = random() % (2 + listed.size());
    few.keep_first(static_cast<int>(kept));
    CHECK(numbers(few) ==
          std::vector<int>(listed.begin(),
                           listed.begin() + static_cast<int64_t>(std::min(kept, listed.size()))));
  }
  const auto at = [&](size_t i) { return bits[i]; };
  BitCounts<most> counted;
  counted.add(1, at);
  counted.add(sets / 8 - 1, [&](size_t i) { return at(8 + i); });
  BitSet<most> third;
  for (int i = 0; i < most; i += 3) third.put(i);
  size_t greatest = 0;
  for (size_t i = 0; i < counts.size(); i += 3) greatest = std::max(greatest, counts[i]);
  std::vector<int> most_often;
  for (int i = 0; i < most; i += 3)
    if (counts[static_cast<size_t>(i)] == greatest) most_often.push_back(i);
  counted.keep_greatest(third);
  CHECK(numbers(third) == most_often);
}

/// The first row of those that have most columns of `like`, as often as they are there, or most
/// columns where there is none. -1: no row has a column.
int best_row(const std::vector<std::set<int>>& rows, const std::vector<int>& like) {
  int best = -1;
  int64_t most = -1;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].empty()) continue;
    auto rank = static_cast<int64_t>(like.empty() ? rows[row].size() : 0);
    for (const int col : like) rank += rows[row].count(col);
    if (rank > most) {
      most = rank;
      best = static_cast<int>(row);
    }
  }
  return best;
}

template <int most>
void check_rows(std::mt19937& random) {
  const size_t count = 1 + random() % most;
  const int cols = 1 + static_cast<int>(random() % 300);
  const auto thinned = 1 + random() % 30;
  std::vector<std::set<int>> rows(count);
  AlikeRows<most> alike(cols);
  for (std::set<int>& row : rows)
    for (int col = 0; col < cols; ++col)
      if (random() % thinned == 0) row.insert(col);
  alike.put(static_cast<int>(count), [&](int row, int word) {
    uint64_t bits = 0;
    for (const int col : rows[static_cast<size_t>(row)])
      if (col / 64 == word) bits |= uint64_t{1} << col % 64;
    return bits;
  });
  const auto eights = [&](std::vector<uint16_t> columns) {
    columns.resize((columns.size() + 7) / 8 * 8, static_cast<uint16_t>(alike.none()));
    return columns;
  };
  for (int round = 0; round < 12; ++round) {
    const int seed = best_row(rows, {});
    REQUIRE(alike.longest() == seed);
    if (seed < 0) return;
    const size_t wanted = 1 + random() % 8;
    std::vector<int> chosen{seed}, like;
    typename AlikeRows<most>::Counts shared;
    std::vector<std::set<int>> others = rows;
    auto left = alike.left();
    while (chosen.size() < wanted) {
      const auto last = static_cast<size_t>(chosen.back());
      const std::vector<uint16_t> own = eights({rows[last].begin(), rows[last].end()});
      alike.count(std::span(own), shared);
      like.insert(like.end(), rows[last].begin(), rows[last].end());
      others[last].clear();
      left.remove(chosen.back());
      typename AlikeRows<most>::Rows best = left;
      shared.keep_greatest(best);
      const int next = best_row(others, like);
      REQUIRE(best.first() == next);
      if (next < 0) break;
      chosen.push_back(next);
    }
    // Some of their columns go, and one row of them.
    typename AlikeRows<most>::Rows set;
    for (const int row : chosen) set.put(row);
    std::vector<uint16_t> taken;
    for (int col = 0; col < cols; col += 2) taken.push_back(static_cast<uint16_t>(col));
    alike.take(set, eights(taken));
    for (const int row : chosen) {
      std::set<int>& own = rows[static_cast<size_t>(row)];
      alike.shorten(row,
                    static_cast<int>(std::erase_if(own, [](int col) { return col % 2 == 0; })));
    }
    for (const int row : chosen)
      CHECK(alike.left().has(row) == !rows[static_cast<size_t>(row)].empty());
    alike.remove(chosen.back());
    rows[static_cast<size_t>(chosen.back())].clear();
  }
}

}  // namespace

TEST_CASE("alike rows: sets are counted as one by one") {
  std::mt19937 random(7);
  for (int i = 0; i < 40; ++i) {
    check_squares(random);
    check_counts<64>(random);
    check_counts<128>(random);
    check_counts<256>(random);
    check_counts<512>(random);
  }
}

TEST_CASE("alike rows: those that have most in common are chosen, one after the other") {
  std::mt19937 random(11);
  for (int i = 0; i < 30; ++i) {
    check_rows<64>(random);
    check_rows<128>(random);
    check_rows<256>(random);
    check_rows<512>(random);
  }
}
