#pragma once
/** @file Many tensors of all sizes as pieces of one size, so that the cores share them evenly. */
#include <bs/kernels/cpu/parallel.h>

#include <vector>

namespace bs::cpu {

/** @brief Elements of a piece: it and its state stay in the first-level cache. */
inline constexpr int64_t piece_size = 2048;

/** @brief Elements [begin, end) of tensor number `tensor`. */
struct Piece {
  size_t tensor;
  int64_t begin, end;
};

/** @brief The pieces of `count` tensors in order; `numel(i)` elements has the i-th. */
template <class Numel>
std::vector<Piece> pieces_of(size_t count, Numel&& numel) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < count; ++i)
    for (int64_t at = 0; at < numel(i); at += piece_size)
      pieces.push_back({i, at, std::min<int64_t>(at + piece_size, numel(i))});
  return pieces;
}

/** @brief Calls `body(piece, index)` for all pieces in parallel. */
template <class Body>
void for_each_piece(const std::vector<Piece>& pieces, Body&& body) {
  constexpr int64_t grain = elementwise_grain / piece_size;
  parallel_for(static_cast<int64_t>(pieces.size()), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(pieces[static_cast<size_t>(i)], i);
  });
}

}  // namespace bs::cpu
