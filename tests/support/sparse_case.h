#pragma once
/** @file Block masks and naive block-sparse references, independent of bs::Layout and kernels. */
#include <bs/lib/layout.h>
#include <bs/tests/support/reference.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace bs::test {

/** @brief Which blocks exist: [heads, rows, cols] flags. */
struct Mask {
  int heads = 1, rows = 0, cols = 0, block = 8;
  std::vector<uint8_t> kept;

  Mask(int h, int r, int c, int b, uint8_t all = 0)
      : heads(h), rows(r), cols(c), block(b), kept(static_cast<size_t>(h * r * c), all) {}
  /** @brief Each block with probability `density`. */
  static Mask random(int heads, int rows, int cols, int block, double density, uint64_t seed);

  /** @throws Error if there is no such block. */
  uint8_t& at(int h, int r, int c) { return kept[number(h, r, c)]; }
  bool has(int h, int r, int c) const { return kept[number(h, r, c)] != 0; }
  /** @brief The mask of the transpose. */
  Mask turned() const;
  int64_t height() const { return int64_t{rows} * block; }
  int64_t width() const { return int64_t{cols} * block; }
  int64_t nnz() const;
  LayoutPtr layout() const;
  /** @brief [lead..., nnz, block, block] */
  Shape values(Shape lead = {}) const;
  /** @brief [lead..., rows, cols], with the heads before the last two where there are several. */
  Shape dense(Shape lead, int64_t m, int64_t n) const;

 private:
  size_t number(int h, int r, int c) const;
};

/** @brief [..., nnz, block, block] to [..., height, width] or, for several heads, [..., heads,
 *  height, width]; `absent` where there is no block. */
Reference densify(const Reference& values, const Mask& mask, double absent = 0);
/** @brief The inverse; a head axis of 1 serves all heads. */
Reference sparsify(const Reference& dense, const Mask& mask);
/** @brief op(a) op(b) over broadcast leading axes, in loops. */
Reference product(const Reference& a, const Reference& b, bool trans_a, bool trans_b);

/** @brief The shape with its last two axes exchanged where `flip` says so. */
inline Shape flipped(Shape shape, bool flip) {
  if (flip) std::swap(shape[-1], shape[-2]);
  return shape;
}

}  // namespace bs::test
