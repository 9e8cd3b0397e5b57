#pragma once
/** @file The recurrent layers with one state in naive loops: each sequence, step and cell by
 * itself.
 */
#include <bs/tests/support/op_case.h>

#include <algorithm>
#include <cmath>

namespace bs::test {

enum class Kind { gru, tanh, relu };

struct RecurrentCase {
  Kind kind = Kind::gru;
  int64_t steps = 1, batch = 1, in = 1, cells = 1;
  bool reverse = false;
  std::vector<int64_t> lengths = {};

  int64_t gates() const { return kind == Kind::gru ? 3 : 1; }
  /// x, W_ih, W_hh, b_ih, b_hh and h0.
  std::vector<Shape> inputs() const {
    const int64_t sums = gates() * cells;
    return {{steps, batch, in}, {sums, in}, {sums, cells}, {sums}, {sums}, {batch, cells}};
  }
};

namespace recurrent_reference {

inline double sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

/// One step of sequence b: h becomes what it is after it.
inline void step(const RecurrentCase& k, const References& in, int64_t t, int64_t b,
                 std::vector<double>& h) {
  const std::vector<double> before = h;
  const auto input = [&](int64_t row) {
    double sum = in[3].at({row});
    for (int64_t j = 0; j < k.in; ++j) sum += in[1].at({row, j}) * in[0].at({t, b, j});
    return sum;
  };
  const auto recurrent = [&](int64_t row) {
    double sum = in[4].at({row});
    for (int64_t j = 0; j < k.cells; ++j)
      sum += in[2].at({row, j}) * before[static_cast<size_t>(j)];
    return sum;
  };
  for (int64_t u = 0; u < k.cells; ++u) {
    double& cell = h[static_cast<size_t>(u)];
    const int64_t z_row = k.cells + u, n_row = 2 * k.cells + u;
    if (k.kind == Kind::tanh) {
      cell = std::tanh(input(u) + recurrent(u));
    } else if (k.kind == Kind::relu) {
      cell = std::max(0.0, input(u) + recurrent(u));
    } else {
      const double r = sigmoid(input(u) + recurrent(u));
      const double z = sigmoid(input(z_row) + recurrent(z_row));
      const double n = std::tanh(input(n_row) + r * recurrent(n_row));
      cell = (1 - z) * n + z * cell;
    }
  }
}

}  // namespace recurrent_reference

/// y and h_n behind each other.
inline Reference recurrent_of(const RecurrentCase& k, const References& in) {
  Reference all({(k.steps + 1) * k.batch * k.cells});
  for (int64_t b = 0; b < k.batch; ++b) {
    std::vector<double> h(static_cast<size_t>(k.cells));
    for (int64_t u = 0; u < k.cells; ++u) h[static_cast<size_t>(u)] = in[5].at({b, u});
    const int64_t length = k.lengths.empty() ? k.steps : k.lengths[static_cast<size_t>(b)];
    const auto store = [&](int64_t t) {
      for (int64_t u = 0; u < k.cells; ++u)
        all[static_cast<size_t>((t * k.batch + b) * k.cells + u)] = h[static_cast<size_t>(u)];
    };
    for (int64_t n = 0; n < k.steps; ++n) {
      const int64_t t = k.reverse ? k.steps - 1 - n : n;
      if (t < length) recurrent_reference::step(k, in, t, b, h);
      store(t);
    }
    store(k.steps);
  }
  return all;
}

}  // namespace bs::test
