#pragma once
/** @file The LSTM in naive loops: each sequence, each step, each cell by itself. */
#include <bs/autograd/concat.h>
#include <bs/autograd/copy.h>
#include <bs/autograd/lstm.h>
#include <bs/autograd/view.h>
#include <bs/tests/support/op_case.h>

#include <algorithm>
#include <cmath>

namespace bs::test {

struct LstmCase {
  int64_t steps = 1, batch = 1, in = 1, cells = 1;
  int64_t projection = 0;
  bool hard = false, reverse = false;
  double zoneout_hidden = 0, zoneout_cell = 0;  ///< mixed in as expected values
  std::vector<int64_t> lengths = {};

  int64_t width() const { return projection > 0 ? projection : cells; }
  /// x, W_ih, W_hh, b_ih, b_hh, h0, c0, and W_hr with a projection.
  std::vector<Shape> inputs() const {
    std::vector<Shape> shapes = {{steps, batch, in}, {4 * cells, in}, {4 * cells, width()},
                                 {4 * cells},        {4 * cells},     {batch, width()},
                                 {batch, cells}};
    if (projection > 0) shapes.push_back({projection, cells});
    return shapes;
  }
};

namespace lstm_reference {

inline double gate(double z, bool hard) {
  return hard ? std::clamp(0.5 + z / 8, 0.0, 1.0) : 1 / (1 + std::exp(-z));
}
inline double squash(double z, bool hard) { return hard ? std::clamp(z, -1.0, 1.0) : std::tanh(z); }

/// One step of sequence b: h and c become what they are after it.
inline void step(const LstmCase& k, const References& in, int64_t t, int64_t b,
                 std::vector<double>& h, std::vector<double>& c) {
  const int64_t H = k.cells, R = k.width();
  std::vector<double> out(static_cast<size_t>(H)), after_c = c;
  for (int64_t u = 0; u < H; ++u) {
    double z[4];
    for (int64_t g = 0; g < 4; ++g) {
      const int64_t row = g * H + u;
      double sum = in[3].at({row}) + in[4].at({row});
      const double* w = &in[1].values[static_cast<size_t>(row * k.in)];
      const double* x = &in[0].values[static_cast<size_t>((t * k.batch + b) * k.in)];
      for (int64_t j = 0; j < k.in; ++j) sum += w[j] * x[j];
      const double* r = &in[2].values[static_cast<size_t>(row * R)];
      for (int64_t j = 0; j < R; ++j) sum += r[j] * h[static_cast<size_t>(j)];
      z[g] = g == 2 ? squash(sum, k.hard) : gate(sum, k.hard);
    }
    const double old = c[static_cast<size_t>(u)];
    const double candidate = z[1] * old + z[0] * z[2];
    out[static_cast<size_t>(u)] = z[3] * squash(candidate, k.hard);
    after_c[static_cast<size_t>(u)] = k.zoneout_cell * old + (1 - k.zoneout_cell) * candidate;
  }
  for (int64_t r = 0; r < R; ++r) {
    double candidate = k.projection > 0 ? 0 : out[static_cast<size_t>(r)];
    for (int64_t u = 0; k.projection > 0 && u < H; ++u)
      candidate += in[7].at({r, u}) * out[static_cast<size_t>(u)];
    double& kept = h[static_cast<size_t>(r)];
    kept = k.zoneout_hidden * kept + (1 - k.zoneout_hidden) * candidate;
  }
  c = after_c;
}

}  // namespace lstm_reference

/// y, c, h_n and c_n behind each other.
inline Reference lstm_of(const LstmCase& k, const References& in) {
  const int64_t H = k.cells, R = k.width();
  Reference y({k.steps, k.batch, R}), c({k.steps, k.batch, H}), h_n({k.batch, R}),
      c_n({k.batch, H});
  for (int64_t b = 0; b < k.batch; ++b) {
    std::vector<double> h(static_cast<size_t>(R)), cell(static_cast<size_t>(H));
    for (int64_t r = 0; r < R; ++r) h[static_cast<size_t>(r)] = in[5].at({b, r});
    for (int64_t u = 0; u < H; ++u) cell[static_cast<size_t>(u)] = in[6].at({b, u});
    const int64_t length = k.lengths.empty() ? k.steps : k.lengths[static_cast<size_t>(b)];
    for (int64_t n = 0; n < k.steps; ++n) {
      const int64_t t = k.reverse ? k.steps - 1 - n : n;
      if (t < length) lstm_reference::step(k, in, t, b, h, cell);
      for (int64_t r = 0; r < R; ++r) y.at({t, b, r}) = h[static_cast<size_t>(r)];
      for (int64_t u = 0; u < H; ++u) c.at({t, b, u}) = cell[static_cast<size_t>(u)];
    }
    for (int64_t r = 0; r < R; ++r) h_n.at({b, r}) = h[static_cast<size_t>(r)];
    for (int64_t u = 0; u < H; ++u) c_n.at({b, u}) = cell[static_cast<size_t>(u)];
  }
  Reference all({k.steps * k.batch * (R + H) + k.batch * (R + H)});
  size_t at = 0;
  for (const Reference* part : {&y, &c, &h_n, &c_n})
    for (const double v : part->values) all[at++] = v;
  return all;
}

/** @brief The direction of a case, from the variables of its inputs(). */
inline LSTMDirectionVariables direction_of(const LstmCase& k, const Variables& v) {
  LSTMDirectionVariables d{.weights = {.ih = v[1], .hh = v[2], .bias_ih = v[3], .bias_hh = v[4]},
                           .h0 = v[5],
                           .c0 = v[6],
                           .rule = {.hard = k.hard,
                                    .zoneout_hidden = k.zoneout_hidden,
                                    .zoneout_cell = k.zoneout_cell,
                                    .expected = true},
                           .reverse = k.reverse};
  if (k.projection > 0) d.weights.hr = v[7];
  return d;
}

/** @brief The lengths of a case on the host, or none. */
inline Tensor lengths_of(const LstmCase& k) {
  if (k.lengths.empty()) return {};
  return Tensor::from<int64_t>(std::span<const int64_t>(k.lengths), {k.batch});
}

/** @brief y, c, h_n and c_n behind each other. */
inline Variable joined(const LSTMStates& s) {
  const auto flat = [&](const Variable& v) { return reshape(cast(v, s.y.dtype()), {-1}); };
  return concat({flat(s.y), flat(s.c), flat(s.h_n), flat(s.c_n)}, 0);
}

}  // namespace bs::test
