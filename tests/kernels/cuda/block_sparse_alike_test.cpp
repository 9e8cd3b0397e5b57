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
  std::vector<int> list(BitSet<most>::listed);
  list.resize(static_cast<size_t>(set.list(list.data()) - list.data()));
  return list;
}

/// Sets of less than `most`, by bits and as they are; and what is counted of them.
template <int most>
void check_counts(std::mt19937& random) {
  const size_t sets = random() % 40;
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
    CHECK(set.any() == !listed.empty());
    CHECK(set.first() == (listed.empty() ? -1 : listed[0]));
    BitSet<most> few = set;
    const size_t kept = random() % (2 + listed.size());
    few.keep_first(static_cast<int>(kept));
    CHECK(numbers(few) ==
          std::vector<int>(listed.begin(),
                           listed.begin() + static_cast<int64_t>(std::min(kept, listed.size()))));
  }
  BitCounts<most> counted;
  const size_t half = random() % (sets + 1);
  counted.add(half, [&](size_t i) -> const BitSet<most>& { return bits[i]; });
  counted.add(sets - half, [&](size_t i) -> const BitSet<most>& { return bits[half + i]; });
  // A set that was counted goes, and half of another.
  if (sets > 1) {
    BitSet<most> some = bits[1];
    for (int i = 0; i < most; i += 2)
      if (some.has(i)) some.remove(i);
    BitCounts<most> gone;
    gone.add(2, [&](size_t i) { return i == 0 ? bits[0] : some; });
    counted.subtract(gone);
    for (int i = 0; i < most; ++i)
      counts[static_cast<size_t>(i)] -= size_t{bits[0].has(i)} + size_t{some.has(i)};
  }
  const auto with = [&](const auto& condition) {
    std::vector<int> list;
    for (int i = 0; i < most; ++i)
      if (condition(i, counts[static_cast<size_t>(i)])) list.push_back(i);
    return list;
  };
  CHECK(numbers(counted.counted()) == with([](int, size_t count) { return count > 0; }));
  BitSet<most> third;
  for (int i = 0; i < most; i += 3) third.put(i);
  size_t greatest = 0;
  for (size_t i = 0; i < counts.size(); i += 3) greatest = std::max(greatest, counts[i]);
  for (const size_t times : {size_t{0}, size_t{1}, size_t{3}, greatest}) {
    BitSet<most> equal = third;
    counted.keep_equal(equal, times);
    CHECK(numbers(equal) ==
          with([&](int i, size_t count) { return i % 3 == 0 && count == times; }));
  }
  counted.keep_greatest(third);
  CHECK(numbers(third) ==
        with([&](int i, size_t count) { return i % 3 == 0 && count == greatest; }));
}

/// The row that has most columns of those of `like`, as often as they are there; of such the
/// longest, and of such the first. -1: none has a column.
int best_row(const std::vector<std::set<int>>& rows, const std::vector<int>& like) {
  int best = -1;
  int64_t most = -1;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].empty()) continue;
    int64_t common = 0;
    for (const int col : like) common += rows[row].count(col);
    const int64_t rank = common * 10000 + static_cast<int64_t>(rows[row].size());
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
  for (size_t row = 0; row < count; ++row)
    for (int col = 0; col < cols; ++col)
      if (random() % thinned == 0) {
        rows[row].insert(col);
        alike.put(static_cast<int>(row), col);
      }
  alike.count();
  for (int round = 0; round < 12; ++round) {
    const int seed = best_row(rows, {});
    REQUIRE(alike.longest() == seed);
    if (seed < 0) return;
    const size_t wanted = 1 + random() % 8;
    std::vector<int> chosen{seed}, list, expected{seed}, like;
    alike.extend(chosen, wanted, [&](int row) {
      const std::set<int>& own = rows[static_cast<size_t>(row)];
      list.assign(own.begin(), own.end());
      return std::span<const int>(list);
    });
    std::vector<std::set<int>> others = rows;
    while (expected.size() < wanted) {
      const auto last = static_cast<size_t>(expected.back());
      like.insert(like.end(), rows[last].begin(), rows[last].end());
      others[last].clear();
      const int next = best_row(others, like);
      if (next < 0) break;
      expected.push_back(next);
    }
    REQUIRE(chosen == expected);
    // Some of their columns go, and one row of them.
    typename AlikeRows<most>::Rows set;
    for (const int row : chosen) set.put(row);
    std::vector<int> taken;
    for (int col = 0; col < cols; col += 2) {
      taken.push_back(col);
      for (const int row : chosen) rows[static_cast<size_t>(row)].erase(col);
    }
    alike.take(set, taken);
    for (const int row : chosen) CHECK(alike.has(row) == !rows[static_cast<size_t>(row)].empty());
    alike.remove(chosen.back());
    rows[static_cast<size_t>(chosen.back())].clear();
  }
}

}  // namespace

TEST_CASE("alike rows: sets are counted as one by one") {
  std::mt19937 random(7);
  for (int i = 0; i < 40; ++i) {
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
