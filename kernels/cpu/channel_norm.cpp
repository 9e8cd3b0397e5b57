#include <bs/kernels/channel_norm.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/cpu/channel_parts.h>
#include <bs/kernels/cpu/column_moments.h>

#include <array>
#include <cmath>

namespace bs::cpu {

namespace {

/// Where a ReLU's gradient is cut off: nowhere, where z is not positive, where y is not.
enum class Mask : uint8_t { none, z, y };

template <class W>
W* maybe(const Tensor& t) {
  return t.defined() ? t.data<W>() : nullptr;
}

/// A vector of the channels in the dtype of statistics.
template <class W>
Tensor wide_vector(const Tensor& t) {
  return t.defined() ? cast(t, dtype_of<W>) : t;
}

/// What each slot's elements are multiplied by and moved by.
template <class W>
struct Coefficients {
  LineVector<W> mean, scale, shift;

  Coefficients(const ChannelSlots& s, const ChannelNorm& norm) {
    const auto count = static_cast<size_t>(s.slots());
    mean.resize(count), scale.resize(count), shift.resize(count);
    const W *means = norm.mean.data<W>(), *rstds = norm.rstd.data<W>();
    const Tensor weights = wide_vector<W>(norm.weight), biases = wide_vector<W>(norm.bias);
    const W *weight = maybe<W>(weights), *bias = maybe<W>(biases);
    for_all_slots(s, [&](int64_t slot, int64_t set, int64_t channel) {
      const auto at = static_cast<size_t>(slot);
      mean[at] = means[set];
      scale[at] = rstds[set] * (weight ? weight[channel] : W{1});
      shift[at] = bias ? bias[channel] : W{0};
    });
  }
};

/// Pointers to the coefficients of a row's slots; a plane has one of each.
template <class W, bool columns>
struct Row {
  const W *mean, *scale, *shift;

  static constexpr bool has_columns = columns;
  static int64_t at(int64_t i) { return columns ? i : 0; }
  /// Of a part whose first slot is `slot`.
  static Row of(const Coefficients<W>& all, int64_t slot) {
    return {all.mean.data() + slot, all.scale.data() + slot, all.shift.data() + slot};
  }
  Row from(int64_t i) const { return {mean + at(i), scale + at(i), shift + at(i)}; }
  W z(const W* x, int64_t i) const { return (x[i] - mean[at(i)]) * scale[at(i)] + shift[at(i)]; }
};

template <Mask mask>
using Masked = std::integral_constant<Mask, mask>;

/// Calls f(Row<W, columns>, Masked<mask>).
template <class W, class F>
void visit_row(bool columns, Mask mask, F&& f) {
  const auto with = [&]<bool is_columns>(std::bool_constant<is_columns>) {
    using R = Row<W, is_columns>;
    switch (mask) {
      case Mask::none:
        return f(R{}, Masked<Mask::none>{});
      case Mask::z:
        return f(R{}, Masked<Mask::z>{});
      default:
        return f(R{}, Masked<Mask::y>{});
    }
  };
  columns ? with(std::true_type{}) : with(std::false_type{});
}

/// A piece of what a gradient is computed of.
template <class T, Mask mask, class W = Wide<T>>
struct Gradients {
  RowPieceBuffer<T> buffers[3];
  const W *x, *dy, *y;

