#include <bs/kernels/activation.h>
#include <bs/kernels/cuda/elementwise.cuh>

namespace bs::cuda {

namespace {

template <class W>
__device__ W logistic(W x) {
  return 1 / (1 + ::exp(-x));
}

// The approximation of gelu is x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3), since
// 1 + tanh(u) = 2 sigmoid(2 u); this form keeps its precision where 1 + tanh(u) vanishes.
constexpr double two_slope = 1.5957691216057308;  // 2 sqrt(2 / pi)
constexpr double cubic = 0.044715;
constexpr double density_at_zero = 0.39894228040143268;  // 1 / sqrt(2 pi)

struct Tanh {
  template <class W>
  __device__ W operator()(W x) const {
    return ::tanh(x);
  }
};
struct Sigmoid {
  template <class W>
  __device__ W operator()(W x) const {
    return logistic(x);
  }
};
struct Relu {
  template <class W>
  __device__ W operator()(W x) const {
    return x < 0 ? W(0) : x;
  }
};
struct GeluErf {
  template <class W>
  __device__ W operator()(W x) const {
    return x * ::normcdf(x);
  }
};
struct GeluTanh {
  template <class W>
  __device__ W operator()(W x) const {
    return x * logistic(W(two_slope) * x * (1 + W(cubic) * x * x));
  }
};
struct Silu {
  template <class W>
  __device__ W operator()(W x) const {
    return x * logistic(x);
  }
};

struct TanhBackward {
  template <class W>
  __device__ W operator()(W y, W dy) const {
    return dy * (1 - y * y);
  }
};
struct SigmoidBackward {
  template <class W>
  __device__ W operator()(W y, W dy) const {
    return dy * y * (1 - y);
  }
};
struct ReluBackward {
  template <class W>
  __device__ W operator()(W y, W dy) const {
    return y > 0 ? dy : W(0);
  }
};
struct GeluErfBackward {
  template <class W>
  __device__ W operator()(W x, W dy) const {
    return dy * (::normcdf(x) + x * W(density_at_zero) * ::exp(W(-0.5) * x * x));
  }
};
struct GeluTanhBackward {
  template <class W>
  __device__ W operator()(W x, W dy) const {
    const W s = logistic(W(two_slope) * x * (1 + W(cubic) * x * x));
    const W slope = W(two_slope) * (1 + 3 * W(cubic) * x * x);
    return dy * (s + x * s * (1 - s) * slope);
  }
};
struct SiluBackward {
  template <class W>
  __device__ W operator()(W x, W dy) const {
    const W s = logistic(x);
    return dy * s * (1 + x * (1 - s));
  }
};

template <class F>
void forward(const char* op, F f, const Tensor& x, const Tensor& y, Stream stream) {
  visit_floating(op, y.dtype(), [&]<class T>(Type<T>) { map_dense<T, T>(op, f, y, stream, {x}); });
}

template <class F>
void backward(const char* op, F f, const Tensor& saved, const Tensor& dy, const Tensor& dx,
              Stream stream) {
  visit_floating(op, dx.dtype(), [&]<class T>(Type<T>) {
    map_dense<T, T, T>(op, f, dx, stream, {saved, dy});
  });
}

}  // namespace

void tanh(const Tensor& x, const Tensor& y, Stream stream) {
  forward("tanh", Tanh{}, x, y, stream);
}

void sigmoid(const Tensor& x, const Tensor& y, Stream stream) {
  forward("sigmoid", Sigmoid{}, x, y, stream);
}

void relu(const Tensor& x, const Tensor& y, Stream stream) {
  forward("relu", Relu{}, x, y, stream);
}

void gelu(const Tensor& x, const Tensor& y, Gelu form, Stream stream) {
  if (form == Gelu::erf) return forward("gelu", GeluErf{}, x, y, stream);
  forward("gelu", GeluTanh{}, x, y, stream);
}

void silu(const Tensor& x, const Tensor& y, Stream stream) {
  forward("silu", Silu{}, x, y, stream);
}

void tanh_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream) {
  backward("tanh_backward", TanhBackward{}, y, dy, dx, stream);
}

void sigmoid_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream) {
  backward("sigmoid_backward", SigmoidBackward{}, y, dy, dx, stream);
}

void relu_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream) {
  backward("relu_backward", ReluBackward{}, y, dy, dx, stream);
}

void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Gelu form, Stream stream) {
  if (form == Gelu::erf) return backward("gelu_backward", GeluErfBackward{}, x, dy, dx, stream);
  backward("gelu_backward", GeluTanhBackward{}, x, dy, dx, stream);
}

void silu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream stream) {
  backward("silu_backward", SiluBackward{}, x, dy, dx, stream);
}

}  // namespace bs::cuda
