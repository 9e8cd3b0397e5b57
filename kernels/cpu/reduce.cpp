#include <bs/kernels/copy.h>
#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/panels.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/ranks.h>
#include <bs/kernels/cpu/reduce_terms.h>
#include <bs/kernels/reduce_kinds.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

namespace bs::cpu {

namespace {

// What is combined, and in which order, depends on the shape alone. Runs are cut into chunks of
// fixed length, whose results are combined in pairs where a row has many, else in order.

/// Columns of a task.
constexpr int64_t strip = 1024;
/// Independent partial results along a row: two vectors of AVX-512.
constexpr int64_t lanes = 32;

/// Terms of a lane that are combined one after the other: errors of sums do not grow with a row.
constexpr int64_t run_of_lane = 16;

/// Vectors of partial results.
template <class W>
struct LaneVectors {
  static constexpr int64_t size = Vector<W>::size, vectors = lanes / size;
  typename Vector<W>::type at[vectors];
};

/// Combines x[0, count), some multiple of `lanes` but not none, in runs.
template <class Op, class W, class T, class Term>
LaneVectors<W> combine_runs(const T* x, int64_t count, const Term& term, int64_t result) {
  using V = typename Vector<W>::type;
  constexpr int64_t run = run_of_lane * lanes;
  const auto combine = [&](int64_t begin) {
    LaneVectors<W> sums;
    for (V& sum : sums.at) sum = V{} + Op::template identity<W>;
    const int64_t end = std::min(count, begin + run);
    int64_t i = begin;
    do {  // at least once, so that no sum needs memory
      alignas(64) W buffer[lanes];
      const W* wide = widened(x + i, lanes, buffer);
      for (int64_t k = 0; k < LaneVectors<W>::vectors; ++k) {
        V terms;
        std::memcpy(&terms, wide + k * LaneVectors<W>::size, sizeof terms);
        sums.at[k] = Op::combine(sums.at[k], term(terms, result));
      }
      i += lanes;
    } while (i < end);
    return sums;
  };
  LaneVectors<W> all = combine(0);
  for (int64_t begin = run; begin < count; begin += run) {
    const LaneVectors<W> more = combine(begin);
    for (int64_t k = 0; k < LaneVectors<W>::vectors; ++k)
      all.at[k] = Op::combine(all.at[k], more.at[k]);
  }
  return all;
}

/// Combines `lanes` of x[0, count) at a time into partial[0, lanes); how many were taken.
template <class Op, class W, class T, class Term>
int64_t combine_lanes(const T* x, int64_t count, const Term& term, int64_t result, W* partial) {
  const int64_t whole = count / lanes * lanes;
  if constexpr (Op::in_registers) {
    const LaneVectors<W> sums = combine_runs<Op, W>(x, whole, term, result);
    std::memcpy(partial, sums.at, sizeof sums.at);
  } else {
    std::fill_n(partial, lanes, Op::template identity<W>);
    for (int64_t i = 0; i < whole; i += lanes) {
      alignas(64) W buffer[lanes];
      const W* wide = widened(x + i, lanes, buffer);
      for (int64_t l = 0; l < lanes; ++l)
        partial[l] = Op::combine(partial[l], term(wide[l], result));
    }
  }
  return whole;
}

/// Combines partial[0, 2 width) into partial[0]. Each width is a constant, so that it vectorises.
template <class Op, int64_t width, class W>
void fold(W* partial) {
  if constexpr (width > 0) {
    for (int64_t l = 0; l < width; ++l) partial[l] = Op::combine(partial[l], partial[l + width]);
    fold<Op, width / 2>(partial);
  }
}

/// A chunk of whole `lanes`: in registers to the last vector, in the order of combine_lanes and
/// fold. Short rows spend most of their time on that memory.
template <class Op, class W, class T, class Term>
W reduce_lanes(const T* x, int64_t count, const Term& term, int64_t result) {
  LaneVectors<W> sums = combine_runs<Op, W>(x, count, term, result);
  for (int64_t width = LaneVectors<W>::vectors / 2; width > 0; width /= 2)
    for (int64_t k = 0; k < width; ++k) sums.at[k] = Op::combine(sums.at[k], sums.at[k + width]);
  return fold_vector<Op, W>(sums.at[0]);
}

/// Reduces one chunk of a row.
template <class Op, class W, class T, class Term>
W reduce_chunk(const T* x, int64_t count, const Term& term, int64_t result) {
  if constexpr (requires { Op::of_largest; } && is_floating(dtype_of<T>))
    return convert<W>(extreme_of<Op::of_largest>(x, count));
  if constexpr (std::is_same_v<Op, Sum> && std::is_same_v<T, uint8_t>) {
    uint32_t total = 0;  // of a chunk, whose bytes fit: twice as many lanes as 64 bits have
    for (int64_t i = 0; i < count; ++i) total += x[i];
    return total;
  }
  if (count <= lanes) {
    W total = Op::template identity<W>;
    for (int64_t i = 0; i < count; ++i) total = Op::combine(total, term(term_of<W>(x[i]), result));
    return total;
  }
  if constexpr (Op::in_registers)
    if (count % lanes == 0) return reduce_lanes<Op, W>(x, count, term, result);
  alignas(64) W partial[lanes];
  const int64_t whole = combine_lanes<Op>(x, count, term, result, partial);
  for (int64_t l = 0; whole + l < count; ++l)
    partial[l] = Op::combine(partial[l], term(term_of<W>(x[whole + l]), result));
  fold<Op, lanes / 2>(partial);
  return partial[0];
}

/// y[row] = scale * the row's terms combined.
template <class Op, class W, class T, class Term>
void reduce_rows(const T* x, int64_t rows, int64_t n, const Term& term, W* y, W scale) {
  constexpr int64_t length = 8 * strip;
  const int64_t chunks = ceil_div(n, length);
  const auto partial = std::make_unique_for_overwrite<W[]>(static_cast<size_t>(rows * chunks));
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / std::min(n, length));
  parallel_for(rows * chunks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / chunks;
      const int64_t from = task % chunks * length;
      partial[static_cast<size_t>(task)] =
          reduce_chunk<Op, W>(x + row * n + from, std::min(length, n - from), term, row);
    }
  });
  for (int64_t row = 0; row < rows; ++row) {
    W* const part = partial.get() + row * chunks;
    for (int64_t step = 1; step < chunks; step *= 2)
      for (int64_t c = 0; c + step < chunks; c += 2 * step)
        part[c] = Op::combine(part[c], part[c + step]);
    y[row] = scale * part[0];
  }
}