  Gradients(const T* all_x, const T* all_dy, const T* all_y, int64_t at, auto length)
      : x(buffers[0].read(all_x + at, length)),
        dy(buffers[1].read(all_dy + at, length)),
        y(mask == Mask::y ? buffers[2].read(all_y + at, length) : nullptr) {}
  template <class R>
  W dz(const R& row, int64_t i) const {
    if constexpr (mask == Mask::none) return dy[i];
    if constexpr (mask == Mask::z) return row.z(x, i) > 0 ? dy[i] : W{0};
    return y[i] > 0 ? dy[i] : W{0};
  }
};

Mask mask_of(const ChannelNorm& norm, const ChannelGradient& gradient) {
  return !norm.relu ? Mask::none : gradient.y.defined() ? Mask::y : Mask::z;
}

template <class T, class W = Wide<T>>
void moments(const ChannelSlots& s, const Tensor& x, const ChannelStatistics& to) {
  const int64_t parts = Parts(s).parts;
  LineVector<W> mean(static_cast<size_t>(s.slots() * parts)), squares(mean.size());
  const T* from = x.data<T>();
  for_each_part(s, [&](int64_t o, int64_t part, int64_t first, int64_t rows, int64_t width) {
    const int64_t at = (o * parts + part) * s.inner;
    W *const to_mean = mean.data() + at, *const to_squares = squares.data() + at;
    const T* const row = from + first;
    if (s.inner > 1)
      return moments_of_columns(row, row, false, rows, width, width, to_mean, to_squares);
    const Moments<W> run = moments_of_row(row, width);
    *to_mean = run.mean;
    *to_squares = run.squares;
  });
  if (to.batches.defined()) ++*to.batches.data<int64_t>();
  const double momentum = to.momentum >= 0 || !to.batches.defined()
                              ? to.momentum
                              : 1 / static_cast<double>(*to.batches.data<int64_t>());
  W *running_mean = maybe<W>(to.running_mean), *running_var = maybe<W>(to.running_var);
  W *means = maybe<W>(to.mean), *sums = maybe<W>(to.squares), *rstds = maybe<W>(to.rstd);
  join_parts(s, [&](int64_t count, int64_t more, int64_t all, int64_t part) {
    merge_rows(static_cast<W>(count), static_cast<W>(more), s.inner, mean.data() + part,
               squares.data() + part, mean.data() + all, squares.data() + all);
  });
  for (int64_t set = 0; set < s.sets(); ++set) {
    Moments<W> all;
    for_each_slot(s, set, [&](int64_t at, int64_t) {
      all.merge(static_cast<W>(s.n), mean[static_cast<size_t>(at)],
                squares[static_cast<size_t>(at)]);
    });
    if (means) means[set] = all.mean;
    if (sums) sums[set] = all.squares;
    if (rstds) rstds[set] = 1 / std::sqrt(all.squares / all.count + static_cast<W>(to.eps));
    const auto m = static_cast<W>(momentum);
    if (running_mean) running_mean[set] += m * (all.mean - running_mean[set]);
    if (running_var) running_var[set] += m * (all.squares / (all.count - 1) - running_var[set]);
  }
}

template <class T, class W = Wide<T>>
void normalise(const ChannelSlots& s, const ChannelNorm& norm, const Tensor& y) {
  const Coefficients<W> of(s, norm);
  const T *from = norm.x.data<T>(), *more = maybe<T>(norm.residual);
  T* to = y.data<T>();
  visit_row<W>(s.inner > 1, Mask::none, [&]<class R>(R, auto) {
    for_each_part(s, [&](int64_t o, int64_t, int64_t first, int64_t rows, int64_t width) {
      const R whole = R::of(of, o * s.inner);
      for (int64_t r = 0; r < rows; ++r)
        for_pieces(width, [&](int64_t begin, auto length) {
          const int64_t at = first + r * width + begin;
          RowPieceBuffer<T> x, residual, result;
          const R row = whole.from(begin);
          const W* in = x.read(from + at, length);
          W* out = result.target(to + at);
          if (more) {
            const W* other = residual.read(more + at, length);
#pragma omp simd
            for (int64_t i = 0; i < length; ++i) out[i] = row.z(in, i) + other[i];
          } else {
#pragma omp simd
            for (int64_t i = 0; i < length; ++i) out[i] = row.z(in, i);
          }
          if (norm.relu) {
#pragma omp simd
            for (int64_t i = 0; i < length; ++i) out[i] = out[i] < 0 ? W{0} : out[i];
          }
          result.write(to + at, length);
        });
    });
  });
}

/// Sums of dz and dz (x - mean) for each slot and part.
template <class T, class W = Wide<T>>
void slot_sums(const ChannelSlots& s, const ChannelNorm& norm, const ChannelGradient& gradient,
               const Coefficients<W>& of, LineVector<W>& plain, LineVector<W>& centred) {
  const int64_t parts = Parts(s).parts;
  const T *x = norm.x.data<T>(), *dy = gradient.dy.data<T>(), *y = maybe<T>(gradient.y);
  visit_row<W>(s.inner > 1, mask_of(norm, gradient), [&]<class R, Mask mask>(R, Masked<mask>) {
    for_each_part(s, [&](int64_t o, int64_t part, int64_t first, int64_t rows, int64_t width) {
      const R whole = R::of(of, o * s.inner);
      const int64_t slot = (o * parts + part) * s.inner;
      PartSums<W, R::has_columns> sums(plain.data() + slot), dots(centred.data() + slot);
      for (int64_t r = 0; r < rows; ++r)
        for_pieces(width, [&](int64_t begin, auto length) {
          const Gradients<T, mask> g(x, dy, y, first + r * width + begin, length);
          const R row = whole.from(begin);
          W *sum = sums.at(begin), *dot = dots.at(begin);
#pragma omp simd
          for (int64_t i = 0; i < length; ++i) {
            sum[i] += g.dz(row, i);
            dot[i] += g.dz(row, i) * (g.x[i] - row.mean[R::at(i)]);
          }
        });
      sums.finish();
      dots.finish();
    });
  });
}

/// Of each slot what dx = scale dz + offset + slope (x - mean) takes.
template <class W>
struct Slopes {
  LineVector<W> offset, slope;

