#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/gather.h>

#include <type_traits>
#include <vector>

namespace bs::cpu {

namespace {

/// Calls f(Type<I>{}, at), at(o, k, i) being the index there; all of them are looked at before.
template <class F>
void with_index(const char* op, const Tensor& index, int64_t n, F&& f) {
  visit_index(op, index.dtype(), [&]<class I>(Type<I>) {
    const auto at = [data = index.data<I>(), s = index.strides()](int64_t o, int64_t k, int64_t i) {
      return static_cast<int64_t>(data[o * s[0] + k * s[1] + i * s[2]]);
    };
    for (int64_t o = 0; o < index.size(0); ++o)
      for (int64_t k = 0; k < index.size(1); ++k)
        for (int64_t i = 0; i < index.size(2); ++i)
          BS_CHECK(at(o, k, i) >= 0 && at(o, k, i) < n, "{}: index {} is outside of an axis of {}",
                   op, at(o, k, i), n);
    f(at);
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
        for (int64_t r = begin; r < end; ++r)
          for (int64_t i = 0; i < inner; ++i)
            to[r * inner + i] = from[(r / m * n + at(r / m, r % m, i)) * inner + i];
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

/// Adds into rows of T, held as W while they are summed.
template <class T, class W, class At>
void add_into(const Tensor& source, const Tensor& y, At at) {
  const int64_t n = y.size(1), m = source.size(1), inner = y.size(2);
  const T* from = source.data<T>();
  T* to = y.data<T>();
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / (m * inner));
  parallel_for(y.size(0), grain, [&](int64_t begin, int64_t end) {
    std::vector<W> sums(static_cast<size_t>(n * inner));
    for (int64_t o = begin; o < end; ++o) {
      T* rows = to + o * n * inner;
      for (int64_t j = 0; j < n * inner; ++j)
        sums[static_cast<size_t>(j)] = static_cast<W>(rows[j]);
      for (int64_t k = 0; k < m; ++k)
        for (int64_t i = 0; i < inner; ++i)
          sums[static_cast<size_t>(at(o, k, i) * inner + i)] +=
              static_cast<W>(from[(o * m + k) * inner + i]);
      for (int64_t j = 0; j < n * inner; ++j)
        rows[j] = static_cast<T>(sums[static_cast<size_t>(j)]);
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
