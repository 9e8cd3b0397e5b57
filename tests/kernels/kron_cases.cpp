#include <bs/autograd/kron.h>
#include <bs/tests/kernels/kron_cases.h>
#include <bs/tests/support/activated.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace bs::test {

namespace {

/// The dense product, entry by entry: factors slowest first, all [p, q].
Reference dense_of(const References& factors) {
  int64_t in = 1, out = 1;
  for (const Reference& f : factors) in *= f.shape[0], out *= f.shape[1];
  Reference dense({in, out});
  for (int64_t i = 0; i < in; ++i)
    for (int64_t j = 0; j < out; ++j) {
      double weight = 1;
      int64_t a = i, b = j;
      for (size_t f = factors.size(); f-- > 0;) {
        const int64_t p = factors[f].shape[0], q = factors[f].shape[1];
        weight *= factors[f][static_cast<size_t>(a % p * q + b % q)];
        a /= p;
        b /= q;
      }
      dense[static_cast<size_t>(i * out + j)] = weight;
    }
  return dense;
}

/// x times the dense product.
Reference product_of(const Reference& x, const References& factors, int64_t rows) {
  const Reference dense = dense_of(factors);
  const int64_t in = dense.shape[0], out = dense.shape[1];
  Reference y({rows, out});
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < in; ++i) {
      const double value = x.values[static_cast<size_t>(r * in + i)];
      const double* from = dense.values.data() + i * out;
      double* to = y.values.data() + r * out;
      for (int64_t j = 0; j < out; ++j) to[j] += value * from[j];
    }
  return y;
}

/// The factor on the middle axis of h [outer, p, inner].
Reference step_of(const Reference& h, const Reference& factor, int64_t inner) {
  const int64_t p = factor.shape[0], q = factor.shape[1];
  const int64_t outer = static_cast<int64_t>(h.values.size()) / p / inner;
  Reference next({outer, q, inner});
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < p; ++i)
      for (int64_t j = 0; j < q; ++j) {
        const double weight = factor.at({i, j});
        const double* from = h.values.data() + (o * p + i) * inner;
        double* to = next.values.data() + (o * q + j) * inner;
        for (int64_t k = 0; k < inner; ++k) to[k] += from[k] * weight;
      }
  return next;
}

/// The gradient of factor f one axis after the other: x with the faster factors applied, times dy
/// with the slower ones' transposes. Factors slowest first.
Reference factor_gradient_of_steps(const Reference& x, const References& factors, size_t f,
                                   const Reference& dy) {
  Reference h = x, g = dy;
  int64_t inner = 1;
  for (size_t k = factors.size(); k-- > f + 1;) {
    h = step_of(h, factors[k], inner);
    inner *= factors[k].shape[1];
  }
  int64_t behind = dy.shape[1];
  for (size_t k = 0; k < f; ++k) {
    behind /= factors[k].shape[1];
    g = step_of(g, transposed(factors[k]), behind);
  }
  Reference dw(factors[f].shape);
  const int64_t p = dw.shape[0], q = dw.shape[1];
  const int64_t outer = static_cast<int64_t>(h.values.size()) / p / inner;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < p; ++i)
      for (int64_t j = 0; j < q; ++j)
        for (int64_t k = 0; k < inner; ++k)
          dw.at({i, j}) += h[static_cast<size_t>((o * p + i) * inner + k)] *
                           g[static_cast<size_t>((o * q + j) * inner + k)];
  return dw;
}

}  // namespace

Reference transposed(const Reference& m) {
  Reference t({m.shape[1], m.shape[0]});
  for (int64_t i = 0; i < m.shape[0]; ++i)
    for (int64_t j = 0; j < m.shape[1]; ++j) t.at({j, i}) = m.at({i, j});
  return t;
}

Reference steps_of(Reference h, const References& factors) {
  int64_t inner = 1;
  for (size_t f = factors.size(); f-- > 0;) {
    h = step_of(h, factors[f], inner);
    inner *= factors[f].shape[1];
  }
  h.shape = {static_cast<int64_t>(h.values.size()) / inner, inner};
  return h;
}

Reference factor_gradient(const Reference& x, const References& factors, size_t f,
                          const Reference& dy) {
  Reference dw(factors[f].shape);
  const int64_t in = x.shape[1], out = dy.shape[1];
  for (int64_t i = 0; i < in; ++i)
    for (int64_t j = 0; j < out; ++j) {
      double others = 1;  // the weight of (i, j) without factor f
      int64_t a = i, b = j, entry = 0;
      for (size_t k = factors.size(); k-- > 0;) {
        const int64_t p = factors[k].shape[0], q = factors[k].shape[1];
        const int64_t own = a % p * q + b % q;
        if (k == f) entry = own;
        if (k != f) others *= factors[k][static_cast<size_t>(own)];
        a /= p;
        b /= q;
      }
      double sum = 0;
      for (int64_t r = 0; r < x.shape[0]; ++r)
        sum += x[static_cast<size_t>(r * in + i)] * dy[static_cast<size_t>(r * out + j)];
      dw[static_cast<size_t>(entry)] += others * sum;
    }
  return dw;
}

