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

/// Outputs of an image that are written at once, and what they come from.
struct Strip {
  int64_t first, last;          ///< rows of outputs
  int64_t from = 0, count = 0;  ///< rows of inputs
  bool is_held = false;         ///< whether these are so few that they are read at once
};

constexpr int64_t most_outputs = 2048, most_inputs = 8192;  ///< elements of a strip

/// The rows of outputs from `first` on, before `end`: short rows of 16-bit types are converted
/// together.
Strip strip_of(const AxisMap& rows, int64_t first, int64_t end, int64_t inputs, int64_t outputs) {
  Strip strip{first, std::min(end, first + std::max<int64_t>(1, most_outputs / outputs))};
  const int32_t* const from = rows.from().data();
  const int32_t begin = rows.offsets()[static_cast<size_t>(first)];
  const int32_t finish = rows.offsets()[static_cast<size_t>(strip.last)];
  if (begin == finish) return strip;
  const auto [least, most] = std::minmax_element(from + begin, from + finish);
  strip.from = *least;
  strip.count = *most + 1 - *least;
  strip.is_held = strip.count * inputs <= most_inputs;
  return strip;
}

/// What a thread needs, and the strip that it is at.
template <class T>
class StripBuffers {
 public:
  using W = Wide<T>;

  /// For rows of so many elements.
  StripBuffers(int64_t inputs, int64_t outputs)
      : out(std::max(most_outputs, outputs)),
        sums(static_cast<size_t>(inputs + 1)),  // and a zero
        inputs_(inputs),
        held_(most_inputs),
        single_{RowBuffer<T>(inputs), RowBuffer<T>(inputs)} {}

  void begin(const Strip& strip, const T* image) {
    image_ = image;
    first_ = strip.from;
    rows_ =
        strip.is_held ? held_.read(image + strip.from * inputs_, strip.count * inputs_) : nullptr;
  }
  /// A row of inputs, the k-th that is in use.
  const W* row(int64_t r, int k) {
    if (rows_) return rows_ + (r - first_) * inputs_;
    return single_[k].read(image_ + r * inputs_, inputs_);
  }

  RowBuffer<T> out;
  LineVector<W> sums;

 private:
  int64_t inputs_, first_ = 0;
  const T* image_ = nullptr;
  const W* rows_ = nullptr;
  RowBuffer<T> held_, single_[2];
};

/// The map of an image, as the type that it is computed in needs it.
template <class W>
struct Mapped {
  const ImageMap& map;
  PlaneColumns<W> planes;
  int64_t width, channels;
  W outside;

  /// One row of outputs: the rows it comes from are added up first, whole, then their columns.
  template <class Buffers>
  void resample_row(int64_t p, Buffers& buffers, W* out) const {
    const int64_t outputs = map.columns.outputs();
    if (is_outside(map.rows, p)) {
      std::fill_n(out, outputs * channels, outside);
      return;
    }
    W* const row = buffers.sums.data();
    add_up(map.rows, p, width * channels, row, [&](int64_t r, int k) { return buffers.row(r, k); });
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
};

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
  if (count >= line / 4 && count <= line / 2) {
    in_two(std::integral_constant<int64_t, line / 4>{});
  } else if (count > line / 2 && count <= line) {
    in_two(std::integral_constant<int64_t, line / 2>{});
  } else {
    std::memcpy(static_cast<void*>(to), from, static_cast<size_t>(count) * sizeof(T));
  }
}

/// Which input each output is a copy of, or -1.
std::vector<int32_t> inputs_of(const std::vector<Run>& runs) {
  std::vector<int32_t> inputs;
  for (const Run& run : runs)
    for (int64_t i = 0; i < run.count; ++i)
      inputs.push_back(static_cast<int32_t>(run.from < 0 ? -1 : run.from + i));
  return inputs;
}

/// Elements of a row that lie side by side in the input, or of the border.
struct Piece {
  int64_t from, to, count;
};

/// Outputs that are copies of inputs, row by row.
class Copies {
 public:
  Copies(const std::vector<Run>& rows, const std::vector<Run>& columns, int64_t channels)
      : rows_(inputs_of(rows)) {
    for (const Run& run : columns) {
      const Piece piece{run.from * channels, size_, run.count * channels};
      (run.from < 0 ? borders_ : piece.count == 1 ? singles_ : pieces_).push_back(piece);
      size_ += piece.count;
    }
  }