/// Combines `rows` rows of columns, `step` apart: of so many that the results stay in registers.
constexpr int64_t held_columns = 2 * vector_bytes;
template <class Op, class W, class T, class Term>
void reduce_held(const T* x, int64_t rows, int64_t step, const Term& term, int64_t result, W* y) {
  alignas(64) W sums[held_columns];
  std::fill_n(sums, held_columns, Op::template identity<W>);
  for (int64_t r = 0; r < rows; ++r) {
    alignas(64) W buffer[held_columns];
    const W* wide = widened(x + r * step, held_columns, buffer);
#pragma omp simd
    for (int64_t c = 0; c < held_columns; ++c)
      sums[c] = Op::combine(sums[c], term(wide[c], result + c));
  }
  std::copy_n(sums, held_columns, y);
}

/// Combines `rows` rows of `columns` <= strip elements, `step` apart.
template <class Op, class W, class T, class Term>
void reduce_strip(const T* x, int64_t rows, int64_t step, int64_t columns, const Term& term,
                  int64_t result, W* __restrict y) {
  for (; columns >= held_columns; columns -= held_columns) {
    reduce_held<Op>(x, rows, step, term, result, y);
    x += held_columns;
    result += held_columns;
    y += held_columns;
  }
  alignas(64) W buffer[held_columns];
  std::fill_n(y, columns, Op::template identity<W>);
  for (int64_t r = 0; r < rows; ++r) {
    const W* wide = widened(x + r * step, columns, buffer);
    for (int64_t c = 0; c < columns; ++c) y[c] = Op::combine(y[c], term(wide[c], result + c));
  }
}

