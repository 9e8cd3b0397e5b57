#include <bs/kernels/copy.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/index_select.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <vector>

namespace bs::cpu {

namespace {

/// The indices as i64; all of them are looked at before anything is read.
Tensor checked(const char* op, const Tensor& indices, int64_t extent, Stream stream) {
  Tensor wide = indices;
  if (indices.dtype() != i64) {
    wide = Tensor::empty(indices.shape(), i64);
    copy(indices, wide, stream);
  }
  const int64_t* const data = wide.data<int64_t>();
  const auto is_outside = [=](int64_t i) { return i < 0 || i >= extent; };
  std::atomic<bool> outside = false;
  parallel_for(wide.numel(), elementwise_grain, [&](int64_t begin, int64_t end) {
    int64_t count = 0;
    for (int64_t k = begin; k < end; ++k) count += is_outside(data[k]) ? 1 : 0;
    if (count > 0) outside = true;
  });
  if (!outside) return wide;
  const int64_t at = std::find_if(data, data + wide.numel(), is_outside) - data;
  BS_THROW(Error, "{}: index {} at position {} is outside [0, {})", op, data[at], at, extent);
}

/// The positions at which each row is named, in order.
class Places {
 public:
  Places(const Tensor& indices, int64_t extent, int64_t skip)
      : first_(static_cast<size_t>(extent) + 1) {
    visit_index("index_select_backward", indices.dtype(), [&]<class I>(Type<I>) {
      const std::span at(indices.data<I>(), static_cast<size_t>(indices.numel()));
      const auto counts = [=](I i) { return i >= 0 && i < extent && i != skip; };
      for (I i : at)
        if (counts(i)) ++first_[static_cast<size_t>(i) + 1];
      for (size_t i = 1; i < first_.size(); ++i) {
        if (first_[i] > 0) named.push_back(static_cast<int64_t>(i) - 1);
        first_[i] += first_[i - 1];
      }
      positions_.resize(static_cast<size_t>(first_.back()));
      std::vector<int64_t> next(first_.begin(), first_.end() - 1);
      for (size_t k = 0; k < at.size(); ++k)
        if (counts(at[k]))
          positions_[static_cast<size_t>(next[static_cast<size_t>(at[k])]++)] =
              static_cast<int64_t>(k);
    });
  }

  std::span<const int64_t> of(int64_t row) const {
    const int64_t* from = positions_.data() + first_[static_cast<size_t>(row)];
    return {from, positions_.data() + first_[static_cast<size_t>(row) + 1]};
  }

  std::vector<int64_t> named;  ///< rows that are named at all, in order

 private:
  std::vector<int64_t> first_;  ///< where each row's positions begin
  std::vector<int64_t> positions_;
};

/// Rows that no index names: zeros, or those of `base`.
template <class T>
void write_others(const Places& places, const T* base, const Tensor& dx, T* to) {
  const int64_t extent = dx.size(1), inner = dx.size(2);
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / inner);
  parallel_for(dx.size(0) * extent, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (!places.of(r % extent).empty()) continue;
      if (base) {
        std::copy_n(base + r * inner, inner, to + r * inner);
      } else {
        std::fill_n(to + r * inner, inner, T());
      }
    }
  });
}

/// Columns summed together: where few rows are named, the cores share one that many positions name.
constexpr int64_t strip_of_few = 64, most_columns = 512;

/// Sums of few places in one walk along dy, whose rows are read as they lie: all sums of a strip of
/// columns stay in the first cache. Positions are added in the order of the other way.
template <class T>
class FewPlaces {
  using W = Wide<T>;
  static constexpr int64_t cached = (int64_t{16} << 10) / static_cast<int64_t>(sizeof(W));
  static constexpr int64_t narrowest = 64;  // columns: four lines of memory of each row

 public:
  /// Whether `named` places of `count` positions are few.
  static bool are(int64_t named, int64_t count) {
    return named > 0 && named * narrowest <= cached && 4 * named <= count;
  }

  FewPlaces(const Places& places, const Tensor& dy) : places_(places), dy_(dy) {
    numbers_.assign(static_cast<size_t>(dy.size(1)), -1);
    for (size_t r = 0; r < places.named.size(); ++r)
      for (const int64_t k : places.of(places.named[r]))
        numbers_[static_cast<size_t>(k)] = static_cast<int64_t>(r);
  }
  /// Adds them to `base`, or to zeros.
  void add(const T* base, const Tensor& dx) const {
    const int64_t inner = dx.size(2), outer = dx.size(0), count = dy_.size(1);
    const auto named = static_cast<int64_t>(places_.named.size());
    const int64_t share = round_up(ceil_div(outer * inner, threads()), narrowest);
    const int64_t strip = std::min({inner, share, cached / named / narrowest * narrowest});
    const int64_t strips = ceil_div(inner, strip);
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / (count * strip));
    parallel_for(outer * strips, grain, [&](int64_t begin, int64_t end) {
      std::vector<W> sums(static_cast<size_t>(named * strip));
      RowBuffer<T> row(strip);
      for (int64_t task = begin; task < end; ++task) {
        const int64_t o = task / strips, column = task % strips * strip;
        const int64_t n = std::min(strip, inner - column);
        std::fill(sums.begin(), sums.end(), W{0});
        for (int64_t k = 0; k < count; ++k) {
          const int64_t number = numbers_[static_cast<size_t>(k)];
          if (number < 0) continue;
          add_row(dy_.data<T>() + (o * count + k) * inner + column, n, row,
                  sums.data() + number * strip);
        }
        for (int64_t r = 0; r < named; ++r) {
          const int64_t place = places_.named[static_cast<size_t>(r)];
          const int64_t at = (o * dx.size(1) + place) * inner + column;
          W* const sum = sums.data() + r * strip;
          if (base) add_row(base + at, n, row, sum);
          T* const to = dx.data<T>() + at;
          std::copy_n(sum, n, row.target(to));
          row.write(to, n);
        }
      }
    });
  }

 private:
  static void add_row(const T* from, int64_t n, RowBuffer<T>& row, W* sums) {
    const W* const values = row.read(from, n);
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) sums[c] += values[c];
  }

  const Places& places_;
  const Tensor& dy_;
  std::vector<int64_t> numbers_;  ///< of each position its place's in `named`, or -1
};

