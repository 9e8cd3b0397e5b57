#include <bs/kernels/rounding.h>
#include <bs/kernels/cuda/elementwise.cuh>
#include <bs/kernels/cuda/elementwise/elementary.cuh>

namespace bs::cuda {

namespace {

struct Floor {
  template <class W>
  __device__ W operator()(W x) const {
    return ::floor(x);
  }
};
struct Ceil {
  template <class W>
  __device__ W operator()(W x) const {
    return ::ceil(x);
  }
};
struct Round {
  template <class W>
  __device__ W operator()(W x) const {
    return ::rint(x);
  }
};
struct Trunc {
  template <class W>
  __device__ W operator()(W x) const {
    return ::trunc(x);
  }
};
struct Sign {
  template <class W>
  __device__ W operator()(W x) const {
    return x > 0 ? W(1) : x < 0 ? W(-1) : W(0);
  }
};
struct WholeRemainder {
  template <class W>
  __device__ W operator()(W a, W b) const {
    if (b == 0 || b == -1) return 0;  // the lowest integer has no quotient by -1
    const W r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
};
template <class T>
struct Remainder {
  __device__ wide<T> operator()(wide<T> a, wide<T> b) const { return remainder_of<T>(a, b); }
};

struct RemainderBackwardB {
  template <class W>
  __device__ W operator()(W a, W b, W dy) const {
    // The quotient may have been rounded up to a whole number; the rest's sign tells.
    const W n = ::floor(a / b), rest = ::fma(-n, b, a);
    return -(dy * (rest != 0 && (rest < 0) != (b < 0) ? n - 1 : n));
  }
};
struct IsInfinite {
  template <class W>
  __device__ bool operator()(W x) const {
    return ::abs(x) == W(INFINITY);
  }
};
struct IsFinite {
  template <class W>
  __device__ bool operator()(W x) const {
    return ::abs(x) < W(INFINITY);
  }
};

template <class F>
void run(const char* op, F f, const Tensor& x, const Tensor& y, Stream stream) {
  visit_floating(op, y.dtype(), [&]<class T>(Type<T>) { map_alike<T>(op, f, y, stream, x); });
}

}  // namespace

void floor(const Tensor& x, const Tensor& y, Stream stream) { run("floor", Floor{}, x, y, stream); }

void ceil(const Tensor& x, const Tensor& y, Stream stream) { run("ceil", Ceil{}, x, y, stream); }

void round(const Tensor& x, const Tensor& y, Stream stream) { run("round", Round{}, x, y, stream); }

void trunc(const Tensor& x, const Tensor& y, Stream stream) { run("trunc", Trunc{}, x, y, stream); }

void sign(const Tensor& x, const Tensor& y, Stream stream) { run("sign", Sign{}, x, y, stream); }

void remainder(const Operand& a, const Operand& b, const Tensor& y, Stream stream) {
  const char* op = "remainder";
  if (is_floating(y.dtype()))
    return visit_floating(op, y.dtype(), [&]<class T>(Type<T>) {
      map_alike<T>(op, Remainder<device_type<T>>{}, y, stream, a, b);
    });
  visit_index(op, y.dtype(),
              [&]<class T>(Type<T>) { map_alike<T>(op, WholeRemainder{}, y, stream, a, b); });
}

void remainder_backward_b(const Operand& a, const Operand& b, const Tensor& dy, const Tensor& db,
                          Stream stream) {
  const char* op = "remainder_backward_b";
  visit_floating(op, db.dtype(), [&]<class T>(Type<T>) {
    map_alike<T>(op, RemainderBackwardB{}, db, stream, a, b, dy);
  });
}

void isinf(const Tensor& x, const Tensor& y, Stream stream) {
  visit_floating("isinf", x.dtype(),
                 [&]<class T>(Type<T>) { map<bool, T>("isinf", IsInfinite{}, y, stream, x); });
}

void isfinite(const Tensor& x, const Tensor& y, Stream stream) {
  visit_floating("isfinite", x.dtype(),
                 [&]<class T>(Type<T>) { map<bool, T>("isfinite", IsFinite{}, y, stream, x); });
}

}  // namespace bs::cuda