  /// Rows [begin, end) of all images, whose inputs have `height` rows of `width` elements.
  template <class T>
  void copy(const T* x, int64_t height, int64_t width, T outside, T* y, int64_t begin,
            int64_t end) const {
    const auto outputs = static_cast<int64_t>(rows_.size()), size = size_;
    const int32_t* const rows = rows_.data();
    const T* last = nullptr;
    for (int64_t at = begin; at < end;) {
      const T* const image = x + at / outputs * height * width;
      const int64_t first = at % outputs, count = std::min(outputs - first, end - at);
      for (int64_t line = first; line < first + count; ++line, y += size) {
        const T* const in = rows[line] < 0 ? nullptr : image + rows[line] * width;
        if (!in) {
          std::fill_n(y, size, outside);
        } else if (in == last) {
          std::copy_n(y - size, size, y);
        } else {
          copy_row(in, outside, y);
        }
        last = in;
      }
      at += count;
    }
  }

 private:
  template <class T>
  void copy_row(const T* in, T outside, T* out) const {
    for (const Piece& p : pieces_) copy_elements(in + p.from, p.count, out + p.to);
    // A single element is not worth a look at its length.
    const Piece* const single = singles_.data();
    const auto singles = static_cast<int64_t>(singles_.size());
#pragma GCC unroll 2
    for (int64_t i = 0; i < singles; ++i) out[single[i].to] = in[single[i].from];
    for (const Piece& p : borders_) std::fill_n(out + p.to, p.count, outside);
  }

  std::vector<int32_t> rows_;
  std::vector<Piece> pieces_, singles_, borders_;
  int64_t size_ = 0;
};

/// Whether y is made of copies of x; then it is done.
template <class T>
bool resample_by_copies(const ImageMap& map, const Tensor& x, double outside, const Tensor& y) {
  const std::vector<Run> rows = copies_of(map.rows), columns = copies_of(map.columns);
  if (rows.empty() || columns.empty()) return false;
  const Copies copies(rows, columns, x.size(3));
  const int64_t width = x.size(2) * x.size(3), size = y.size(2) * y.size(3);
  const int64_t lines = y.size(0) * y.size(1);
  parallel_for(lines, std::max<int64_t>(1, elementwise_grain / size),
               [&](int64_t begin, int64_t end) {
                 copies.copy(x.data<T>(), x.size(1), width, static_cast<T>(outside),
                             y.data<T>() + begin * size, begin, end);
               });
  return true;
}

}  // namespace

void resample(const ImageMap& map, const Tensor& x, double outside, const Tensor& y, Stream) {
  visit_floating("resample", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    if (resample_by_copies<T>(map, x, outside, y)) return;
    const Mapped<W> mapped{map, PlaneColumns<W>(map.columns), x.size(2), x.size(3),
                           static_cast<W>(outside)};
    const int64_t inputs = x.size(2) * x.size(3), rows = y.size(1);
    const int64_t outputs = y.size(2) * x.size(3), image = x.size(1) * inputs;
    const auto taps = static_cast<int64_t>(map.rows.from().size()) / rows + 1;
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / (taps * inputs + 4 * outputs));
    parallel_for(y.size(0) * rows, grain, [&](int64_t begin, int64_t end) {
      StripBuffers<T> buffers(inputs, outputs);
      for (int64_t at = begin; at < end;) {
        const int64_t n = at / rows, first = at - n * rows;
        const Strip strip =
            strip_of(map.rows, first, std::min(rows, end - n * rows), inputs, outputs);
        T* const to = y.data<T>() + at * outputs;
        W* const out = buffers.out.target(to);
        buffers.begin(strip, x.data<T>() + n * image);
        for (int64_t p = strip.first; p < strip.last; ++p)
          mapped.resample_row(p, buffers, out + (p - first) * outputs);
        at += strip.last - first;
        buffers.out.write(to, (strip.last - first) * outputs);
      }
    });
  });
}

}  // namespace bs::cpu
