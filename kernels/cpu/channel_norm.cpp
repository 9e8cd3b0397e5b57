#include <bs/kernels/channel_norm.h>

#include <bs/kernels/cpu/channel_parts.h>

#include <cmath>

namespace bs::cpu {

namespace {

/// Where a ReLU's gradient is cut off: nowhere, where z is not positive, where y is not.
enum class Mask : uint8_t { none, z, y };

/// Mean and squared deviations of one part, of each of its slots.
template <class T, class W = Wide<T>>
void part_moments(const T* x, int64_t rows, int64_t width, bool is_plane, RowBuffer<T>& buffer,
                  W* mean, W* squares) {
  if (is_plane) {
    const W* in = buffer.read(x, width);
    *mean = sum_of<W>(width, [=](int64_t i) { return in[i]; }) / static_cast<W>(width);
    const W centre = *mean;
    *squares = sum_of<W>(width, [=](int64_t i) { return (in[i] - centre) * (in[i] - centre); });
    return;
  }
  std::fill_n(mean, width, W{0});
  std::fill_n(squares, width, W{0});
  for (int64_t r = 0; r < rows; ++r) {
    const W* in = buffer.read(x + r * width, width);
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) mean[i] += in[i];
  }
  for (int64_t i = 0; i < width; ++i) mean[i] /= static_cast<W>(rows);
  for (int64_t r = 0; r < rows; ++r) {
    const W* in = buffer.read(x + r * width, width);
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) squares[i] += (in[i] - mean[i]) * (in[i] - mean[i]);
  }
}

template <class W>
W* maybe(const Tensor& t) {
  return t.defined() ? t.data<W>() : nullptr;
}

/// What each slot's elements are multiplied by and moved by.
template <class W>
struct Coefficients {
  LineVector<W> mean, scale, shift;

  Coefficients(const ChannelSlots& s, const ChannelNorm& norm) {
    const auto count = static_cast<size_t>(s.slots());
    mean.resize(count), scale.resize(count), shift.resize(count);
    const W *means = norm.mean.data<W>(), *rstds = norm.rstd.data<W>();
    const W *weight = maybe<W>(norm.weight), *bias = maybe<W>(norm.bias);
    for (int64_t slot = 0; slot < s.slots(); ++slot) {
      const int64_t channel = slot % s.channels;
      const int64_t set = s.neighbours > 0 ? slot / s.neighbours : channel;
      const auto at = static_cast<size_t>(slot);
      mean[at] = means[set];
      scale[at] = rstds[set] * (weight ? weight[channel] : W{1});
      shift[at] = bias ? bias[channel] : W{0};
    }
  }
};

/// Pointers to the coefficients of a row's slots; a plane has one of each.
template <class W, bool columns>
struct Row {
  const W *mean, *scale, *shift;

  static int64_t at(int64_t i) { return columns ? i : 0; }
  W z(const W* x, int64_t i) const { return (x[i] - mean[at(i)]) * scale[at(i)] + shift[at(i)]; }
  template <Mask mask>
  W dz(const W* x, const W* dy, const W* y, int64_t i) const {
    if constexpr (mask == Mask::none) return dy[i];
    if constexpr (mask == Mask::z) return z(x, i) > 0 ? dy[i] : W{0};
    return y[i] > 0 ? dy[i] : W{0};
  }
};

/// Calls f(Row<W, columns>, std::integral_constant<Mask>).
template <class W, class F>
void visit_row(bool columns, Mask mask, F&& f) {
  const auto with = [&]<bool is_columns>(std::bool_constant<is_columns>) {
    using R = Row<W, is_columns>;
    switch (mask) {
      case Mask::none:
        return f(R{}, std::integral_constant<Mask, Mask::none>{});
      case Mask::z:
        return f(R{}, std::integral_constant<Mask, Mask::z>{});
      default:
        return f(R{}, std::integral_constant<Mask, Mask::y>{});
    }
  };
  columns ? with(std::true_type{}) : with(std::false_type{});
}

