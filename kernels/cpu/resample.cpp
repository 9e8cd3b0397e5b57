#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/resample.h>

#include <algorithm>
#include <cstring>

namespace bs::cpu {

namespace {

/// Calls f(input, weight) for the inputs of an output.
template <class F>
void for_each_input(const AxisMap& map, int64_t output, F&& f) {
  const auto end = static_cast<size_t>(map.offsets()[static_cast<size_t>(output) + 1]);
  for (auto i = static_cast<size_t>(map.offsets()[static_cast<size_t>(output)]); i < end; ++i)
    f(map.from()[i], map.weights()[i]);
}

bool is_outside(const AxisMap& map, int64_t output) {
  const auto o = static_cast<size_t>(output);
  return map.offsets()[o] == map.offsets()[o + 1];
}

template <class W, class Term>
void set_to(int64_t n, Term term, W* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = term(i);
}
template <class W, class Term>
void add_to(int64_t n, Term term, W* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] += term(i);
}

/// The columns' map for planes: the first inputs of all outputs side by side, then the second ones,
/// so that outputs are computed as vectors.
template <class W>
class PlaneColumns {
 public:
  explicit PlaneColumns(const AxisMap& map) : outputs_(map.outputs()) {
    for (int64_t q = 0; q < outputs_; ++q) {
      int64_t inputs = 0;
      for_each_input(map, q, [&](int64_t, double) { ++inputs; });
      taps_ = std::max(taps_, inputs);
      if (inputs == 0) none_.push_back(q);
    }
    if (!are_few()) return;
    from_.assign(static_cast<size_t>(taps_ * outputs_), static_cast<int32_t>(map.inputs()));
    weights_.assign(from_.size(), W{0});
    for (int64_t q = 0; q < outputs_; ++q) {
      auto at = static_cast<size_t>(q);
      for_each_input(map, q, [&](int64_t s, double weight) {
        from_[at] = static_cast<int32_t>(s);
        weights_[at] = static_cast<W>(weight);
        at += static_cast<size_t>(outputs_);
      });
    }
  }
  /// Many inputs of an output are better added one after the other.
  bool are_few() const { return taps_ <= 4; }
  /// @param[in] row the inputs, and a zero after the last
  void apply(const W* row, W outside, W* out) const {
    if (taps_ == 0) std::fill_n(out, outputs_, W{0});
    for (int64_t k = 0; k < taps_; ++k) {
      const int32_t* from = from_.data() + k * outputs_;
      const W* weights = weights_.data() + k * outputs_;
      const auto term = [=](int64_t q) { return weights[q] * row[from[q]]; };
      k == 0 ? set_to(outputs_, term, out) : add_to(outputs_, term, out);
    }
    for (const int64_t q : none_) out[q] = outside;
  }

 private:
  int64_t outputs_, taps_ = 0;
  std::vector<int32_t> from_;
  LineVector<W> weights_;
  std::vector<int64_t> none_;
};

/// out = the inputs of an output, weighted and added up: two at a time, for `out` goes through
/// memory each time. `read(input, k)` gives n values; those for k = 0 are still there after k = 1.
template <class W, class Read>
void add_up(const AxisMap& map, int64_t output, int64_t n, W* out, Read&& read) {
  const auto begin = static_cast<size_t>(map.offsets()[static_cast<size_t>(output)]);
  const auto end = static_cast<size_t>(map.offsets()[static_cast<size_t>(output) + 1]);
  if (begin == end) std::fill_n(out, n, W{0});
  for (size_t i = begin; i < end; i += 2) {
    const auto f = static_cast<W>(map.weights()[i]);
    const W* a = read(map.from()[i], 0);
    const auto each = [&](auto term) { i == begin ? set_to(n, term, out) : add_to(n, term, out); };
    if (i + 1 == end) {
      each([=](int64_t j) { return f * a[j]; });
    } else {
      const auto g = static_cast<W>(map.weights()[i + 1]);
      const W* b = read(map.from()[i + 1], 1);
      each([=](int64_t j) { return f * a[j] + g * b[j]; });
    }
  }
}

/// What a thread needs for rows.
template <class T>
struct RowBuffers {
  RowBuffer<T> in[2], out;
  LineVector<Wide<T>> sums;

