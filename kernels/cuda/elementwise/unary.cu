#include <bs/kernels/unary.h>
#include <bs/kernels/cuda/elementwise.cuh>
#include <bs/kernels/cuda/elementwise/elementary.cuh>

#include <limits>

namespace bs::cuda {

namespace {

struct Neg {
  template <class W>
  __device__ W operator()(W x) const {
    return -x;
  }
};
struct Abs {
  template <class W>
  __device__ W operator()(W x) const {
    return ::abs(x);
  }
};
struct Exp {
  template <class W>
  __device__ W operator()(W x) const {
    return ::exp(x);
  }
};
template <class T>
struct Log {
  __device__ wide<T> operator()(wide<T> x) const { return relative_log_of<T>(x); }
};
template <class T>
struct Sqrt {
  __device__ wide<T> operator()(wide<T> x) const { return sqrt_of<T>(x); }
};
struct Rsqrt {
  template <class W>
  __device__ W operator()(W x) const {
    return ::rsqrt(x);
  }
};
template <class T>
struct Reciprocal {
  __device__ wide<T> operator()(wide<T> x) const { return whole_reciprocal_of<T>(x); }
};
template <class W>
struct Clamp {
  W low, high;
  __device__ W operator()(W x) const {
    if constexpr (std::is_same_v<W, float>) return lesser(greater(x, low), high);
    return x < low ? low : x > high ? high : x;
  }
};

struct AbsBackward {
  template <class W>
  __device__ W operator()(W x, W dy) const {
    return x > 0 ? dy : x < 0 ? -dy : W(0);
  }
};
struct SqrtBackward {
  template <class W>
  __device__ W operator()(W y, W dy) const {
    return dy / (2 * y);
  }
};
struct RsqrtBackward {
  template <class W>
  __device__ W operator()(W y, W dy) const {
    return W(-0.5) * dy * y * y * y;
  }
};
struct ReciprocalBackward {
  template <class W>
  __device__ W operator()(W y, W dy) const {
    return -dy * y * y;
  }
};
template <class W>
struct ClampBackward {
  W low, high;
  __device__ W operator()(W x, W dy) const { return x >= low && x <= high ? dy : W(0); }
};

/// The type that values of T are computed in, on the host.
template <class T>
using Wide = device::wide<device_type<T>>;

/// The bound as a W: beyond an integer's range it is the end of the range.
template <class W>
W bound(double value) {
  using Limits = std::numeric_limits<W>;
  if (std::is_floating_point_v<W>) return static_cast<W>(value);
  if (value <= static_cast<double>(Limits::lowest())) return Limits::lowest();
  if (value >= static_cast<double>(Limits::max())) return Limits::max();
  return static_cast<W>(value);
}

template <class F>
void floating(const char* op, F f, const Tensor& x, const Tensor& y, Stream stream) {
  visit_floating(op, y.dtype(), [&]<class T>(Type<T>) { map_alike<T>(op, f, y, stream, x); });
}

/// The same with a function for each type of elements.
template <template <class> class F>
void by_element(const char* op, const Tensor& x, const Tensor& y, Stream stream) {
  visit_floating(op, y.dtype(),
                 [&]<class T>(Type<T>) { map_alike<T>(op, F<device_type<T>>{}, y, stream, x); });
}

/// Calls f(Type<T>{}) for floats and for the integers that are computed with.
template <class F>
void visit_arithmetic(const char* op, DType dtype, F f) {
  if (is_floating(dtype)) {
    visit_floating(op, dtype, f);
  } else {
    visit_index(op, dtype, f);
  }
}

template <class F>
void backward(const char* op, F f, const Tensor& saved, const Tensor& dy, const Tensor& dx,
              Stream stream) {
  visit_floating(op, dx.dtype(),
                 [&]<class T>(Type<T>) { map_alike<T>(op, f, dx, stream, saved, dy); });
}

}  // namespace

void neg(const Tensor& x, const Tensor& y, Stream stream) {
  visit_arithmetic("neg", y.dtype(),
                   [&]<class T>(Type<T>) { map_alike<T>("neg", Neg{}, y, stream, x); });
}

void abs(const Tensor& x, const Tensor& y, Stream stream) {
  visit_arithmetic("abs", y.dtype(),
                   [&]<class T>(Type<T>) { map_alike<T>("abs", Abs{}, y, stream, x); });
}

void exp(const Tensor& x, const Tensor& y, Stream stream) { floating("exp", Exp{}, x, y, stream); }

void log(const Tensor& x, const Tensor& y, Stream stream) { by_element<Log>("log", x, y, stream); }

void sqrt(const Tensor& x, const Tensor& y, Stream stream) {
  by_element<Sqrt>("sqrt", x, y, stream);
}

void rsqrt(const Tensor& x, const Tensor& y, Stream stream) {
  floating("rsqrt", Rsqrt{}, x, y, stream);
}

void reciprocal(const Tensor& x, const Tensor& y, Stream stream) {
  by_element<Reciprocal>("reciprocal", x, y, stream);
}

void clamp(const Tensor& x, const Tensor& y, double low, double high, Stream stream) {
  visit_arithmetic("clamp", y.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    map_alike<T>("clamp", Clamp<W>{bound<W>(low), bound<W>(high)}, y, stream, x);
  });
}

void abs_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream stream) {
  backward("abs_backward", AbsBackward{}, x, dy, dx, stream);
}

void sqrt_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream) {
  backward("sqrt_backward", SqrtBackward{}, y, dy, dx, stream);
}

void rsqrt_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream) {
  backward("rsqrt_backward", RsqrtBackward{}, y, dy, dx, stream);
}

void reciprocal_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream) {
  backward("reciprocal_backward", ReciprocalBackward{}, y, dy, dx, stream);
}

void clamp_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, double low, double high,
                    Stream stream) {
  visit_floating("clamp_backward", dx.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const ClampBackward<W> f{static_cast<W>(low), static_cast<W>(high)};
    map_alike<T>("clamp_backward", f, dx, stream, x, dy);
  });
}

}  // namespace bs::cuda
