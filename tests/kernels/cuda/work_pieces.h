#pragma once
/** @file What the kernels expect of items that are cut into parts. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_work_split.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace bs::test {

/// Every step of every item is in one piece, and parts are what the kernels expect of them.
inline void check_pieces(const cuda::WorkPieces& work, const std::vector<int32_t>& lengths) {
  std::map<int, std::vector<cuda::device::WorkPiece>> of_item;
  for (const cuda::device::WorkPiece& piece : work.pieces) {
    std::vector<cuda::device::WorkPiece>& before = of_item[piece.item];
    CHECK(piece.part == static_cast<int>(before.size()));  // in the order of the list
    before.push_back(piece);
  }
  CHECK(of_item.size() == lengths.size());
  std::set<int> slots;
  for (auto& [item, parts] : of_item) {
    std::sort(parts.begin(), parts.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    int at = 0;
    for (const cuda::device::WorkPiece& piece : parts) {
      CHECK(piece.begin == at);
      CHECK(piece.parts == static_cast<int>(parts.size()));
      CHECK(piece.slot == parts[0].slot);
      if (piece.part + 1 < piece.parts) CHECK(slots.insert(piece.slot + piece.part).second);
      at = piece.end;
    }
    CHECK(at == lengths[static_cast<size_t>(item)]);
  }
  CHECK(static_cast<int>(slots.size()) == work.slots);
  CHECK((slots.empty() || *slots.rbegin() == work.slots - 1));
}

}  // namespace bs::test
