#pragma once
/** @file Shapes and strides: up to eight 64-bit numbers held inline. */
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace bs {

/** @brief A short list of extents or strides, no heap. Negative positions count from the end. */
class Dims {
 public:
  static constexpr int max_rank = 8;

  Dims() = default;
  Dims(std::initializer_list<int64_t> values);
  explicit Dims(std::span<const int64_t> values);
  /** @brief `rank` copies of `value`. */
  static Dims filled(int rank, int64_t value);

  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  int64_t operator[](int i) const { return values_[index(i)]; }
  int64_t& operator[](int i) { return values_[index(i)]; }
  int64_t front() const { return (*this)[0]; }
  int64_t back() const { return (*this)[-1]; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + rank_; }
  int64_t* begin() { return values_.data(); }
  int64_t* end() { return values_.data() + rank_; }

  void push_back(int64_t value) { insert(rank_, value); }
  /** @brief Inserts `value` before position `at` (0 .. rank). */
  void insert(int at, int64_t value);
  void erase(int at);
  /** @brief The extents [from, to). */
  Dims slice(int from, int to) const;
  /** @brief Product of all values; 1 for rank 0. @throws Error when it does not fit 64 bits. */
  int64_t product() const;

  bool operator==(const Dims& other) const;

 private:
  size_t index(int i) const {
    const int at = i < 0 ? i + rank_ : i;
    if (at < 0 || at >= rank_) [[unlikely]]
      no_position(i);
    return static_cast<size_t>(at);
  }
  [[noreturn]] void no_position(int i) const;

  std::array<int64_t, max_rank> values_{};
  int rank_ = 0;
};

using Shape = Dims;
using Strides = Dims;

std::string to_string(const Dims& dims);
/** @brief Strides, in elements, of a dense row-major tensor. */
Strides contiguous_strides(const Shape& shape);
/** @brief The shape of `a op b` under NumPy broadcasting.
 *  @throws Error naming `op` when an extent differs and neither is 1. */
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);
/** @brief Maps -rank..rank-1 to 0..rank-1. @throws Error naming `op` when out of range. */
int normalize_axis(const char* op, int axis, int rank);
/** @brief `shape` with the axes [from, to] joined into one; [1] for no axes.
 *  @throws Error naming flatten when an axis is out of range, or from is behind to. */
Shape flattened(const Shape& shape, int from, int to);

}  // namespace bs