Mask mask_of(const ChannelNorm& norm, const ChannelGradient& gradient) {
  return !norm.relu ? Mask::none : gradient.y.defined() ? Mask::y : Mask::z;
}

template <class T, class W = Wide<T>>
void moments(const ChannelSlots& s, const Tensor& x, const ChannelStatistics& to) {
  const int64_t parts = Parts(s).parts;
  LineVector<W> mean(static_cast<size_t>(s.slots() * parts)), squares(mean.size());
  const T* from = x.data<T>();
  for_each_part<T>(s, [&](int64_t o, int64_t part, int64_t first, int64_t rows, int64_t width,
                          PartBuffers<T>& buffers) {
    const int64_t at = (o * parts + part) * s.inner;
    part_moments<T>(from + first, rows, width, s.inner == 1, buffers.in, mean.data() + at,
                    squares.data() + at);
  });
  if (to.batches.defined()) ++*to.batches.data<int64_t>();
  const double momentum = to.momentum >= 0 || !to.batches.defined()
                              ? to.momentum
                              : 1 / static_cast<double>(*to.batches.data<int64_t>());
  W *running_mean = maybe<W>(to.running_mean), *running_var = maybe<W>(to.running_var);
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
    if (to.mean.defined()) to.mean.data<W>()[set] = all.mean;
    if (to.squares.defined()) to.squares.data<W>()[set] = all.squares;
    if (to.rstd.defined())
      to.rstd.data<W>()[set] = 1 / std::sqrt(all.squares / all.count + static_cast<W>(to.eps));
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
    for_each_part<T>(s, [&](int64_t o, int64_t, int64_t first, int64_t rows, int64_t width,
                            PartBuffers<T>& buffers) {
      const auto base = o * s.inner;
      const R row{of.mean.data() + base, of.scale.data() + base, of.shift.data() + base};
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t at = first + r * width;
        const W* in = buffers.in.read(from + at, width);
        W* out = buffers.out.target(to + at);
        if (more) {
          const W* other = buffers.other.read(more + at, width);
#pragma omp simd
          for (int64_t i = 0; i < width; ++i) out[i] = row.z(in, i) + other[i];
        } else {
#pragma omp simd
          for (int64_t i = 0; i < width; ++i) out[i] = row.z(in, i);
        }
        if (norm.relu) {
#pragma omp simd
          for (int64_t i = 0; i < width; ++i) out[i] = out[i] < 0 ? W{0} : out[i];
        }
        buffers.out.write(to + at, width);
      }
    });
  });
}