/// Sums of single elements by their numbers, a row of dy after the other.
template <class T>
void add_elements(const Tensor& x, const Tensor& dy, const Tensor& indices, const Tensor& dx,
                  int64_t skip) {
  using W = Wide<T>;
  const int64_t extent = dx.size(1), count = dy.size(1);
  std::vector<int64_t> to(static_cast<size_t>(count));  // behind the end: nowhere
  visit_index("index_select_backward", indices.dtype(), [&]<class I>(Type<I>) {
    const std::span at(indices.data<I>(), to.size());
    std::transform(at.begin(), at.end(), to.begin(), [=](I i) {
      return i >= 0 && i < extent && i != skip ? static_cast<int64_t>(i) : extent;
    });
  });
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / (extent + count));
  parallel_for(dx.size(0), grain, [&](int64_t begin, int64_t end) {
    RowBuffer<T> in(count), out(extent), before(extent);
    std::vector<W> sums(static_cast<size_t>(extent) + 1);
    for (int64_t o = begin; o < end; ++o) {
      std::fill(sums.begin(), sums.end(), W{0});
      const W* values = in.read(dy.data<T>() + o * count, count);
      W* const sum = sums.data();
      const int64_t* const place = to.data();
#pragma GCC unroll 4
      for (int64_t k = 0; k < count; ++k) sum[place[k]] += values[k];
      if (x.defined()) {
        const W* more = before.read(x.data<T>() + o * extent, extent);
        for (int64_t i = 0; i < extent; ++i) sum[i] += more[i];
      }
      T* row = dx.data<T>() + o * extent;
      std::copy_n(sums.data(), extent, out.target(row));
      out.write(row, extent);
    }
  });
}

}  // namespace

void index_select(const Tensor& x, const Tensor& indices, const Tensor& y, const char* op,
                  Stream stream) {
  const int64_t extent = x.size(1), inner = x.size(2);
  const int64_t count = y.size(1);
  const Tensor numbers = checked(op, indices, extent, stream);
  const int64_t* const rows = numbers.data<int64_t>();
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / inner);
    parallel_for(y.size(0) * count, grain, [&](int64_t begin, int64_t end) {
      if (inner == 1) {  // a copy of one element is a call that costs more than it
        for (int64_t r = begin; r < end;) {
          const T* line = from + r / count * extent;
          const int64_t* row = rows + r % count;
          const int64_t some = std::min(count - r % count, end - r);
#pragma GCC unroll 4
          for (int64_t i = 0; i < some; ++i) to[r + i] = line[row[i]];
          r += some;
        }
        return;
      }
      for (int64_t r = begin; r < end; ++r) {
        const int64_t row = r / count * extent + rows[r % count];
        std::copy_n(from + row * inner, inner, to + r * inner);
      }
    });
  });
}

void index_select_backward(const Tensor& x, const Tensor& dy, const Tensor& indices,
                           const Tensor& dx, int64_t skip, Stream) {
  const int64_t outer = dx.size(0), extent = dx.size(1), inner = dx.size(2);
  const int64_t count = dy.size(1);
  if (inner == 1 && outer > 1)
    return visit_floating("index_select_backward", dy.dtype(),
                          [&]<class T>(Type<T>) { add_elements<T>(x, dy, indices, dx, skip); });
  const Places places(indices, extent, skip);
  visit_floating("index_select_backward", dy.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const T* from = dy.data<T>();
    const T* const base = x.defined() ? x.data<T>() : nullptr;
    T* to = dx.data<T>();
    write_others(places, base, dx, to);
    const auto named = static_cast<int64_t>(places.named.size());
    if (FewPlaces<T>::are(named, count)) return FewPlaces<T>(places, dy).add(base, dx);
    constexpr int64_t many = 256;
    const int64_t strip = outer * named < many ? strip_of_few : most_columns;
    const int64_t strips = ceil_div(inner, strip);
    const int64_t width = std::min(inner, strip);
    const int64_t additions = (count / std::max<int64_t>(1, named) + 1) * width;
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / additions);
    // Task (o, s, r), r fastest: strip s of the r-th row named, the sum over its positions in
    // order.
    parallel_for(outer * strips * named, grain, [&](int64_t begin, int64_t end) {
      RowBuffer<T> in(width);
      for (int64_t task = begin; task < end; ++task) {
        const int64_t row = places.named[static_cast<size_t>(task % named)];
        const int64_t o = task / named / strips;
        const int64_t column = task / named % strips * strip;
        const int64_t n = std::min(strip, inner - column);
        alignas(64) W sums[most_columns];
        std::fill_n(sums, n, W{0});
        for (int64_t k : places.of(row)) {
          const W* values = in.read(from + (o * count + k) * inner + column, n);
          for (int64_t c = 0; c < n; ++c) sums[c] += values[c];
        }
        const int64_t at = (o * extent + row) * inner + column;
        if (base) {
          const W* values = in.read(base + at, n);
          for (int64_t c = 0; c < n; ++c) sums[c] += values[c];
        }
        T* out = to + at;
        if constexpr (RowBuffer<T>::converts) {
          narrow(n, sums, out);
        } else {
          std::copy_n(sums, n, out);
        }
      }
    });
  });
}

}  // namespace bs::cpu
