#include <bs/nn/lstm.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

// Stacked layers and their gradients as naive loops in double, without a library in between. The
// grid of extents and the tolerances are those of the extension whose hard activations these are.

namespace {

using Matrix = std::vector<double>;  // [rows, columns], row by row

struct Layer {
  size_t in, cells;
  Matrix ih, hh, bias_ih, bias_hh;
};
/// One layer's steps of all sequences: row t * batch + b.
struct Steps {
  Matrix x, gates, before_h, before_c, squashed, y;
};

double gate(double z, bool hard) {
  return hard ? std::clamp(0.5 + z / 8, 0.0, 1.0) : 1 / (1 + std::exp(-z));
}
double squash(double z, bool hard) { return hard ? std::clamp(z, -1.0, 1.0) : std::tanh(z); }
double gate_slope(double s, bool hard) { return hard ? (s > 0 && s < 1 ? 0.125 : 0) : s * (1 - s); }
double squash_slope(double t, bool hard) { return hard ? (t > -1 && t < 1 ? 1 : 0) : 1 - t * t; }

Steps forward(const Layer& layer, const Matrix& x, size_t steps, size_t batch, bool hard) {
  const size_t H = layer.cells, rows = steps * batch;
  Steps s{x,
          Matrix(rows * 4 * H),
          Matrix(rows * H),
          Matrix(rows * H),
          Matrix(rows * H),
          Matrix(rows * H)};
  Matrix h(batch * H), c(batch * H);
  for (size_t t = 0; t < steps; ++t)
    for (size_t b = 0; b < batch; ++b) {
      const size_t row = t * batch + b;
      for (size_t u = 0; u < H; ++u) {
        s.before_h[row * H + u] = h[b * H + u];
        s.before_c[row * H + u] = c[b * H + u];
      }
      for (size_t g = 0; g < 4 * H; ++g) {
        double z = layer.bias_ih[g] + layer.bias_hh[g];
        for (size_t j = 0; j < layer.in; ++j)
          z += layer.ih[g * layer.in + j] * x[row * layer.in + j];
        for (size_t j = 0; j < H; ++j) z += layer.hh[g * H + j] * s.before_h[row * H + j];
        s.gates[row * 4 * H + g] = g / H == 2 ? squash(z, hard) : gate(z, hard);
      }
      const double* a = &s.gates[row * 4 * H];
      for (size_t u = 0; u < H; ++u) {
        c[b * H + u] = a[H + u] * c[b * H + u] + a[u] * a[2 * H + u];
        s.squashed[row * H + u] = squash(c[b * H + u], hard);
        h[b * H + u] = s.y[row * H + u] = a[3 * H + u] * s.squashed[row * H + u];
      }
    }
  return s;
}

struct Gradients {
  Matrix x, ih, hh, bias;
};

Gradients backward(const Layer& layer, const Steps& s, const Matrix& dy, size_t steps, size_t batch,
                   bool hard) {
  const size_t H = layer.cells;
  Gradients d{Matrix(s.x.size()), Matrix(layer.ih.size()), Matrix(layer.hh.size()), Matrix(4 * H)};
  Matrix dh(batch * H), dc(batch * H);
  for (size_t t = steps; t-- > 0;)
    for (size_t b = 0; b < batch; ++b) {
      const size_t row = t * batch + b;
      const double* a = &s.gates[row * 4 * H];
      Matrix dz(4 * H);
      for (size_t u = 0; u < H; ++u) {
        const double out = dy[row * H + u] + dh[b * H + u], tc = s.squashed[row * H + u];
        const double cell = dc[b * H + u] + out * a[3 * H + u] * squash_slope(tc, hard);
        dz[u] = cell * a[2 * H + u] * gate_slope(a[u], hard);
        dz[H + u] = cell * s.before_c[row * H + u] * gate_slope(a[H + u], hard);
        dz[2 * H + u] = cell * a[u] * squash_slope(a[2 * H + u], hard);
        dz[3 * H + u] = out * tc * gate_slope(a[3 * H + u], hard);
        dc[b * H + u] = cell * a[H + u];
        dh[b * H + u] = 0;
      }
      for (size_t g = 0; g < 4 * H; ++g) {
        d.bias[g] += dz[g];
        for (size_t j = 0; j < layer.in; ++j) {
          d.ih[g * layer.in + j] += dz[g] * s.x[row * layer.in + j];
          d.x[row * layer.in + j] += dz[g] * layer.ih[g * layer.in + j];
        }
        for (size_t j = 0; j < H; ++j) {
          d.hh[g * H + j] += dz[g] * s.before_h[row * H + j];
          dh[b * H + j] += dz[g] * layer.hh[g * H + j];
        }
      }
    }
  return d;
}

/// The gradient of the mean cross entropy of y's rows with classes 0, 1, 2, ... in turn.
Matrix cross_entropy_gradient(const Matrix& y, size_t classes) {
  const size_t rows = y.size() / classes;
  Matrix d(y.size());
  for (size_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (size_t k = 0; k < classes; ++k) sum += std::exp(y[r * classes + k]);
    for (size_t k = 0; k < classes; ++k)
      d[r * classes + k] = (std::exp(y[r * classes + k]) / sum - (k == r % classes ? 1 : 0)) /
                           static_cast<double>(rows);
  }
  return d;
}

Matrix matrix_of(const Tensor& x) { return Reference::of(x).values; }

void check(const char* name, const Tensor& actual, const Matrix& expected, double tolerance) {
  CAPTURE(name);
  const Matrix values = matrix_of(actual);
  REQUIRE(values.size() == expected.size());
  double most = 0;
  for (size_t i = 0; i < values.size(); ++i)
    most = std::max(most, std::abs(values[i] - expected[i]));
  CHECK(most <= tolerance);
}

void run(int64_t steps, int layers, int64_t batch, int64_t input, int64_t hidden, bool hard,
         DType dtype, double tolerance) {
  const nn::LSTM lstm({.input = input,
                       .hidden = hidden,
                       .layers = layers,
                       .hard = hard,
                       .dtype = dtype,
                       .device = test_device()});
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  uint64_t seed = 10;
  for (const Variable& p : lstm.parameters())
    p.set_data(random_reference(p.shape(), seed++, -bound, bound).tensor(dtype, test_device()));
  const Variable x(random_reference({steps, batch, input}, 5, -2, 2).tensor(dtype, test_device()),
                   true);
  const auto T = static_cast<size_t>(steps), B = static_cast<size_t>(batch);
  std::vector<Layer> stack;
  std::vector<Steps> all;
  Matrix in = matrix_of(x.data());
  for (const LSTMWeightVariables& w : lstm.weights) {
    stack.push_back({static_cast<size_t>(w.ih.shape()[1]), static_cast<size_t>(hidden),
                     matrix_of(w.ih.data()), matrix_of(w.hh.data()), matrix_of(w.bias_ih.data()),
                     matrix_of(w.bias_hh.data())});
    all.push_back(forward(stack.back(), in, T, B, hard));
    in = all.back().y;
  }
  const auto out = lstm.forward(x);
  check("y", out.y.data(), in, tolerance);
  Matrix dy = cross_entropy_gradient(in, static_cast<size_t>(hidden));
  Reference arrives(out.y.shape());
  arrives.values = dy;
  out.y.backward(arrives.tensor(dtype, test_device()));
  for (size_t l = stack.size(); l-- > 0;) {
    const Gradients d = backward(stack[l], all[l], dy, T, B, hard);
    const LSTMWeightVariables& w = lstm.weights[l];
    check("weight_ih", w.ih.grad(), d.ih, tolerance);
    check("weight_hh", w.hh.grad(), d.hh, tolerance);
    check("bias_ih", w.bias_ih.grad(), d.bias, tolerance);
    check("bias_hh", w.bias_hh.grad(), d.bias, tolerance);
    dy = d.x;
  }
  check("x", x.grad(), dy, tolerance);
}

}  // namespace

TEST_CASE("nn::LSTM: values and gradients of stacked layers, soft and hard") {
  for (const bool hard : {false, true})
    for (const int64_t steps : {1, 8})
      for (const int layers : {1, 2, 4})
        for (const int64_t batch : {1, 4})
          for (const int64_t input : {1, 2, 16})
            for (const int64_t hidden : {1, 16}) {
              CAPTURE(hard);
              CAPTURE(steps);
              CAPTURE(layers);
              CAPTURE(input);
              CAPTURE(hidden);
              run(steps, layers, batch, input, hidden, hard, f64, 1e-12);
              run(steps, layers, batch, input, hidden, hard, f32, 1e-6);
              run(steps, layers, batch, input, hidden, hard, f16, 1e-3);
            }
}