/// y[o, c] = scale * the terms x[o, :, c] combined; x [outer, n, inner].
template <class Op, class W, class T, class Term>
void reduce_columns(const T* x, int64_t outer, int64_t n, int64_t inner, const Term& term, W* y,
                    W scale) {
  const int64_t length = chunk_rows(n);
  const int64_t chunks = ceil_div(n, length);
  const int64_t strips = ceil_div(inner, strip);
  const auto partial =
      std::make_unique_for_overwrite<W[]>(static_cast<size_t>(outer * chunks * inner));
  const int64_t work = std::min(n, length) * std::min(inner, strip);
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / work);
  parallel_for(outer * chunks * strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t column = task % strips * strip;
      const int64_t o = task / strips / chunks;
      const int64_t chunk = task / strips % chunks;
      const int64_t first = chunk * length;
      reduce_strip<Op, W>(x + (o * n + first) * inner + column, std::min(length, n - first), inner,
                          std::min(strip, inner - column), term, o * inner + column,
                          partial.get() + (o * chunks + chunk) * inner + column);
    }
  });
  // The chunks' results are columns again.
  const int64_t few = std::max<int64_t>(1, elementwise_grain / (chunks * std::min(inner, strip)));
  parallel_for(outer * strips, few, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t o = task / strips, column = task % strips * strip;
      const int64_t columns = std::min(strip, inner - column);
      W* const results = y + o * inner + column;
      reduce_strip<Op>(partial.get() + o * chunks * inner + column, chunks, inner, columns,
                       Identity{}, 0, results);
      for (int64_t i = 0; i < columns; ++i) results[i] *= scale;
    }
  });
}

template <class Op, class W, class T, class Term>
void reduce(const Tensor& x, const Term& term, const Tensor& y, double scale) {
  const int64_t outer = x.size(0), n = x.size(1), inner = x.size(2);
  const T* from = elements<T>(x);
  if (inner == 1) {
    reduce_rows<Op, W>(from, outer, n, term, y.data<W>(), static_cast<W>(scale));
  } else {
    reduce_columns<Op, W>(from, outer, n, inner, term, y.data<W>(), static_cast<W>(scale));
  }
}

/// Reduces x to y by Op.
template <class Op>
void reduce_to(const char* op, const Tensor& x, const Tensor& y, double scale) {
  visit_terms(op, x.dtype(), [&]<class T, class W>(Type<T>, Type<W>) {
    through_wide(y, [&](const Tensor& wide) { reduce<Op, W, T>(x, Identity{}, wide, scale); });
  });
}

/// Calls f(i) for each number of y.
template <class F>
void for_each(const Tensor& y, F f) {
  parallel_for(y.numel(), elementwise_grain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

template <class W>
void take_roots(const Tensor& y) {
  for_each(y, [out = y.data<W>()](int64_t i) { out[i] = std::sqrt(out[i]); });
}

}  // namespace

void sum(const Tensor& x, const Tensor& y, double scale, Stream) {
  reduce_to<Sum>("sum", x, y, scale);
}

void root_of_squares(const Tensor& x, const Tensor& y, Stream) {
  visit_floating("vector_norm", x.dtype(), [&]<class T>(Type<T>) {
    through_wide(y, [&](const Tensor& wide) {
      reduce<Sum, Wide<T>, T>(x, Square{}, wide, 1);
      take_roots<Wide<T>>(wide);
    });
  });
}

void count_equal(const Tensor& x, const Tensor& to, const Tensor& y, Stream) {
  visit_floating("extremum_backward", x.dtype(), [&]<class T>(Type<T>) {
    reduce<Sum, Wide<T>, T>(x, EqualTo<Wide<T>, T>{to.data<T>()}, y, 1);
  });
}

void product(const Tensor& x, const Tensor& y, Stream) { reduce_to<Product>("prod", x, y, 1); }

void amax(const Tensor& x, const Tensor& y, Stream) { reduce_to<Max>("amax", x, y, 1); }

void amin(const Tensor& x, const Tensor& y, Stream) { reduce_to<Min>("amin", x, y, 1); }

/// In two passes.
void log_sum_exp(const Tensor& x, const Tensor& y, Stream stream) {
  visit_floating("logsumexp", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    through_wide(y, [&](const Tensor& wide) {
      const Tensor shift = Tensor::empty_like(wide);
      amax(x, shift, stream);
      W *const shifts = shift.data<W>(), *const out = wide.data<W>();
      // By an infinite one nothing would be gained.
      for_each(y, [=](int64_t i) { shifts[i] = std::isfinite(shifts[i]) ? shifts[i] : W{0}; });
      reduce<ElementSum, W, T>(x, Exponential<W>{shifts}, wide, 1);
      for_each(y, [=](int64_t i) { out[i] = math::log(out[i]) + shifts[i]; });
    });
  });
}

}  // namespace bs::cpu