  Slopes() = default;
  Slopes(const ChannelSlots& s, const ChannelNorm& norm, const ChannelGradient& gradient)
      : offset(static_cast<size_t>(s.slots())), slope(offset.size()) {
    const W *plain = gradient.sums.data<W>(), *centred = plain + s.sets();
    const W* rstds = norm.rstd.data<W>();
    const Tensor weights = gradient.weighs ? wide_vector<W>(norm.weight) : Tensor();
    const W* weight = maybe<W>(weights);
    const auto count = static_cast<W>(gradient.count);
    for_all_slots(s, [&](int64_t slot, int64_t set, int64_t channel) {
      const W rstd = rstds[set], factor = weight ? weight[channel] : W{1};
      offset[static_cast<size_t>(slot)] = -rstd * (factor * plain[set] / count);
      slope[static_cast<size_t>(slot)] = -rstd * (rstd * (factor * centred[set] / count));
    });
  }
};

template <class T, class W = Wide<T>>
void backward(const ChannelSlots& s, const ChannelNorm& norm, const ChannelGradient& gradient,
              const Tensor& dx, const Tensor& dresidual) {
  const Coefficients<W> of(s, norm);
  const bool constant = !gradient.sums.defined();
  const Slopes<W> slopes = constant ? Slopes<W>() : Slopes<W>(s, norm, gradient);
  const T *x = norm.x.data<T>(), *dy = gradient.dy.data<T>(), *y = maybe<T>(gradient.y);
  T *to = dx.data<T>(), *to_residual = maybe<T>(dresidual);
  visit_row<W>(s.inner > 1, mask_of(norm, gradient), [&]<class R, Mask mask>(R, Masked<mask>) {
    for_each_part(s, [&](int64_t o, int64_t, int64_t first, int64_t rows, int64_t width) {
      const R whole = R::of(of, o * s.inner);
      for (int64_t r = 0; r < rows; ++r)
        for_pieces(width, [&](int64_t begin, auto length) {
          const int64_t at = first + r * width + begin;
          const Gradients<T, mask> g(x, dy, y, at, length);
          RowPieceBuffer<T> residual, result;
          const R row = whole.from(begin);
          W* target = result.target(to + at);
          const auto finish = [&](const auto& dz) {
            if (constant) {
#pragma omp simd
              for (int64_t i = 0; i < length; ++i) target[i] = row.scale[R::at(i)] * dz(i);
            } else {
              const W* offset = slopes.offset.data() + o * s.inner + R::at(begin);
              const W* slope = slopes.slope.data() + o * s.inner + R::at(begin);
#pragma omp simd
              for (int64_t i = 0; i < length; ++i)
                target[i] = row.scale[R::at(i)] * dz(i) + offset[R::at(i)] +
                            slope[R::at(i)] * (g.x[i] - row.mean[R::at(i)]);
            }
          };
          if (to_residual) {
            W* dz = residual.target(to_residual + at);
#pragma omp simd
            for (int64_t i = 0; i < length; ++i) dz[i] = g.dz(row, i);
            residual.write(to_residual + at, length);
            finish([dz](int64_t i) { return dz[i]; });
          } else {
            finish([&](int64_t i) { return g.dz(row, i); });
          }
          result.write(to + at, length);
        });
    });
  });
}

}  // namespace

void channel_moments(const ChannelSlots& slots, const Tensor& x, const ChannelStatistics& to,
                     Stream) {
  visit_floating("channel_moments", x.dtype(), [&]<class T>(Type<T>) { moments<T>(slots, x, to); });
}

void channel_norm(const ChannelSlots& slots, const ChannelNorm& norm, const Tensor& y, Stream) {
  visit_floating("channel_norm", y.dtype(),
                 [&]<class T>(Type<T>) { normalise<T>(slots, norm, y); });
}

void channel_norm_by(const ChannelSlots& slots, const Tensor& mean, const Tensor& var, double eps,
                     const ChannelNorm& norm, const Tensor& y, Stream stream) {
  visit_floating("channel_norm_by", y.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const Tensor means = wide_vector<W>(mean), vars = wide_vector<W>(var);
    std::copy_n(means.data<W>(), slots.channels, norm.mean.data<W>());
    W* const rstd = norm.rstd.data<W>();
    for (int64_t c = 0; c < slots.channels; ++c)
      rstd[c] = 1 / std::sqrt(vars.data<W>()[c] + static_cast<W>(eps));
  });
  if (y.numel() > 0) channel_norm(slots, norm, y, stream);
}

