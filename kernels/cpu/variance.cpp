#include <bs/kernels/cpu/column_moments.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/reduce_kinds.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace bs::cpu {

namespace {

/// Columns of a task.
constexpr int64_t moment_columns = 1024;

/// Means and squares [outer, parts, inner] of x [outer, n, inner], of `length` rows a part. Their
/// cut depends on the extents alone. Means are less anchors, which are the first rows.
template <class W>
struct MomentParts {
  int64_t outer, n, inner, length;
  int64_t parts = ceil_div(n, length), strips = ceil_div(inner, moment_columns);
  std::unique_ptr<W[]> mean = array(), squares = array();

  std::unique_ptr<W[]> array() const {
    return std::make_unique_for_overwrite<W[]>(static_cast<size_t>(outer * parts * inner));
  }
  int64_t rows(int64_t part) const { return std::min(length, n - part * length); }
  /// Calls f(o, part, column, columns) for the strips of each part of so many of each o.
  template <class F>
  void for_strips(int64_t count, F f) const {
    const int64_t work = std::min(n, length) * std::min(inner, moment_columns);
    const int64_t grain = elementwise_grain / std::max<int64_t>(1, work);
    parallel_for(outer * count * strips, std::max<int64_t>(1, grain),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t task = begin; task < end; ++task) {
                     const int64_t column = task % strips * moment_columns, row = task / strips;
                     f(row / count, row % count, column, std::min(moment_columns, inner - column));
                   }
                 });
  }
  /// Where the `anchors` of x begin: each of so many others of outer, in turns.
  template <class T>
  void find(const T* x, int64_t anchors) const {
    for_strips(parts, [&](int64_t o, int64_t part, int64_t column, int64_t columns) {
      const T* const from = x + (o * n + part * length) * inner + column;
      const T* const first = x + (anchors == outer ? o : o % anchors) * n * inner + column;
      const int64_t at = (o * parts + part) * inner + column;
      W *const to_mean = mean.get() + at, *const to_squares = squares.get() + at;
      if (inner > 1)
        return moments_of_columns(from, first, true, rows(part), inner, columns, to_mean,
                                  to_squares);
      const W anchor = anchor_of(convert<W>(*first));
      const Moments<W> run = moments_of_run(from, rows(part), anchor, anchor);
      *to_mean = run.mean;
      *to_squares = run.squares;
    });
  }
  /// Leaves the moments of all in the first part of each o, having merged them in order.
  void merge() const {
    if (parts == 1) return;
    for_strips(1, [&](int64_t o, int64_t, int64_t column, int64_t columns) {
      const int64_t first = o * parts * inner + column;
      for (int64_t part = 1; part < parts; ++part) {
        const int64_t at = first + part * inner;
        merge_rows(static_cast<W>(part * length), static_cast<W>(rows(part)), columns,
                   mean.get() + at, squares.get() + at, mean.get() + first, squares.get() + first);
      }
    });
  }
  /// mean [outer, inner] where there is one, and y = scale squares, or its root.
  void put(W* means, W* y, W scale, bool is_root) const {
    parallel_for(outer * inner, elementwise_grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = parts == 1 ? i : i / inner * parts * inner + i % inner;
        const W result = scale * squares.get()[at];
        y[i] = is_root ? std::sqrt(result) : result;
        if (means) means[i] = mean.get()[at];
      }
    });
  }
};

/// Whose first parts have all. Of outer, `anchors` have anchors of their own.
template <class T, class W = Wide<T>>
MomentParts<W> merged_moments(const T* x, int64_t outer, int64_t n, int64_t inner,
                              int64_t anchors) {
  MomentParts<W> all{outer, n, inner, inner > 1 ? chunk_rows(n) : most_of_run};
  all.find(x, anchors);
  all.merge();
  return all;
}

/// The same of x [outer, n, inner], to y [outer, inner], and to `means` where it is not null.
template <class T, class W = Wide<T>>
void put_variance(const Tensor& x, W* means, const Tensor& y, double scale, bool is_root) {
  const int64_t outer = x.size(0), n = x.size(1), inner = x.size(2);
  const T* const from = x.data<T>();
  merged_moments(from, outer, n, inner, outer)
      .put(means, y.data<W>(), static_cast<W>(scale), is_root);
  for (int64_t i = 0; means && i < outer * inner; ++i)
    means[i] += anchor_of(convert<W>(from[i / inner * n * inner + i % inner]));
}

}  // namespace

void squared_deviation(const Tensor& x, const Tensor& mean, const Tensor& y, double scale, Stream) {
  visit_floating("var", x.dtype(), [&]<class T>(Type<T>) {
    put_variance<T>(x, mean.defined() ? mean.data<Wide<T>>() : nullptr, y, scale, false);
  });
}

void variance(const Tensor& x, const Tensor& y, double scale, bool is_root, Stream) {
  visit_floating("var", x.dtype(), [&]<class T>(Type<T>) {
    through_wide(
        y, [&](const Tensor& wide) { put_variance<T, Wide<T>>(x, nullptr, wide, scale, is_root); });
  });
}

/// Of rows, which are parts of columns then.
void variance_of_parts(const Tensor& x, const Tensor& y, double scale, bool is_root, Stream) {
  const int64_t parts = x.size(0), results = x.size(1), n = x.size(2);
  visit_floating("var", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    through_wide(y, [&](const Tensor& wide) {
      MomentParts<W> all{1, parts * n, results, n};
      merged_moments(x.data<T>(), parts * results, n, 1, results)
          .put(all.mean.get(), all.squares.get(), 1, false);
      all.merge();
      all.put(nullptr, wide.data<W>(), static_cast<W>(scale), is_root);
    });
  });
}

}  // namespace bs::cpu
