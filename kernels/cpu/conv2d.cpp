#include <bs/kernels/conv2d.h>
#include <bs/kernels/cpu/activate.h>
#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/parallel.h>

namespace bs::cpu {

namespace {

template <class W, class T>
W finished(const Conv2dEpilogue& e, W sum, const Tensor& y, int64_t n, int64_t k, int64_t p,
           int64_t q) {
  if (e.bias.defined()) sum += to<W>(e.bias.data<T>()[k]);
  if (e.residual.defined()) {
    const Strides4 s(e.residual);
    sum += to<W>(e.residual.data<T>()[n * s.n + k * s.c + p * s.h + q * s.w]);
  }
  (void)y;
  activate(e.activation, &sum, 1);
  return sum;
}

}  // namespace

void conv2d(const Conv2dProblem& d, const Tensor& x, const Tensor& weight, const Conv2dEpilogue& e,
            const Tensor& y, Stream) {
  visit_floating("conv2d", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const T *in = x.data<T>(), *w = weight.data<T>();
    T* out = y.data<T>();
    parallel_for(d.n * d.k, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t n = i / d.k, k = i % d.k, c0 = k / d.group_k() * d.group_c();
        for (int64_t p = 0; p < d.p; ++p)
          for (int64_t q = 0; q < d.q; ++q) {
            W sum = 0;
            for (int64_t r = 0; r < d.r; ++r)
              for (int64_t s = 0; s < d.s; ++s) {
                const int64_t h = p * d.stride.h + r * d.dilation.h - d.padding.top;
                const int64_t v = q * d.stride.w + s * d.dilation.w - d.padding.left;
                if (h < 0 || h >= d.h || v < 0 || v >= d.w) continue;
                for (int64_t c = 0; c < d.group_c(); ++c)
                  sum +=
                      to<W>(in[n * d.x.n + (c0 + c) * d.x.c + h * d.x.h + v * d.x.w]) *
                      to<W>(w[k * d.weight.n + c * d.weight.c + r * d.weight.h + s * d.weight.w]);
              }
            out[n * d.y.n + k * d.y.c + p * d.y.h + q * d.y.w] =
                from<W, T>(finished<W, T>(e, sum, y, n, k, p, q));
          }
      }
    });
  });
}

void conv2d_backward_x(const Conv2dProblem& d, const Tensor& dy, const Tensor& weight,
                       const Conv2dEpilogue& e, const Tensor& dx, Stream) {
  visit_floating("conv2d_backward_x", dy.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const T *in = dy.data<T>(), *w = weight.data<T>();
    T* out = dx.data<T>();
    parallel_for(d.n * d.c, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t n = i / d.c, c = i % d.c, k0 = c / d.group_c() * d.group_k();
        for (int64_t h = 0; h < d.h; ++h)
          for (int64_t v = 0; v < d.w; ++v) {
            W sum = 0;
            for (int64_t r = 0; r < d.r; ++r)
              for (int64_t s = 0; s < d.s; ++s) {
                const int64_t up = h + d.padding.top - r * d.dilation.h;
                const int64_t across = v + d.padding.left - s * d.dilation.w;
                const int64_t p = up / d.stride.h, q = across / d.stride.w;
                if (up < 0 || across < 0 || p * d.stride.h != up || q * d.stride.w != across ||
                    p >= d.p || q >= d.q)
                  continue;
                for (int64_t k = 0; k < d.group_k(); ++k)
                  sum += to<W>(in[n * d.y.n + (k0 + k) * d.y.c + p * d.y.h + q * d.y.w]) *
                         to<W>(w[(k0 + k) * d.weight.n + c % d.group_c() * d.weight.c +
                                 r * d.weight.h + s * d.weight.w]);
              }
            out[n * d.x.n + c * d.x.c + h * d.x.h + v * d.x.w] =
                from<W, T>(finished<W, T>(e, sum, dx, n, c, h, v));
          }
      }
    });
  });
}

void conv2d_backward_w(const Conv2dProblem& d, const Tensor& x, const Tensor& dy,
                       const Tensor& dweight, Stream) {
  visit_floating("conv2d_backward_w", x.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const T *in = x.data<T>(), *slope = dy.data<T>();
    T* out = dweight.data<T>();
    parallel_for(d.k * d.group_c(), 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t k = i / d.group_c(), c = i % d.group_c();
        const int64_t channel = k / d.group_k() * d.group_c() + c;
        for (int64_t r = 0; r < d.r; ++r)
          for (int64_t s = 0; s < d.s; ++s) {
            W sum = 0;
            for (int64_t n = 0; n < d.n; ++n)
              for (int64_t p = 0; p < d.p; ++p)
                for (int64_t q = 0; q < d.q; ++q) {
                  const int64_t h = p * d.stride.h + r * d.dilation.h - d.padding.top;
                  const int64_t v = q * d.stride.w + s * d.dilation.w - d.padding.left;
                  if (h < 0 || h >= d.h || v < 0 || v >= d.w) continue;
                  sum += to<W>(in[n * d.x.n + channel * d.x.c + h * d.x.h + v * d.x.w]) *
                         to<W>(slope[n * d.y.n + k * d.y.c + p * d.y.h + q * d.y.w]);
                }
            out[(i * d.r + r) * d.s + s] = from<W, T>(sum);
          }
      }
    });
  });
}

}  // namespace bs::cpu
