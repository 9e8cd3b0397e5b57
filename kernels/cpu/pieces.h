#pragma once
/** @file Many tensors of all sizes as pieces of one size, so that the cores share them evenly. */
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/lib/integers.h>

#include <array>
#include <type_traits>
#include <vector>

namespace bs::cpu {

/** @brief Elements of a piece: it and its state stay in the first-level cache. */
inline constexpr int64_t piece_size = 2048;

/** @brief A RowBuffer for a piece, which needs no memory. */
template <class T>
using PieceBuffer =
    RowBuffer<T, std::conditional_t<RowBuffer<T>::converts, std::array<Wide<T>, piece_size>,
                                    std::vector<Wide<T>>>>;

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

/** @brief Calls `body(piece)` for all pieces of `count` tensors in parallel. Needs no memory, which
 *  could fail to be there when some pieces are done. */
template <class Numel, class Body>
void for_each_piece(size_t count, Numel&& numel, Body&& body) {
  constexpr int64_t grain = elementwise_grain / piece_size;
  int64_t pieces = 0;
  for (size_t i = 0; i < count; ++i) pieces += ceil_div(numel(i), piece_size);
  parallel_for(pieces, grain, [&](int64_t begin, int64_t end) {
    int64_t number = 0;  // of the tensor's first piece
    for (size_t i = 0; i < count && number < end; ++i) {
      const int64_t n = numel(i), behind = number + ceil_div(n, piece_size);
      for (int64_t p = std::max(begin, number); p < std::min(end, behind); ++p) {
        const int64_t at = (p - number) * piece_size;
        body(Piece{i, at, std::min(at + piece_size, n)});
      }
      number = behind;
    }
  });
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