/// Sums of dz and dz (x - mean) for each slot and part.
template <class T, class W = Wide<T>>
void slot_sums(const ChannelSlots& s, const ChannelNorm& norm, const ChannelGradient& gradient,
               const Coefficients<W>& of, LineVector<W>& plain, LineVector<W>& centred) {
  const int64_t parts = Parts(s).parts;
  const T *x = norm.x.data<T>(), *dy = gradient.dy.data<T>(), *y = maybe<T>(gradient.y);
  visit_row<W>(
      s.inner > 1, mask_of(norm, gradient),
      [&]<class R, Mask mask>(R, std::integral_constant<Mask, mask>) {
        for_each_part<T>(s, [&](int64_t o, int64_t part, int64_t first, int64_t rows, int64_t width,
                                PartBuffers<T>& buffers) {
          const auto base = o * s.inner;
          const R row{of.mean.data() + base, of.scale.data() + base, of.shift.data() + base};
          W* a = plain.data() + (o * parts + part) * s.inner;
          W* b = centred.data() + (o * parts + part) * s.inner;
          for (int64_t r = 0; r < rows; ++r) {
            const int64_t at = first + r * width;
            const W* in = buffers.in.read(x + at, width);
            const W* slope = buffers.other.read(dy + at, width);
            const W* out = mask == Mask::y ? buffers.y.read(y + at, width) : nullptr;
            const auto dz = [=](int64_t i) { return row.template dz<mask>(in, slope, out, i); };
            if (s.inner == 1) {
              const W mean = row.mean[0];
              for (int64_t from = 0; from < width; from += run_of_sum) {
                W sum = 0, dot = 0;
                const int64_t end = std::min(from + run_of_sum, width);
#pragma omp simd reduction(+ : sum, dot)
                for (int64_t i = from; i < end; ++i) {
                  sum += dz(i);
                  dot += dz(i) * (in[i] - mean);
                }
                *a += sum;
                *b += dot;
              }
            } else {
#pragma omp simd
              for (int64_t i = 0; i < width; ++i) {
                a[i] += dz(i);
                b[i] += dz(i) * (in[i] - row.mean[i]);
              }
            }
          }
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
    const auto count = static_cast<W>(gradient.count);
    for (int64_t slot = 0; slot < s.slots(); ++slot) {
      const int64_t set = s.neighbours > 0 ? slot / s.neighbours : slot % s.channels;
      const W rstd = rstds[set];
      offset[static_cast<size_t>(slot)] = -rstd * (plain[set] / count);
      slope[static_cast<size_t>(slot)] = -rstd * (rstd * (centred[set] / count));
    }
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
  visit_row<W>(
      s.inner > 1, mask_of(norm, gradient),
      [&]<class R, Mask mask>(R, std::integral_constant<Mask, mask>) {
        for_each_part<T>(s, [&](int64_t o, int64_t, int64_t first, int64_t rows, int64_t width,
                                PartBuffers<T>& buffers) {
          const auto base = o * s.inner;
          const R row{of.mean.data() + base, of.scale.data() + base, of.shift.data() + base};
          W* dz = buffers.gradients.data();
          for (int64_t r = 0; r < rows; ++r) {
            const int64_t at = first + r * width;
            const W* in = buffers.in.read(x + at, width);
            const W* slope = buffers.other.read(dy + at, width);
            const W* out = mask == Mask::y ? buffers.y.read(y + at, width) : nullptr;
            W* target = buffers.out.target(to + at);
#pragma omp simd
            for (int64_t i = 0; i < width; ++i) dz[i] = row.template dz<mask>(in, slope, out, i);
            if (to_residual) narrow(width, dz, to_residual + at);
            if (constant) {
#pragma omp simd
              for (int64_t i = 0; i < width; ++i) target[i] = row.scale[R::at(i)] * dz[i];
            } else {
              const W *offset = slopes.offset.data() + base, *along = slopes.slope.data() + base;
#pragma omp simd
              for (int64_t i = 0; i < width; ++i)
                target[i] = row.scale[R::at(i)] * dz[i] + offset[R::at(i)] +
                            along[R::at(i)] * (in[i] - row.mean[R::at(i)]);
            }
            buffers.out.write(to + at, width);
          }
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
    const W *rstd = norm.rstd.data<W>(), *weight = maybe<W>(norm.weight);
    W* of_channel = channel_sums.data<W>();
    std::fill_n(of_channel, 2 * channels, W{0});
    for (int64_t set = 0; set < slots.sets(); ++set) {
      W a = 0, b = 0;
      for_each_slot(slots, set, [&](int64_t at, int64_t slot) {
        const int64_t channel = slot % channels;
        const W da = plain[static_cast<size_t>(at)];
        const W db = centred[static_cast<size_t>(at)] * rstd[set];
        of_channel[channel] += da;
        of_channel[channels + channel] += db;
        a += da * (weight ? weight[channel] : W{1});
        b += db * (weight ? weight[channel] : W{1});
      });
      if (!gradient.sums.defined()) continue;
      gradient.sums.data<W>()[set] = a;
      gradient.sums.data<W>()[slots.sets() + set] = b;
    }
  });
}

void channel_norm_backward(const ChannelSlots& slots, const ChannelNorm& norm,
                           const ChannelGradient& gradient, const Tensor& dx,
                           const Tensor& dresidual, Stream) {
  visit_floating("channel_norm_backward", dx.dtype(),
                 [&]<class T>(Type<T>) { backward<T>(slots, norm, gradient, dx, dresidual); });
}

}  // namespace bs::cpu
