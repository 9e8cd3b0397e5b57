#pragma once
// Activation functions of elements of type T, which take and give what T is computed in. For types
// of 16 bits they are as exact as their results can hold, and cost a third of the instructions.
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

namespace bs::cuda::device {

template <class T>
inline constexpr bool is_16_bit = sizeof(T) == 2;

/// 1 / x, in float to 1 ulp.
__device__ inline float reciprocal_of(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline double reciprocal_of(double x) { return 1 / x; }

template <class T>
__device__ inline wide<T> exp_of(wide<T> x) {
  if constexpr (is_16_bit<T>) {
    return exp2_of(x * 1.44269504F);
  } else {
    return ::exp(x);
  }
}

/// Of what is positive; in 16 bits to 3 ulp of float, and near one to 3e-7.
template <class T>
__device__ inline wide<T> log_of(wide<T> x) {
  if constexpr (is_16_bit<T>) {
    float log2;
    asm("lg2.approx.f32 %0, %1;" : "=f"(log2) : "f"(x));
    return log2 * 0.693147181F;
  } else {
    return ::log(x);
  }
}

/// A polynomial by Horner's rule, the highest coefficient first.
template <class... Rest>
__device__ inline float horner(float x, float sum, Rest... rest) {
  ((sum = fmaf(sum, x, rest)), ...);
  return sum;
}

/// log(1 + x) for x from 0 to 1: in float x times a minimax polynomial, which is off by 3e-8 of
/// itself, for 16 bits by 2e-6.
template <class T>
__device__ inline wide<T> log1p_of(wide<T> x) {
  if constexpr (sizeof(T) == 8) {
    return ::log1p(x);
  } else if constexpr (is_16_bit<T>) {
    const float p = horner(x, 1.41410240e-2F, -6.64018016e-2F, 1.49223878e-1F, -2.35038607e-1F,
                           3.31094491e-1F, -4.99869657e-1F, 9.99998732e-1F);
    return p * x;
  } else {
    const float p =
        horner(x, 5.23269475e-3F, -2.95052408e-2F, 7.82259554e-2F, -1.36632461e-1F, 1.91060069e-1F,
               -2.48429823e-1F, 3.33190968e-1F, -4.99994931e-1F, 9.99999970e-1F);
    return p * x;
  }
}

template <class T>
__device__ inline wide<T> sigmoid_of(wide<T> x) {
  return reciprocal_of(1 + exp_of<T>(-x));
}

template <class T>
__device__ inline wide<T> tanh_of(wide<T> x) {
  if constexpr (is_16_bit<T>) {
    const float far = 1 - 2 * reciprocal_of(1 + exp2_of(x * 2.88539008F));
    return fabsf(x) < 0.03F ? x - x * x * x * 0.333333F : far;
  } else {
    return ::tanh(x);
  }
}

/// Distribution and density of the standard normal.
template <class W>
struct Normal {
  W cdf, pdf;
};

/// Phi(-|x|) = exp(-x^2 / 2) q(k), k = 1 / (1 + c |x|): q is a minimax polynomial in relative error
/// up to |x| = 14.5, where the result vanishes; 4e-5 of it for 16 bits, 3e-8 for 32.
template <class T>
__device__ inline Normal<wide<T>> normal_of(wide<T> x) {
  if constexpr (sizeof(T) == 8) {
    return {::normcdf(x), 0.39894228040143268 * ::exp(-0.5 * x * x)};
  } else if constexpr (is_16_bit<T>) {
    const float e = exp2_of(x * x * -0.72134752F);
    const float k = reciprocal_of(fmaf(fabsf(x), 0.38F, 1.0F));
    const float q =
        horner(k, -0.0899282775F, 0.188876313F, 0.0919798671F, 0.157829428F, 0.151225143F);
    const float tail = e * (q * k);
    return {x < 0 ? tail : 1 - tail, 0.398942280F * e};
  } else {
    const float e = ::exp(-0.5F * (x * x));
    const float k = reciprocal_of(fmaf(fabsf(x), 0.34F, 1.0F));
    const float q = horner(k, -0.0258763609F, 0.138356730F, -0.270870403F, 0.199716947F,
                           -0.0431058878F, 0.114713454F, 0.115351735F, 0.136092224F, 0.135621578F);
    const float tail = e * (q * k);
    return {x < 0 ? tail : 1 - tail, 0.398942280F * e};
  }
}

// The approximation of gelu is x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3), since
// 1 + tanh(u) = 2 sigmoid(2 u); this form keeps its precision where 1 + tanh(u) vanishes.
inline constexpr double gelu_two_slope = 1.5957691216057308;  // 2 sqrt(2 / pi)
inline constexpr double gelu_cubic = 0.044715;

template <class T>
struct Tanh {
  __device__ wide<T> operator()(wide<T> x) const { return tanh_of<T>(x); }
};
template <class T>
struct Sigmoid {
  __device__ wide<T> operator()(wide<T> x) const { return sigmoid_of<T>(x); }
};
template <class T>
struct Relu {
  __device__ wide<T> operator()(wide<T> x) const { return x < 0 ? wide<T>(0) : x; }
};
template <class T>
struct GeluErf {
  __device__ wide<T> operator()(wide<T> x) const { return x * normal_of<T>(x).cdf; }
};
template <class T>
struct GeluTanh {
  __device__ wide<T> operator()(wide<T> x) const {
    using W = wide<T>;
    return x * sigmoid_of<T>(W(gelu_two_slope) * x * (1 + W(gelu_cubic) * x * x));
  }
};
template <class T>
struct Silu {
  __device__ wide<T> operator()(wide<T> x) const { return x * sigmoid_of<T>(x); }
};

template <class T>
struct TanhBackward {
  __device__ wide<T> operator()(wide<T> y, wide<T> dy) const { return dy * (1 - y * y); }
};
template <class T>
struct SigmoidBackward {
  __device__ wide<T> operator()(wide<T> y, wide<T> dy) const { return dy * y * (1 - y); }
};
template <class T>
struct ReluBackward {
  __device__ wide<T> operator()(wide<T> y, wide<T> dy) const { return y > 0 ? dy : wide<T>(0); }
};
template <class T>
struct GeluErfBackward {
  __device__ wide<T> operator()(wide<T> x, wide<T> dy) const {
    const auto normal = normal_of<T>(x);
    return dy * (normal.cdf + x * normal.pdf);
  }
};
template <class T>
struct GeluTanhBackward {
  __device__ wide<T> operator()(wide<T> x, wide<T> dy) const {
    using W = wide<T>;
    const W s = sigmoid_of<T>(W(gelu_two_slope) * x * (1 + W(gelu_cubic) * x * x));
    const W slope = W(gelu_two_slope) * (1 + 3 * W(gelu_cubic) * x * x);
    return dy * (s + x * s * (1 - s) * slope);
  }
};
template <class T>
struct SiluBackward {
  __device__ wide<T> operator()(wide<T> x, wide<T> dy) const {
    const wide<T> s = sigmoid_of<T>(x);
    return dy * s * (1 + x * (1 - s));
  }
};

}  // namespace bs::cuda::device
