#include <bs/kernels/cpu/conv2d_direct.h>
#include <bs/kernels/cpu/conv2d_frame.h>
#include <bs/kernels/cpu/panels.h>
#include <bs/kernels/cpu/parallel.h>

#include <bit>
#include <span>

namespace bs::cpu {

namespace {

constexpr int frame_slot = 4, slope_slot = 7, sums_slot = 6;
constexpr int64_t most_parts = 16, most_sums = 1 << 18;  ///< of all parts
constexpr int64_t piece_pixels = 128;

template <class W>
constexpr int64_t lanes_of = Tile<W>::lanes;
template <class W>
using Vector [[gnu::vector_size(vector_bytes), gnu::aligned(alignof(W)), gnu::may_alias]] = W;

/// Channels of x and of dy go in planes of a few each, whose pixels follow each other in memory.
/// What a tap reads then fills whole lines of the cache.
struct Planes {
  int64_t in, out;  ///< channels of a plane of x, of a whole one of dy

  template <class W>
  static Planes of(const ConvGather& g, Type<W>) {
    constexpr int64_t line = 64 / static_cast<int64_t>(sizeof(W));
    return {g.in % line == 0 ? line : g.in, 2 * lanes_of<W>};
  }
};

/// How the pixels of all images are cut. A unit is a strip of one image, or several small images.
/// Units are cut into pieces that the nearest cache holds.
struct GradientCut {
  int64_t images;         ///< of a unit
  int64_t strips, units;  ///< of an image or a few, of all of them
  int64_t piece;          ///< rows
  int64_t part, parts;    ///< units that are summed up apart from others

  /// The largest that is no more than n.
  static int64_t power_of_two(int64_t n) {
    return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)));
  }

  GradientCut(const ConvGather& g, const Frame& frame, size_t taps) {
    const ConvPhase& phase = g.phases[0];
    strips = frame.strips(phase);
    // Powers of two, as batches mostly are: threads then get parts that are alike.
    images =
        strips > 1 ? 1 : power_of_two(std::clamp<int64_t>(piece_pixels / phase.pixels(), 1, g.n));
    units = ceil_div(g.n, images) * strips;
    piece = even_step(frame.strip(), std::max<int64_t>(1, piece_pixels / phase.cols), 1);
    const int64_t sums = static_cast<int64_t>(taps) * g.in * g.out;
    part =
        ceil_div(units, 2 * power_of_two(std::clamp<int64_t>(most_sums / sums, 2, most_parts / 2)));
    parts = ceil_div(units, part);
  }
};

/// What the sums of a piece are made of.
template <class W>
struct Piece {
  const W* frames;         ///< its images' frames, from the first of its rows on
  int64_t frame;           ///< from one image's to the next
  int64_t step_h, step_w;  ///< from a pixel to the next
  const W* slope;          ///< dy's pixels, from that row on
  int64_t image;           ///< from one image's to the next
  int64_t images, rows, cols;
};

/// Adds to P rows of the gradient, each of a tap and a channel, what the pixels of a piece say.
/// `Run`: the elements that they read follow each other.
template <class W, int P, int N, bool Run>
void add_rows(const Piece<W>& piece, const int64_t* offsets, W* sums, int64_t pitch) {
  using V = Vector<W>;
  V total[P][N] = {};
  for (int64_t n = 0; n < piece.images; ++n) {
    const W* at[P];
    for (int j = 0; j < P; ++j) at[j] = piece.frames + n * piece.frame + offsets[j];
    const W* slope = piece.slope + n * piece.image;
    for (int64_t p = 0; p < piece.rows; ++p) {
      int64_t pixel = p * piece.step_h;
      for (int64_t q = 0; q < piece.cols; ++q, pixel += piece.step_w, slope += N * lanes_of<W>) {
        V d[N];
#pragma GCC unroll 2
        for (int v = 0; v < N; ++v) d[v] = *reinterpret_cast<const V*>(slope + v * lanes_of<W>);
#pragma GCC unroll 8
        for (int j = 0; j < P; ++j)
#pragma GCC unroll 2
          for (int v = 0; v < N; ++v) total[j][v] += (Run ? at[0][pixel + j] : at[j][pixel]) * d[v];
      }
    }
  }
  for (int j = 0; j < P; ++j)
    for (int v = 0; v < N; ++v) {
      auto& sum = *reinterpret_cast<V*>(sums + j * pitch + v * lanes_of<W>);
      sum += total[j][v];
    }
}

/// All rows, by N vectors of channels.
template <class W, int N>
void add_piece(const Piece<W>& piece, std::span<const int64_t> offsets, W* sums, int64_t pitch) {
  constexpr int most = vector_bytes == 64 || N == 1 ? 8 : 6;
  size_t row = 0;
  const auto run = [&]<int P>(std::integral_constant<int, P>) {
    for (; offsets.size() - row >= P; row += P) {
      const int64_t* reads = offsets.data() + row;
      const bool is_run =
          std::ranges::is_sorted(reads, reads + P) && reads[P - 1] == reads[0] + P - 1;
      (is_run ? add_rows<W, P, N, true>
              : add_rows<W, P, N, false>)(piece, reads, sums + static_cast<int64_t>(row) * pitch,
                                          pitch);
    }
  };
  run(std::integral_constant<int, most>{});
  run(std::integral_constant<int, 4>{});
  run(std::integral_constant<int, 1>{});
}