Reference kron_reference(const References& in, size_t factors, const KronOptions& options) {
  References slowest_first;
  for (size_t i = 0; i < factors; ++i) {
    const size_t at = options.order == KronOrder::first_fastest ? factors - i : i + 1;
    slowest_first.push_back(options.transposed ? transposed(in[at]) : in[at]);
  }
  const int64_t rows = in[0].shape.slice(0, in[0].shape.rank() - 1).product();
  const bool small = in[0].shape.back() <= 256;
  const Reference flat =
      small ? product_of(in[0], slowest_first, rows) : steps_of(in[0], slowest_first);
  Shape shape = in[0].shape;
  shape[-1] = flat.shape[1];
  Reference y(shape);
  for (size_t i = 0; i < y.values.size(); ++i) {
    const double bias =
        in.size() > factors + 1 ? in.back()[i % static_cast<size_t>(shape.back())] : 0;
    y[i] = activated(options.activation, flat[i] + bias);
  }
  return y;
}

void check_steps(const Extents& extents, int64_t rows, DType dtype, double rounding) {
  static int number = 0;
  if (!is_sampled(number++)) return;  // large, and on a CPU one way for all
  CAPTURE(to_string(dtype));
  CAPTURE(to_string(extents[0]));
  CAPTURE(extents.size());
  std::vector<Tensor> factors;
  References slowest_first, turned;
  Shape in{rows, 1}, out{rows, 1};
  for (const Shape& e : extents) {
    factors.push_back(random_reference(e, factors.size() + 1).tensor(dtype, test_device()));
    slowest_first.insert(slowest_first.begin(), Reference::of(factors.back()));
    turned.insert(turned.begin(), transposed(slowest_first.front()));
    in[1] *= e[0];
    out[1] *= e[1];
  }
  const Tensor x = random_reference(in, 8).tensor(dtype, test_device());
  const Tensor dy = random_reference(out, 9).tensor(dtype, test_device());
  const Reference given = Reference::of(x), d = Reference::of(dy);
  // The rounding of a sum of n terms, ours and the reference's, grows as the root of n. Sums of
  // 16-bit numbers are kept in f32.
  const double terms = static_cast<double>(std::max(given.values.size(), d.values.size()));
  const double of_sums = std::sqrt(terms) * epsilon(dtype == f64 ? f64 : f32);
  const auto near = [&](const char* what, const Tensor& actual, const Reference& expected) {
    check_close(what, Reference::of(actual), expected,
                (16 * epsilon(dtype) + of_sums + rounding) * largest(expected));
  };
  const KronResult result = kron_matmul_kept(x, factors);
  near("y", result.y, steps_of(given, slowest_first));
  const KronGrads grads = kron_matmul_backward(x, factors, result, dy);
  near("dx", grads.x, steps_of(d, turned));
  for (size_t f = 0; f < factors.size(); ++f)
    near("dW", grads.factors[f],
         factor_gradient_of_steps(given, slowest_first, factors.size() - 1 - f, d));
}

void check_kron(const Extents& extents, Shape x, const KronOptions& options, bool bias,
                std::vector<DType> dtypes) {
  int64_t in = 1, out = 1;
  std::vector<Shape> inputs = {x};
  for (const Shape& e : extents) {
    in *= e[0];
    out *= e[1];
    inputs.push_back(options.transposed ? Shape{e[1], e[0]} : e);
  }
  inputs[0][-1] = in;
  if (bias) inputs.push_back({out});
  const size_t count = extents.size();
  check_op({.name = "kron_matmul",
            .inputs = inputs,
            .op =
                [=](const Variables& v) {
                  const std::vector<Variable> factors(v.begin() + 1,
                                                      v.begin() + 1 + static_cast<int>(count));
                  return kron_matmul(v[0], factors, bias ? v.back() : Variable(), options);
                },
            .reference = [=](const References& r) { return kron_reference(r, count, options); },
            // The gradient of a factor of 1 is one sum of all, whose terms cancel; an activation of
            // 16 bits is differentiated at a rounded argument or result.
            .steps = 64,
            .dtypes = std::move(dtypes)});
}

}  // namespace bs::test
