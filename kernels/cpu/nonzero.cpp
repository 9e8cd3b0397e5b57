#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/nonzero.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <numeric>

namespace bs::cpu {

namespace {

// As bytes: those of other programs need not be 0 or 1, and what is counted is written.
const uint8_t* flags(const Tensor& x) { return static_cast<const uint8_t*>(x.data()); }

/// Calls body(p, first, last) for the elements [first, last) of every part p.
template <class Body>
void for_parts(int64_t n, const Body& body) {
  parallel_for(ceil_div(n, nonzero_part), 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      body(p, p * nonzero_part, std::min(n, (p + 1) * nonzero_part));
  });
}

}  // namespace

void count_nonzero(const Tensor& x, const Tensor& before, Stream) {
  int64_t* const counts = before.data<int64_t>();
  counts[0] = 0;
  for_parts(x.numel(), [&](int64_t p, int64_t first, int64_t last) {
    counts[p + 1] = last - first - std::count(flags(x) + first, flags(x) + last, uint8_t{0});
  });
  std::partial_sum(counts, counts + before.numel(), counts);
}

namespace {

/// The coordinates of elements one after the other.
class Coordinates {
 public:
  Coordinates(const Shape& shape, int64_t position) : shape_(shape), at_(shape) {
    for (int axis = shape.rank() - 1; axis >= 0; position /= shape[axis--])
      at_[axis] = position % shape[axis];
  }
  int64_t operator[](int axis) const { return at_[axis]; }
  /// Goes on by as many as stay within a row of the last axis, or to where the next one begins.
  void move(int64_t count) {
    int axis = shape_.rank() - 1;
    at_[axis] += count;
    for (; axis > 0 && at_[axis] == shape_[axis]; --axis) {
      at_[axis] = 0;
      ++at_[axis - 1];
    }
  }

 private:
  Shape shape_, at_;
};

/// Writes the coordinates of the true flags among `count` of one row, the first of them at `at`.
/// What is written for others is overwritten, so there is no branch on flags.
template <int rank>
int64_t* write_row(const uint8_t* flags, const Coordinates& at, int64_t count, int64_t* to,
                   const int64_t* end) {
  int64_t place[rank];
  for (int axis = 0; axis < rank; ++axis) place[axis] = at[axis];
  for (int64_t i = 0; i < count && to < end; ++i, ++place[rank - 1]) {
    for (int axis = 0; axis < rank; ++axis) to[axis] = place[axis];
    to += flags[i] != 0 ? rank : 0;
  }
  return to;
}

template <int rank>
void write(const Tensor& x, const int64_t* begins, int64_t* to) {
  const int64_t row = x.size(-1);
  for_parts(x.numel(), [&](int64_t p, int64_t first, int64_t last) {
    Coordinates at(x.shape(), first);
    int64_t* next = to + begins[p] * rank;
    const int64_t* const end = to + begins[p + 1] * rank;
    while (first < last && next < end) {
      const int64_t some = std::min(row - at[rank - 1], last - first);
      next = write_row<rank>(flags(x) + first, at, some, next, end);
      at.move(some);
      first += some;
    }
  });
}

template <int rank>
void write_of_rank(const Tensor& x, const int64_t* begins, int64_t* to) {
  if (x.rank() == rank) return write<rank>(x, begins, to);
  if constexpr (rank < Dims::max_rank) write_of_rank<rank + 1>(x, begins, to);
}

}  // namespace

void nonzero(const Tensor& x, const Tensor& before, const Tensor& coordinates, Stream) {
  write_of_rank<1>(x, before.data<int64_t>(), coordinates.data<int64_t>());
}

void masked_select(const Tensor& x, const Tensor& mask, const Tensor& before, const Tensor& values,
                   Stream) {
  const int64_t* const begins = before.data<int64_t>();
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    const T* const from = x.data<T>();
    T* const to = values.data<T>();
    for_parts(x.numel(), [&](int64_t p, int64_t first, int64_t last) {
      int64_t at = begins[p];
      for (int64_t i = first; i < last && at < begins[p + 1]; ++i) {
        to[at] = from[i];
        at += flags(mask)[i] != 0 ? 1 : 0;
      }
    });
  });
}

}  // namespace bs::cpu
