#include <bs/kernels/copy.h>
#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/panel_vectors.h>
#include <bs/kernels/cpu/strided_loop.h>
#include <bs/lib/integers.h>
#include <bs/lib/threads.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace bs::cpu {

namespace {

/// Whether a conversion goes through float without being one from or to it: as two of these, each
/// is a loop of vectors.
template <class From, class To>
constexpr bool takes_two_steps = !std::is_same_v<From, float> && !std::is_same_v<To, float> &&
                                 (!std::is_arithmetic_v<From> || !std::is_arithmetic_v<To>);

template <class From>
void to_floats(int64_t n, const From* from, float* to) {
  if constexpr (std::is_same_v<From, bool>) {  // of which g++ vectorises no load
    const auto* bytes = reinterpret_cast<const uint8_t*>(from);
    for (int64_t i = 0; i < n; ++i) to[i] = bytes[i] != 0 ? 1.0F : 0.0F;
  } else {
    convert_row(n, from, to);
  }
}

template <class From, class To>
void convert_dense(int64_t n, const From* from, To* to) {
  if constexpr (takes_two_steps<From, To>) {
    constexpr int64_t block = 64;
    alignas(64) float wide[block];
    for (int64_t i = 0; i < n; i += block) {
      const int64_t count = std::min(block, n - i);
      to_floats(count, from + i, wide);
      convert_row(count, wide, to + i);
    }
  } else {
    convert_row(n, from, to);
  }
}

/// By vectors as wide as there are: memcpy has moves of 16 bytes, or is a call.
template <size_t bytes>
void move_row(const void* from, void* to) {
  typedef char Line __attribute__((vector_size(64), aligned(1), may_alias));
  if constexpr (bytes == 2 * sizeof(Line)) {
    const Line* const source = static_cast<const Line*>(from);
    Line* const target = static_cast<Line*>(to);
    const Line first = source[0], second = source[1];
    target[0] = first;
    target[1] = second;
  } else {
    std::memcpy(to, from, bytes);
  }
}

/// Copies dense rows of `bytes` bytes: a call for each would take longer than what it moves.
template <size_t bytes, class T>
void copy_short_rows(const StridedLoop<2>& loop, const T* from, T* to) {
  for_each_row(loop, [=](const auto& offsets, int64_t at, int64_t count) {
    const T* source = from + offsets[0] + at;
    void* const target = to + offsets[1] + at;
    if (static_cast<size_t>(count) * sizeof(T) == bytes) {
      move_row<bytes>(source, target);
    } else {  // the cores meet within this row
      std::memcpy(target, source, static_cast<size_t>(count) * sizeof(T));
    }
  });
}

/// Whether there is a loop for the length of these rows.
template <class T>
bool copied_short_rows(const StridedLoop<2>& loop, const T* from, T* to) {
  switch (static_cast<size_t>(loop.inner()) * sizeof(T)) {
    case 16:
      copy_short_rows<16>(loop, from, to);
      return true;
    case 32:
      copy_short_rows<32>(loop, from, to);
      return true;
    case 64:
      copy_short_rows<64>(loop, from, to);
      return true;
    case 128:
      copy_short_rows<128>(loop, from, to);
      return true;
    default:
      return false;
  }
}

template <class From, class To>
void copy_dense_rows(const StridedLoop<2>& loop, const From* from, To* to) {
  if constexpr (std::is_same_v<From, To>)
    if (copied_short_rows(loop, from, to)) return;
  for_each_row(loop, [=](const auto& offsets, int64_t at, int64_t count) {
    const From* source = from + offsets[0] + at;
    To* target = to + offsets[1] + at;
    if constexpr (std::is_same_v<From, To>) {
      std::memcpy(static_cast<void*>(target), source, static_cast<size_t>(count) * sizeof(To));
    } else {
      convert_dense(count, source, target);
    }
  });
}

template <class From, class To>
void copy_rows(const StridedLoop<2>& loop, const From* from, To* to) {
  const int64_t s = loop.inner_stride(0);
  const int64_t d = loop.inner_stride(1);
  if (s == 1 && d == 1) return copy_dense_rows(loop, from, to);
  for_each_row(loop, [=](const auto& offsets, int64_t at, int64_t count) {
    const From* source = from + offsets[0] + at * s;
    To* target = to + offsets[1] + at * d;
    // A turn of one element takes a cycle or two, as the loop happens to lie.
#pragma GCC unroll 4
    for (int64_t i = 0; i < count; ++i) target[i * d] = convert<To>(source[i * s]);
  });
}

/// The axis along which the source is dense where it is not along the inner one, or -1.
int dense_axis(const StridedLoop<2>& loop) {
  if (loop.inner_stride(0) == 1) return -1;
  for (int axis = loop.rank - 2; axis >= 0; --axis)
    if (loop.strides[0][axis] == 1 && loop.shape[axis] > 1) return axis;
  return -1;
}

constexpr int64_t side = 32;  // of a tile

/// How far apart the rows of a tile lie in the target, and its elements there.
struct TileSteps {
  int64_t to, element;
};

/// Where the rows of tiles lie in the source, one after the other: each `step` behind the last.
class EvenRows {
 public:
  explicit EvenRows(int64_t step) : step_(step), from_(-side * step) {}

