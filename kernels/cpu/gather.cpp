#include <bs/kernels/copy.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <type_traits>

namespace bs::cpu {

namespace {

/// Indices looked at together, before they are used: they stay in the first-level cache.
constexpr int64_t piece = 1024;

/// Whether all are in [0, n).
template <class I>
bool are_within(const I* indices, int64_t count, int64_t n) {
  int64_t outside = 0;
  const auto end = static_cast<uint64_t>(n);  // unsigned, a negative index is a large one
#pragma omp simd reduction(+ : outside)
  for (int64_t k = 0; k < count; ++k)
    outside += static_cast<uint64_t>(static_cast<int64_t>(indices[k])) >= end;
  return outside == 0;
}

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

  /// Calls f(k, indices, count) for pieces [k, k + count) of the line (o, first) .. (o, last), each
  /// dense and in [0, n); false at the first piece that is not. For inner = 1.
  template <class F>
  bool along(int64_t o, int64_t first, int64_t last, int64_t n, F&& f) const {
    std::array<I, piece> copied;
    for (int64_t k = first; k < last; k += piece) {
      const int64_t count = std::min(piece, last - k);
      const I* at = data + o * step[0] + k * step[1];
      if (step[1] != 1) {
        for (int64_t i = 0; i < count; ++i) copied[static_cast<size_t>(i)] = at[i * step[1]];
        at = copied.data();
      }
      if (!are_within(at, count, n)) return false;
      f(k, at, count);
    }
    return true;
  }

  /// Whether whole rows are named: the index is one along the inner axis.
  bool of_rows() const { return inner > 1 && step[2] == 0; }

  /// Whether all are in [0, n).
  bool are_in(int64_t n) const {
    const int64_t each = of_rows() ? 1 : inner;
    std::atomic<bool> outside = false;
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / each);
    parallel_for(outer * middle, grain, [&](int64_t begin, int64_t end) {
      bool bad = false;
      for (int64_t line = begin; line < end; ++line)
        for (int64_t i = 0; i < each; ++i) {
          const int64_t x = (*this)(line / middle, line % middle, i);
          bad |= x < 0 || x >= n;
        }
      if (bad) outside = true;
    });
    return !outside;
  }
};

/// Calls f(at, within), at(o, k, i) being the index there. Where inner > 1 all were looked at
/// before; else f goes `along` them, and `within` becomes false where one is outside [0, n).
template <class F>
void with_index(const char* op, const Tensor& index, int64_t n, F&& f) {
  visit_index(op, index.dtype(), [&]<class I>(Type<I>) {
    const Indices<I> at(index);
    std::atomic<bool> within = at.inner == 1 || at.are_in(n);
    if (within) f(at, within);
    if (within) return;
    for (int64_t o = 0; o < at.outer; ++o)
      for (int64_t k = 0; k < at.middle; ++k)
        for (int64_t i = 0; i < at.inner; ++i)
          BS_CHECK(at(o, k, i) >= 0 && at(o, k, i) < n, "{}: index {} is outside of an axis of {}",
                   op, at(o, k, i), n);
  });
}

/// Lines of single indices, of which a thread may have a part.
template <class I, class U>
void gather_lines(const Indices<I>& at, const U* from, int64_t n, U* to,
                  std::atomic<bool>& within) {
  const int64_t m = at.middle;
  parallel_for(at.outer * m, elementwise_grain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t o = begin / m, first = begin % m, last = std::min(m, first + end - begin);
      // Volatile: else g++ loads a vector by one instruction, which takes twice as long on Zen 4.
      const volatile U* row = from + o * n;
      U* line = to + o * m;
      const auto take = [=](int64_t k, const I* indices, int64_t count) {
#pragma GCC unroll 4
        for (int64_t i = 0; i < count; ++i) line[k + i] = row[indices[i]];
      };
      if (!at.along(o, first, last, n, take)) within = false;
      begin += last - first;
    }
  });
}

template <class I, class U>
void gather_rows(const Indices<I>& at, const U* from, int64_t n, U* to) {
  const int64_t m = at.middle, inner = at.inner;
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / inner);
  parallel_for(at.outer * m, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t o = r / m, k = r % m;
      for (int64_t i = 0; i < inner; ++i)
        to[r * inner + i] = from[(o * n + at(o, k, i)) * inner + i];
    }
  });
}