template <class W, class T>
class DirectGradient {
 public:
  DirectGradient(const ConvGather& g, const Tensor& x, const Tensor& dy)
      : g_(g),
        taps_(taps_of(g, g.phases[0])),
        frame_(g, g.phases[0], taps_),
        planes_(Planes::of(g, Type<W>{})),
        cut_(g, frame_, taps_.size()),
        pitch_(round_up(g.out, lanes_of<W>)),
        x_(x.data<T>()),
        from_(x),
        dy_(dy.data<T>()) {
    for (const DirectTap& tap : taps_)
      for (int64_t c = 0; c < g.in; ++c)
        offsets_.push_back(c / planes_.in * frame_.size(planes_.in) +
                           frame_.offset(tap, planes_.in) + c % planes_.in);
  }

  void run(int team, const Tensor& dweight) const {
    const auto rows = static_cast<int64_t>(offsets_.size());
    W* sums = scratch<W>(sums_slot, cut_.parts * rows * pitch_);
    parallel_each(cut_.parts, team, [&](int64_t i) {
      std::fill_n(sums + i * rows * pitch_, rows * pitch_, W(0));
      for (int64_t u = i * cut_.part; u < std::min(cut_.units, (i + 1) * cut_.part); ++u)
        add_unit(u, sums + i * rows * pitch_);
    });
    parallel_for(rows, ceil_div(elementwise_grain, pitch_ * cut_.parts),
                 [&](int64_t first, int64_t last) {
                   for (int64_t row = first; row < last; ++row)
                     store(row, sums + row * pitch_, rows * pitch_, dweight);
                 });
  }

 private:
  void add_unit(int64_t unit, W* sums) const {
    const ConvPhase& phase = g_.phases[0];
    const int64_t n = unit / cut_.strips * cut_.images, top = unit % cut_.strips * frame_.strip();
    const int64_t images = std::min(cut_.images, g_.n - n);
    const int64_t rows = std::min(frame_.strip(), phase.rows - top);
    const W* filled = fill_frames(n, images, top, rows);
    const int64_t pixels = images * rows * phase.cols;
    const W* slope = fill_slope((n * phase.rows + top) * phase.cols, pixels);
    for (int64_t p = 0; p < rows; p += cut_.piece)
      for (int64_t k = 0; k < pitch_; k += planes_.out) {
        const int64_t width = std::min(planes_.out, pitch_ - k);
        const Piece<W> piece{.frames = filled + p * frame_.row(planes_.in),
                             .frame = frame_.size(g_.in),
                             .step_h = frame_.row(planes_.in),
                             .step_w = g_.read.w * planes_.in,
                             .slope = slope + k * pixels + p * phase.cols * width,
                             .image = rows * phase.cols * width,
                             .images = images,
                             .rows = std::min(cut_.piece, rows - p),
                             .cols = phase.cols};
        (width == planes_.out ? add_piece<W, 2> : add_piece<W, 1>)(piece, offsets_, sums + k,
                                                                   pitch_);
      }
  }

  const W* fill_frames(int64_t n, int64_t images, int64_t top, int64_t rows) const {
    W* filled = scratch<W>(frame_slot, cut_.images * frame_.size(g_.in));
    const int64_t plane = frame_.size(planes_.in);
    for (int64_t i = 0; i < images; ++i)
      for (int64_t c = 0; c < g_.in; c += planes_.in)
        frame_.fill(g_, planes_.in, x_ + (n + i) * from_.n + c, from_, top, rows,
                    filled + i * frame_.size(g_.in) + c / planes_.in * plane);
    return filled;
  }

  const W* fill_slope(int64_t first, int64_t pixels) const {
    W* slope = scratch<W>(slope_slot, pixels * pitch_);
    for (int64_t k = 0; k < pitch_; k += planes_.out) {
      const int64_t width = std::min(planes_.out, pitch_ - k), some = std::min(width, g_.out - k);
      W* to = slope + k * pixels;
      for (int64_t i = first; i < first + pixels; ++i, to += width) {
        widen(some, dy_ + i * g_.out + k, to);
        std::fill(to + some, to + width, W(0));
      }
    }
    return slope;
  }

  /// A row's sums of all parts, `part` apart, added in their order and put where weights lie.
  void store(int64_t row, W* total, int64_t part, const Tensor& dweight) const {
    for (int64_t i = 1; i < cut_.parts; ++i)
      for (int64_t k = 0; k < g_.out; ++k) total[k] += total[i * part + k];
    const int64_t height = dweight.size(2), width = dweight.size(3);
    const DirectTap& tap = taps_[static_cast<size_t>(row / g_.in)];
    T* to = dweight.data<T>() + (row % g_.in * height + tap.r) * width + tap.s;
    for (int64_t k = 0; k < g_.out; ++k) to[k * g_.in * height * width] = convert<T>(total[k]);
  }

  const ConvGather& g_;
  std::vector<DirectTap> taps_;
  Frame frame_;
  Planes planes_;
  GradientCut cut_;
  int64_t pitch_;
  std::vector<int64_t> offsets_;  ///< in a frame, of each tap and channel
  const T* x_;
  Strides4 from_;
  const T* dy_;
};

}  // namespace

void direct_backward_w(const ConvGather& g, const Tensor& x, const Tensor& dy,
                       const Tensor& dweight) {
  const int team = team_size(g.products(), worth_a_conv_thread);
  visit_floating("conv2d_backward_w", x.dtype(), [&]<class T>(Type<T>) {
    DirectGradient<Wide<T>, T>(g, x, dy).run(team, dweight);
  });
}

}  // namespace bs::cpu