  /// Those of the next tile.
  void next(int64_t /*depth*/) { from_ += side * step_; }
  int64_t operator[](int64_t j) const { return from_ + j * step_; }

 private:
  int64_t step_, from_;
};

/// The same where `height` of them lie so, then as many `apart` from these.
class JoinedRows {
 public:
  JoinedRows(int64_t height, int64_t step, int64_t apart)
      : height_(height), step_(step), jump_(apart - height * step) {}

  void next(int64_t depth) {
    for (int64_t k = 0; k < depth; ++k) {
      at_[static_cast<size_t>(k)] = from_;
      from_ += step_;
      if (++number_ < height_) continue;
      number_ = 0;
      from_ += jump_;
    }
  }
  int64_t operator[](int64_t j) const { return at_[static_cast<size_t>(j)]; }

 private:
  int64_t height_, step_, jump_, number_ = 0, from_ = 0;
  std::array<int64_t, side> at_{};
};

/// to[i][j] = from[rows[j]][i] for i < count, j < depth.
template <class Rows, class From, class To>
void turn(int64_t depth, int64_t count, TileSteps step, const Rows& rows, const From* from,
          To* to) {
  From tile[side][side];
  for (int64_t j = 0; j < depth; ++j)
    for (int64_t i = 0; i < count; ++i) tile[i][j] = from[rows[j] + i];
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < depth; ++j)
      to[i * step.to + j * step.element] = convert<To>(tile[i][j]);
}

/// The same of a whole tile with dense rows, as vectors: single elements take a cycle each.
template <class Rows, class T>
void turn_whole(const TileSteps& step, const Rows& at, const T* from, T* to) {
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
  constexpr int bytes = 32, lanes = bytes / static_cast<int>(sizeof(T));
  typedef Bits Aligned __attribute__((vector_size(bytes)));
  typedef Bits Loose __attribute__((vector_size(bytes), aligned(sizeof(T)), may_alias));
  for (int64_t i = 0; i < side; i += lanes)
    for (int64_t j = 0; j < side; j += lanes) {
      Aligned rows[lanes];
#pragma GCC unroll 16
      for (int k = 0; k < lanes; ++k)
        rows[k] = *reinterpret_cast<const Loose*>(from + at[j + k] + i);
      transpose<1, lanes>(rows);
#pragma GCC unroll 16
      for (int k = 0; k < lanes; ++k)
        *reinterpret_cast<Loose*>(to + (i + k) * step.to + j) = rows[k];
    }
}

/// Copies a transposed source in square tiles, read along its dense axis and written along the
/// target's. Either way alone would use one element of each line of the cache that it touches. The
/// target has `height` rows of the source beside each other for each of `planes`.
template <class Rows, class From, class To>
void copy_tiles(const StridedLoop<2>& planes, int64_t width, int64_t height, const TileSteps& step,
                const Rows& all, const From* from, To* to) {
  constexpr bool has_vectors = std::is_same_v<From, To> && (sizeof(From) == 2 || sizeof(From) == 4);
  const int64_t strips = ceil_div(width, side);
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / (side * height));
  parallel_for(planes.numel() * strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task % strips * side;
      const int64_t count = std::min(side, width - first);
      const From* source = from + planes.offset(0, task / strips) + first;
      To* target = to + planes.offset(1, task / strips) + first * step.to;
      Rows rows = all;
      for (int64_t at = 0; at < height; at += side) {
        const int64_t depth = std::min(side, height - at);
        rows.next(depth);
        To* const out = target + at * step.element;
        if constexpr (has_vectors) {
          if (step.element == 1 && depth == side && count == side) {
            turn_whole(step, rows, source, out);
            continue;
          }
        }
        turn(depth, count, step, rows, source, out);
      }
    }
  });
}

template <class From, class To>
void copy_tiles(const StridedLoop<2>& loop, int dense, const From* from, To* to) {
  StridedLoop<2> planes = loop;
  const int inner = loop.rank - 1, next = loop.rank - 2;
  const int64_t width = loop.shape[dense], height = loop.inner(), apart = loop.inner_stride(0);
  const TileSteps step{loop.strides[1][dense], loop.inner_stride(1)};
  planes.shape[dense] = planes.shape[inner] = 1;
  // Short rows of the target take in those behind them: lines that are written in parts, a plane
  // at a time, push one another out of the cache.
  const bool joins = height < side && next != dense &&
                     loop.strides[1][next] == height * step.element &&
                     planes.numel() / planes.shape[next] * ceil_div(width, side) >= threads();
  if (!joins) return copy_tiles(planes, width, height, step, EvenRows(apart), from, to);
  planes.shape[next] = 1;
  const JoinedRows rows(height, apart, loop.strides[0][next]);
  copy_tiles(planes, width, height * loop.shape[next], step, rows, from, to);
}

}  // namespace

void copy(const Tensor& from, const Tensor& to, Stream) {
  const StridedLoop<2> loop(from.shape(), {from.strides(), to.strides()});
  const int dense = dense_axis(loop);
  visit_any(from.dtype(), [&]<class From>(Type<From>) {
    visit_any(to.dtype(), [&]<class To>(Type<To>) {
      if (dense >= 0) return copy_tiles(loop, dense, from.data<From>(), to.data<To>());
      copy_rows(loop, from.data<From>(), to.data<To>());
    });
  });
}

}  // namespace bs::cpu