/// Calls put(element of y, element of source) for whole rows, in order. Each thread has columns of
/// its own.
template <class T, class I, class Put>
void write_rows(const Indices<I>& at, const Tensor& source, const Tensor& y, const Put& put) {
  constexpr int64_t strip = 256;
  const int64_t n = y.size(1), m = at.middle, inner = at.inner, strips = ceil_div(inner, strip);
  const auto* const from = static_cast<const T*>(source.data());
  auto* const to = static_cast<T*>(y.data());
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / (m * std::min(inner, strip)));
  parallel_for(at.outer * strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t o = task / strips, first = task % strips * strip;
      const int64_t count = std::min(strip, inner - first);
      for (int64_t k = 0; k < m; ++k) {
        const T* source_row = from + (o * m + k) * inner + first;
        T* row = to + (o * n + at(o, k, 0)) * inner + first;
        for (int64_t i = 0; i < count; ++i) put(row[i], source_row[i]);
      }
    }
  });
}

/// Calls put(element of y, element of source) for each index, in order. Rows of y of a 16-bit type
/// are widened meanwhile.
template <class T, class I, class Put>
void write_into(const Indices<I>& at, const Tensor& source, const Tensor& y,
                std::atomic<bool>& within, const Put& put) {
  if constexpr (std::is_same_v<T, Wide<T>>)
    if (at.of_rows()) return write_rows<T>(at, source, y, put);
  const int64_t n = y.size(1), m = at.middle, inner = at.inner;
  const auto* from = static_cast<const T*>(source.data());
  auto* const to = static_cast<T*>(y.data());
  const auto write = [&](int64_t o, Wide<T>* rows) {
    const T* sources = from + o * m * inner;
    if (inner == 1) {
      const auto line = [&](int64_t k, const I* indices, int64_t count) {
        for (int64_t i = 0; i < count; ++i) put(rows[indices[i]], sources[k + i]);
      };
      if (!at.along(o, 0, m, n, line)) within = false;
      return;
    }
    for (int64_t k = 0; k < m; ++k)
      for (int64_t i = 0; i < inner; ++i)
        put(rows[at(o, k, i) * inner + i], sources[k * inner + i]);
  };
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / (m * inner));
  parallel_for(at.outer, grain, [&](int64_t begin, int64_t end) {
    RowBuffer<T> buffer(n * inner);
    for (int64_t o = begin; o < end; ++o) {
      T* rows = to + o * n * inner;
      buffer.read(rows, n * inner);
      write(o, buffer.target(rows));
      buffer.write(rows, n * inner);
    }
  });
}

}  // namespace

void gather(const Tensor& x, const Tensor& index, const Tensor& y, Stream) {
  const int64_t n = x.size(1);
  with_index("gather", index, n, [&](const auto& at, std::atomic<bool>& within) {
    detail::visit_bits(x.dtype(), [&]<class U>(Type<U>) {
      const auto* from = static_cast<const U*>(x.data());
      auto* const to = static_cast<U*>(y.data());
      if (at.inner == 1) return gather_lines(at, from, n, to, within);
      gather_rows(at, from, n, to);
    });
  });
}

namespace {

void replace(const char* op, const Tensor& index, const Tensor& source, const Tensor& y) {
  with_index(op, index, y.size(1), [&](const auto& at, std::atomic<bool>& within) {
    detail::visit_bits(y.dtype(), [&]<class U>(Type<U>) {
      write_into<U>(at, source, y, within, [](U& to, U value) { to = value; });
    });
  });
}

}  // namespace

void scatter(const Tensor& x, const Tensor& index, const Tensor& source, const Tensor& y,
             Stream stream) {
  if (!x.defined()) {
    fill(y, 0, stream);
  } else if (x.data() != y.data()) {
    copy(x, y, stream);
  }
  replace("scatter", index, contiguous(source), y);
}

void index_copy(const Tensor& x, const Tensor& indices, const Tensor& source, const Tensor& y,
                Stream stream) {
  copy(x, y, stream);
  replace("index_copy", indices.view({1, indices.numel(), 1}).expand(source.shape()), source, y);
}

void scatter_add(const Tensor& x, const Tensor& index, const Tensor& source, const Tensor& y,
                 Stream stream) {
  if (!x.defined()) {
    fill(y, 0, stream);
  } else if (x.data() != y.data()) {
    copy(x, y, stream);
  }
  with_index("scatter_add", index, y.size(1), [&](const auto& at, std::atomic<bool>& within) {
    if (is_floating(y.dtype()))
      return visit_floating("scatter_add", y.dtype(), [&]<class T>(Type<T>) {
        write_into<T>(at, source, y, within,
                      [](Wide<T>& sum, T value) { sum += static_cast<Wide<T>>(value); });
      });
    visit_index("scatter_add", y.dtype(), [&]<class T>(Type<T>) {
      using U = std::make_unsigned_t<T>;  // unsigned sums wrap around
      write_into<U>(at, source, y, within, [](U& sum, U value) { sum += value; });
    });
  });
}

}  // namespace bs::cpu