  RowBuffers(int64_t inputs, int64_t outputs)
      : in{RowBuffer<T>(inputs), RowBuffer<T>(inputs)},
        out(outputs),
        sums(static_cast<size_t>(inputs + 1)) {}  // and a zero
};

/// One row of outputs: the rows it comes from are added up first, whole, then their columns.
template <class T, class W = Wide<T>>
void resample_row(const ImageMap& map, const PlaneColumns<W>& planes, int64_t p, const T* image,
                  int64_t width, int64_t channels, RowBuffers<T>& buffers, W outside, W* out) {
  const int64_t outputs = map.columns.outputs(), inputs = width * channels;
  if (is_outside(map.rows, p)) {
    std::fill_n(out, outputs * channels, outside);
    return;
  }
  W* const row = buffers.sums.data();
  add_up(map.rows, p, inputs, row,
         [&](int64_t r, int k) { return buffers.in[k].read(image + r * inputs, inputs); });
  if (channels == 1 && planes.are_few()) return planes.apply(row, outside, out);
  for (int64_t q = 0; q < outputs; ++q) {
    W* const to = out + q * channels;
    if (is_outside(map.columns, q)) {
      std::fill_n(to, channels, outside);
    } else if (channels == 1) {
      *to = 0;
      for_each_input(map.columns, q,
                     [&](int64_t s, double weight) { *to += static_cast<W>(weight) * row[s]; });
    } else {
      add_up(map.columns, q, channels, to, [&](int64_t s, int) { return row + s * channels; });
    }
  }
}

/// Neighbouring outputs that are copies of neighbouring inputs, or of none.
struct Run {
  int64_t from, count;  ///< `from` is -1 where there is no input
};

/// The map as runs; none where an output is not the copy of one input.
std::vector<Run> copies_of(const AxisMap& map) {
  std::vector<Run> runs;
  for (int64_t o = 0; o < map.outputs(); ++o) {
    const auto first = static_cast<size_t>(map.offsets()[static_cast<size_t>(o)]);
    const int64_t inputs =
        map.offsets()[static_cast<size_t>(o) + 1] - map.offsets()[static_cast<size_t>(o)];
    if (inputs > 1 || (inputs == 1 && map.weights()[first] != 1)) return {};
    const int64_t from = inputs == 1 ? map.from()[first] : -1;
    const bool continues =
        !runs.empty() &&
        (from < 0 ? runs.back().from < 0
                  : runs.back().from >= 0 && runs.back().from + runs.back().count == from);
    if (continues) {
      ++runs.back().count;
    } else {
      runs.push_back({from, 1});
    }
  }
  return runs;
}

/// A few elements are not worth a call: they are copied as two pieces of constant size, which may
/// overlap.
template <class T>
void copy_elements(const T* from, int64_t count, T* to) {
  const auto in_two = [&]<int64_t half>(std::integral_constant<int64_t, half>) {
    std::memcpy(static_cast<void*>(to), from, half * sizeof(T));
    std::memcpy(static_cast<void*>(to + count - half), from + count - half, half * sizeof(T));
  };
  constexpr auto line = static_cast<int64_t>(64 / sizeof(T));
  if (count == 1) {
    *to = *from;
  } else if (count >= line / 4 && count <= line / 2) {
    in_two(std::integral_constant<int64_t, line / 4>{});
  } else if (count > line / 2 && count <= line) {
    in_two(std::integral_constant<int64_t, line / 2>{});
  } else {
    std::memcpy(static_cast<void*>(to), from, static_cast<size_t>(count) * sizeof(T));
  }
}

/// One row of outputs that are copies: of the input's row `in`, or of nothing where there is none.
template <class T>
void copy_row(const std::vector<Run>& columns, const T* in, int64_t channels, T outside, T* out) {
  for (const Run& run : columns) {
    const int64_t size = run.count * channels;
    if (in && run.from >= 0) {
      const T* from = in + run.from * channels;
      copy_elements(from, size, out);
    } else {
      std::fill_n(out, size, outside);
    }
    out += size;
  }
}

/// Whether y is made of copies of x; then it is done.
template <class T>
bool resample_by_copies(const ImageMap& map, const Tensor& x, double outside, const Tensor& y) {
  const std::vector<Run> rows = copies_of(map.rows), columns = copies_of(map.columns);
  if (rows.empty() || columns.empty()) return false;
  std::vector<int64_t> from_row;
  for (const Run& run : rows)
    for (int64_t i = 0; i < run.count; ++i) from_row.push_back(run.from < 0 ? -1 : run.from + i);
  const int64_t height = x.size(1), width = x.size(2), channels = x.size(3);
  const int64_t outputs = y.size(1), size = y.size(2) * channels;
  const T* from = x.data<T>();
  T* to = y.data<T>();
  parallel_for(y.size(0) * outputs, std::max<int64_t>(1, elementwise_grain / size),
               [&](int64_t begin, int64_t end) {
                 int64_t image = begin / outputs, line = begin % outputs;
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t row = from_row[static_cast<size_t>(line)];
                   const T* in = from + (image * height + row) * width * channels;
                   copy_row(columns, row < 0 ? nullptr : in, channels, static_cast<T>(outside),
                            to + i * size);
                   if (++line < outputs) continue;
                   line = 0;
                   ++image;
                 }
               });
  return true;
}

}  // namespace

void resample(const ImageMap& map, const Tensor& x, double outside, const Tensor& y, Stream) {
  visit_floating("resample", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    if (resample_by_copies<T>(map, x, outside, y)) return;
    const int64_t height = x.size(1), width = x.size(2), channels = x.size(3);
    const int64_t rows = y.size(1), size = y.size(2) * channels;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const auto taps = static_cast<int64_t>(map.rows.from().size()) / rows + 1;
    const int64_t work = taps * width * channels + 4 * size;
    const PlaneColumns<W> planes(map.columns);
    parallel_for(y.size(0) * rows, std::max<int64_t>(1, elementwise_grain / work),
                 [&](int64_t begin, int64_t end) {
                   RowBuffers<T> buffers(width * channels, size);
                   for (int64_t i = begin; i < end; ++i) {
                     resample_row<T>(map, planes, i % rows,
                                     from + i / rows * height * width * channels, width, channels,
                                     buffers, static_cast<W>(outside),
                                     buffers.out.target(to + i * size));
                     buffers.out.write(to + i * size, size);
                   }
                 });
  });
}

}  // namespace bs::cpu