void channel_norm_sums(const ChannelSlots& slots, const ChannelNorm& norm,
                       const ChannelGradient& gradient, const Tensor& channel_sums, Stream) {
  visit_floating("channel_norm_sums", norm.x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const int64_t parts = Parts(slots).parts, channels = slots.channels;
    LineVector<W> plain(static_cast<size_t>(slots.slots() * parts)), centred(plain.size());
    slot_sums<T>(slots, norm, gradient, Coefficients<W>(slots, norm), plain, centred);
    join_parts(slots, [&](int64_t, int64_t, int64_t all, int64_t part) {
#pragma omp simd
      for (int64_t i = 0; i < slots.inner; ++i) {
        plain.data()[all + i] += plain.data()[part + i];
        centred.data()[all + i] += centred.data()[part + i];
      }
    });
    const Tensor weights = wide_vector<W>(norm.weight);
    const W *rstd = norm.rstd.data<W>(), *weight = maybe<W>(weights);
    const bool is_wide = channel_sums.dtype() == dtype_of<W>;
    const Tensor sums =
        is_wide ? channel_sums : Tensor::empty(channel_sums.shape(), dtype_of<W>, Device::cpu());
    W* of_channel = sums.data<W>();
    W* of_set = maybe<W>(gradient.sums);
    std::fill_n(of_channel, 2 * channels, W{0});
    for (int64_t set = 0; set < slots.sets(); ++set) {
      W a = 0, b = 0;
      for_each_slot(slots, set, [&](int64_t at, int64_t channel) {
        const W da = plain[static_cast<size_t>(at)];
        const W db = centred[static_cast<size_t>(at)] * rstd[set];
        of_channel[channel] += da;
        of_channel[channels + channel] += db;
        a += da * (weight ? weight[channel] : W{1});
        b += db * (weight ? weight[channel] : W{1});
      });
      if (!of_set) continue;
      of_set[set] = a;
      of_set[slots.sets() + set] = b;
    }
    if (!is_wide) copy(sums, channel_sums);
  });
}

void channel_norm_backward(const ChannelSlots& slots, const ChannelNorm& norm,
                           const ChannelGradient& gradient, const Tensor& dx,
                           const Tensor& dresidual, Stream) {
  visit_floating("channel_norm_backward", dx.dtype(),
                 [&]<class T>(Type<T>) { backward<T>(slots, norm, gradient, dx, dresidual); });
}

}  // namespace bs::cpu
