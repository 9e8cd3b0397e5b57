#include <bs/lib/dims.h>

#include <bs/lib/check.h>

#include <algorithm>

namespace bs {

Dims::Dims(std::initializer_list<int64_t> values) : Dims(std::span(values.begin(), values.end())) {}

Dims::Dims(std::span<const int64_t> values) {
  BS_CHECK(values.size() <= max_rank, "dims: rank {} is more than {}", values.size(), max_rank);
  std::copy(values.begin(), values.end(), values_.begin());
  rank_ = static_cast<int>(values.size());
}

Dims Dims::filled(int rank, int64_t value) {
  BS_CHECK(rank >= 0 && rank <= max_rank, "dims: rank {} is not in 0..{}", rank, max_rank);
  Dims d;
  d.rank_ = rank;
  std::fill(d.begin(), d.end(), value);
  return d;
}

void Dims::no_position(int i) const { BS_THROW(Error, "dims: position {} in {}", i, *this); }

void Dims::insert(int at, int64_t value) {
  BS_CHECK(rank_ < max_rank, "dims: {} with one more axis is of rank {}, more than {}", *this,
           rank_ + 1, max_rank);
  BS_CHECK(at >= 0 && at <= rank_, "dims: insert at {} into {}", at, *this);
  ++rank_;
  std::copy_backward(begin() + at, end() - 1, end());
  (*this)[at] = value;
}

void Dims::erase(int at) {
  const auto from = begin() + index(at);
  std::copy(from + 1, end(), from);
  --rank_;
}

Dims Dims::slice(int from, int to) const {
  BS_CHECK(0 <= from && from <= to && to <= rank_, "dims: slice {}:{} of {}", from, to, *this);
  return Dims(std::span(begin() + from, begin() + to));
}

int64_t Dims::product() const {
  if (std::find(begin(), end(), 0) != end()) return 0;
  int64_t n = 1;
  for (const int64_t v : *this)
    BS_CHECK(!__builtin_mul_overflow(n, v, &n), "dims: the product of {} is more than 64 bits hold",
             *this);
  return n;
}

bool Dims::operator==(const Dims& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (int i = 0; i < dims.rank(); ++i) text += (i ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = Dims::filled(shape.rank(), 1);
  for (int i = shape.rank() - 2; i >= 0; --i)
    // What overflows belongs to a tensor without elements, of which no stride is ever used.
    if (__builtin_mul_overflow(strides[i + 1], std::max<int64_t>(shape[i + 1], 1), &strides[i]))
      strides[i] = 0;
  return strides;
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  if (a == b) return a;
  const int rank = std::max(a.rank(), b.rank());
  Shape out = Dims::filled(rank, 1);
  for (int i = 1; i <= rank; ++i) {
    const int64_t x = i <= a.rank() ? a[-i] : 1;
    const int64_t y = i <= b.rank() ? b[-i] : 1;
    BS_CHECK(x == y || x == 1 || y == 1, "{}: shapes {} and {} do not broadcast ({} against {})",
             op, a, b, x, y);
    out[-i] = x == 1 ? y : x;
  }
  return out;
}

int normalize_axis(const char* op, int axis, int rank) {
  BS_CHECK(axis >= -rank && axis < rank, "{}: axis {} is out of range for rank {}", op, axis, rank);
  return axis < 0 ? axis + rank : axis;
}

Shape flattened(const Shape& shape, int from, int to) {
  const int rank = std::max(shape.rank(), 1);
  from = normalize_axis("flatten", from, rank);
  to = normalize_axis("flatten", to, rank);
  BS_CHECK(from <= to, "flatten: axes {}..{} of {}", from, to, shape);
  if (shape.rank() == 0) return {1};
  Shape joined = shape.slice(0, from);
  joined.push_back(shape.slice(from, to + 1).product());
  for (int i = to + 1; i < rank; ++i) joined.push_back(shape[i]);
  return joined;
}

}  // namespace bs
