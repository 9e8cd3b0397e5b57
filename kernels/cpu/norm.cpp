#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/cpu/part_moments.h>
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/norm.h>
#include <bs/lib/integers.h>

#include <cmath>

namespace bs::cpu {

namespace {

/// A vector's elements as W, or `absent` everywhere where it is undefined.
template <class T>
LineVector<Wide<T>> widened(const Tensor& vector, int64_t n, Wide<T> absent) {
  LineVector<Wide<T>> out(static_cast<size_t>(n), absent);
  if (!vector.defined()) return out;
  const T* from = vector.data<T>();
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<Wide<T>>(from[i]);
  return out;
}

template <class W>
struct Statistics {
  W mean, rstd;
};

/// The mean of a centred row is off by no more than its rounding.
template <class W>
Statistics<W> statistics(const W* x, int64_t n, W eps, bool centred) {
  const auto count = static_cast<W>(n);
  if (centred) {
    const Moments<W> all = moments_of_row(x, n);
    return {all.mean, 1 / std::sqrt(all.squares / count + eps)};
  }
  const W squares = sum_of<W>(n, [=](int64_t i) { return x[i] * x[i]; });
  return {0, 1 / std::sqrt(squares / count + eps)};
}

/// y = a + b of a row, rounded once.
template <class T>
class RowAdder {
 public:
  explicit RowAdder(int64_t n) : n_(n), first_(n), second_(n), sum_(n) {}
  void operator()(const T* a, const T* b, T* y) {
    const Wide<T>*const x = first_.read(a, n_), *const more = second_.read(b, n_);
    Wide<T>* const sum = sum_.target(y);
#pragma omp simd
    for (int64_t i = 0; i < n_; ++i) sum[i] = x[i] + more[i];
    sum_.write(y, n_);
  }

 private:
  int64_t n_;
  RowBuffer<T> first_, second_, sum_;
};

/// dx of one row; adds to the columns' sums of dy * h and dy.
template <class W>
void backward_row(const W* x, const W* weight, Statistics<W> s, bool centred, const W* dy, W* dx,
                  W* dweight, W* dbias, int64_t n) {
  W sum = 0;
  W dot = 0;
#pragma omp simd reduction(+ : sum, dot)
  for (int64_t i = 0; i < n; ++i) {
    const W h = (x[i] - s.mean) * s.rstd;
    const W g = dy[i] * weight[i];
    sum += g;
    dot += g * h;
    dweight[i] += dy[i] * h;
    dbias[i] += dy[i];
  }
  const W offset = centred ? sum / static_cast<W>(n) : W{0};
  const W slope = dot / static_cast<W>(n);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const W h = (x[i] - s.mean) * s.rstd;
    dx[i] = s.rstd * (dy[i] * weight[i] - offset - h * slope);
  }
}

/// out[i] = sum over the chunks' partial sums, in their order.
template <class T>
void add_chunks(const Wide<T>* partial, int64_t chunks, int64_t stride, const Tensor& out) {
  if (!out.defined()) return;
  constexpr int64_t width = 64;  // columns that are summed side by side
  T* to = out.data<T>();
  const int64_t n = out.numel();
  parallel_for(ceil_div(n, width), elementwise_grain / (chunks * width),
               [=](int64_t begin, int64_t end) {
                 for (int64_t at = begin * width; at < std::min(n, end * width); at += width) {
                   const int64_t count = std::min(width, n - at);
                   alignas(64) Wide<T> sums[width] = {};
                   for (int64_t c = 0; c < chunks; ++c) {
                     const Wide<T>* from = partial + c * stride + at;
#pragma omp simd
                     for (int64_t i = 0; i < count; ++i) sums[i] += from[i];
                   }
                   narrow(count, sums, to + at);
                 }
               });
}

}  // namespace

void norm(const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias,
          const NormResult& result, double eps, Stream) {
  visit_floating("norm", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const auto& [y, mean, rstd, sum] = result;
    const int64_t n = x.size(-1);
    const LineVector<W> scale = widened<T>(weight, n, W{1});
    const LineVector<W> shift = widened<T>(bias, n, W{0});
    const T* from = x.data<T>();
    const T* more = added.defined() ? added.data<T>() : nullptr;
    T* sums = more ? sum.data<T>() : nullptr;
    T* to = y.data<T>();
    W* means = mean.defined() ? mean.data<W>() : nullptr;
    W* rstds = rstd.data<W>();
    parallel_for(x.numel() / n, elementwise_grain / n, [&](int64_t begin, int64_t end) {
      RowBuffer<T> in_buffer(n), out_buffer(n);
      RowAdder<T> add(more ? n : 0);
      const W* w = scale.data();
      const W* b = shift.data();
      for (int64_t row = begin; row < end; ++row) {
        if (more) add(from + row * n, more + row * n, sums + row * n);
        const W* in = in_buffer.read((more ? sums : from) + row * n, n);
        W* out = out_buffer.target(to + row * n);
        const auto s = statistics(in, n, static_cast<W>(eps), means != nullptr);
        if (means) means[row] = s.mean;
        rstds[row] = s.rstd;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) out[i] = (in[i] - s.mean) * s.rstd * w[i] + b[i];
        out_buffer.write(to + row * n, n);
      }
    });
  });
}

void norm_backward(const NormResult& of, const Tensor& weight, const Tensor& dy, const Tensor& dsum,
                   const NormGradients& to, Stream) {
  const Tensor &x = of.sum, &mean = of.mean, &rstd = of.rstd;
  visit_floating("norm_backward", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const int64_t n = x.size(-1);
    const int64_t rows = x.numel() / n;
    // Rows are cut into chunks by their number alone, so that sums over rows do not depend on the
    // number of threads.
    const int64_t chunks = std::min<int64_t>(64, ceil_div(rows, 32));
    const LineVector<W> scale = widened<T>(weight, n, W{1});
    LineVector<W> partial(static_cast<size_t>(2 * chunks * n));
    const W* means = mean.defined() ? mean.data<W>() : nullptr;
    const W* rstds = rstd.data<W>();
    const T* from = x.data<T>();
    const T* gradient = dy.data<T>();
    T* target = to.dx.data<T>();
    const T* more = dsum.defined() ? dsum.data<T>() : nullptr;
    parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      RowBuffer<T> in(n), slope(n), out(n), added(more ? n : 0);
      for (int64_t c = begin; c < end; ++c) {
        W* sums = partial.data() + 2 * c * n;
        for (int64_t row = rows * c / chunks; row < rows * (c + 1) / chunks; ++row) {
          W* result = out.target(target + row * n);
          backward_row<W>(in.read(from + row * n, n), scale.data(),
                          {means ? means[row] : W{0}, rstds[row]}, means != nullptr,
                          slope.read(gradient + row * n, n), result, sums, sums + n, n);
          if (more) {
            const W* const beside = added.read(more + row * n, n);
#pragma omp simd
            for (int64_t i = 0; i < n; ++i) result[i] += beside[i];
          }
          out.write(target + row * n, n);
        }
      }
    });
    add_chunks<T>(partial.data(), chunks, 2 * n, to.dweight);
    add_chunks<T>(partial.data() + n, chunks, 2 * n, to.dbias);
  });
}

}  // namespace bs::cpu
