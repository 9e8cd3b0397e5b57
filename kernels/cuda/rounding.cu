#include <bs/kernels/rounding.h>
#include <bs/kernels/cuda/elementwise.cuh>

#include <type_traits>

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
struct Remainder {
  template <class W>
  __device__ W operator()(W a, W b) const {
    W r = 0;
    if constexpr (std::is_integral_v<W>) {
      if (b == 0 || b == -1) return 0;  // the lowest integer has no quotient by -1
      r = a % b;
    } else {
      r = ::fmod(a, b);
    }
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
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
  const auto f = [&]<class T>(Type<T>) { map_alike<T>("remainder", Remainder{}, y, stream, a, b); };
  if (is_floating(y.dtype())) return visit_floating("remainder", y.dtype(), f);
  visit_index("remainder", y.dtype(), f);
}

}  // namespace bs::cuda
