#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/gather.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <type_traits>

namespace bs::cpu {

namespace {

/// Indices [outer, middle, inner] of any strides.
template <class I>
struct Indices {
  const I* data;
  int64_t outer, middle, inner;
  std::array<int64_t, 3> step;

  explicit Indices(const Tensor& t)
      : data(t.data<I>()), outer(t.size(0)), middle(t.size(1)), inner(t.size(2)) {
    for (int axis = 0; axis < 3; ++axis) step[static_cast<size_t>(axis)] = t.strides()[axis];
  }
  int64_t operator()(int64_t o, int64_t k, int64_t i) const {
    return static_cast<int64_t>(data[o * step[0] + k * step[1] + i * step[2]]);
  }

  /// Whether all are in [0, n).
  bool are_within(int64_t n) const {
    std::atomic<bool> outside = false;
    const bool columns = inner == 1;  // then rows of one index each are lines of many
    const int64_t lines = columns ? outer : outer * middle, length = columns ? middle : inner;
    const int64_t by = columns ? step[1] : step[2];
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / std::max<int64_t>(length, 1));
    parallel_for(lines, grain, [&](int64_t begin, int64_t end) {
      bool bad = false;
      for (int64_t line = begin; line < end; ++line) {
        const I* at =
            data + (columns ? line * step[0] : line / middle * step[0] + line % middle * step[1]);
        for (int64_t i = 0; i < length; ++i) {
          const auto x = static_cast<int64_t>(at[i * by]);
          bad |= x < 0 || x >= n;
        }
      }
      if (bad) outside = true;
    });
    return !outside;
  }
};

/// Calls f(at), at(o, k, i) being the index there; all of them are looked at before.
template <class F>
void with_index(const char* op, const Tensor& index, int64_t n, F&& f) {
  visit_index(op, index.dtype(), [&]<class I>(Type<I>) {
    const Indices<I> at(index);
    if (at.are_within(n)) return f(at);
    for (int64_t o = 0; o < at.outer; ++o)
      for (int64_t k = 0; k < at.middle; ++k)
        for (int64_t i = 0; i < at.inner; ++i)
          BS_CHECK(at(o, k, i) >= 0 && at(o, k, i) < n, "{}: index {} is outside of an axis of {}",
                   op, at(o, k, i), n);
  });
}

/// Calls f(Type<U>{}) with an unsigned type of the dtype's size: a copy looks at no values.
template <class F>
void visit_bits(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1:
      return f(Type<uint8_t>{});
    case 2:
      return f(Type<uint16_t>{});
    case 4:
      return f(Type<uint32_t>{});
    default:
      return f(Type<uint64_t>{});
  }
}

}  // namespace

void gather(const Tensor& x, const Tensor& index, const Tensor& y, Stream) {
  const int64_t n = x.size(1), m = y.size(1), inner = y.size(2);
  with_index("gather", index, n, [&](auto at) {
    visit_bits(x.dtype(), [&]<class U>(Type<U>) {
      const U* from = static_cast<const U*>(x.data());
      U* to = static_cast<U*>(y.data());
      const int64_t grain = std::max<int64_t>(1, elementwise_grain / inner);
      parallel_for(y.size(0) * m, grain, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end;) {
          const int64_t o = r / m, first = r % m, last = std::min(m, first + end - r);
          if (inner == 1) {
            const U* row = from + o * n;
            for (int64_t k = first; k < last; ++k, ++r) to[r] = row[at(o, k, 0)];
          } else {
            for (int64_t k = first; k < last; ++k, ++r)
              for (int64_t i = 0; i < inner; ++i)
                to[r * inner + i] = from[(o * n + at(o, k, i)) * inner + i];
          }
        }
      });
    });
  });
}

void scatter(const Tensor& index, const Tensor& source, const Tensor& y, Stream) {
  const int64_t n = y.size(1), m = source.size(1), inner = y.size(2);
  with_index("scatter", index, n, [&](auto at) {
    visit_bits(y.dtype(), [&]<class U>(Type<U>) {
      const U* from = static_cast<const U*>(source.data());
      U* to = static_cast<U*>(y.data());
      const int64_t grain = std::max<int64_t>(1, elementwise_grain / (m * inner));
      parallel_for(y.size(0), grain, [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o)
          for (int64_t k = 0; k < m; ++k)
            for (int64_t i = 0; i < inner; ++i)
              to[(o * n + at(o, k, i)) * inner + i] = from[(o * m + k) * inner + i];
      });
    });
  });
}

namespace {

/// Adds into rows of T, held as W while they are summed: in place where nothing is lost by it.
template <class T, class W, class At>
void add_into(const Tensor& source, const Tensor& y, At at) {
  const int64_t n = y.size(1), m = source.size(1), inner = y.size(2);
  const T* from = source.data<T>();
  T* to = y.data<T>();
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / (m * inner));
  const auto add_one = []<class S>(S& sum, T value) {
    sum = static_cast<S>(static_cast<W>(sum) + static_cast<W>(value));
  };
  const auto add = [=](int64_t o, auto* rows) {
    const T* source_rows = from + o * m * inner;
    if (inner == 1) {
      for (int64_t k = 0; k < m; ++k) add_one(rows[at(o, k, 0)], source_rows[k]);
      return;
    }
    for (int64_t k = 0; k < m; ++k)
      for (int64_t i = 0; i < inner; ++i)
        add_one(rows[at(o, k, i) * inner + i], source_rows[k * inner + i]);
  };
  parallel_for(y.size(0), grain, [&](int64_t begin, int64_t end) {
    RowBuffer<T> buffer(n * inner);
    for (int64_t o = begin; o < end; ++o) {
      T* rows = to + o * n * inner;
      buffer.read(rows, n * inner);
      add(o, buffer.target(rows));
      buffer.write(rows, n * inner);
    }
  });
}

}  // namespace

void scatter_add(const Tensor& index, const Tensor& source, const Tensor& y, Stream) {
  with_index("scatter_add", index, y.size(1), [&](auto at) {
    if (is_floating(y.dtype()))
      return visit_floating("scatter_add", y.dtype(),
                            [&]<class T>(Type<T>) { add_into<T, Wide<T>>(source, y, at); });
    visit_index("scatter_add", y.dtype(), [&]<class T>(Type<T>) {
      add_into<T, std::make_unsigned_t<T>>(source, y, at);  // unsigned sums wrap around
    });
  });
}

}  // namespace bs::cpu
