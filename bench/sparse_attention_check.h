#pragma once
/** @file Results of bench_sparse_attention, compared with sums in double. */
#include <bs/kernels/copy.h>
#include <bs/lib/check.h>
#include <bs/lib/layout.h>
#include <bs/lib/philox.h>
#include <bs/lib/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bs::bench {

inline constexpr uint64_t random_seed = 7, random_sequence = 5;
inline constexpr double sink = 1;  ///< the logit of every head, where there are any

/// Whether the mask lets query i see key j.
inline bool mask_sees(int64_t i, int64_t j) { return (i * 7919 + j * 31) % 10 != 0; }

/// What a bias adds to the score of query i and key j, exact in every dtype.
inline double bias_at(int64_t i, int64_t j) {
  return static_cast<double>((i * 7919 + j * 31) % 17 - 8) / 16;
}
/// What a table adds at distance d.
inline double table_at(int64_t d) { return static_cast<double>((d * d + 5 * d) % 13 - 6) / 16; }

/// The elements of any tensor of one (batch, head), on the host, in double.
inline std::vector<double> host(const Tensor& x, int b, int h) {
  const Tensor t = contiguous(x.select(0, b).select(0, h)).to(Device::cpu());
  std::vector<double> out(static_cast<size_t>(t.numel()));
  visit_floating("bench", t.dtype(), [&]<class T>(Type<T>) {
    const T* from = t.data<T>();
    for (double& v : out) v = static_cast<double>(*from++);
  });
  return out;
}

/// One head of a problem with its results, in double.
struct AttentionHead {
  std::vector<double> q, k, v, dout, out, lse, dq, dk, dv;
  const Layout& layout;
  bool causal;
  std::optional<int64_t> before;
  size_t n, length;
  double softcap, slope;
  bool sinks, masked, biased;
  int table;  ///< reach, or 0
  double dropout;
  size_t first_row;  ///< of lse

  bool sees(size_t i, size_t j) const {
    const auto block = static_cast<size_t>(layout.block());
    if (masked && !mask_sees(static_cast<int64_t>(i), static_cast<int64_t>(j))) return false;
    if (before && j + static_cast<size_t>(*before) < i) return false;
    return !(causal && j > i) && layout.contains(layout.heads() - 1, static_cast<int>(i / block),
                                                 static_cast<int>(j / block));
  }
  double dot(const std::vector<double>& x, size_t i, const std::vector<double>& y, size_t j) const {
    double sum = 0;
    for (size_t d = 0; d < n; ++d) sum += x[i * n + d] * y[j * n + d];
    return sum;
  }
  double product(size_t i, size_t j) const {
    return dot(q, i, k, j) / std::sqrt(static_cast<double>(n));
  }
  double weight(size_t i, size_t j) const {
    if (!sees(i, j)) return 0;
    const double s = product(i, j), capped = softcap > 0 ? softcap * std::tanh(s / softcap) : s;
    const int64_t d = static_cast<int64_t>(j) - static_cast<int64_t>(i);
    double added = -slope * static_cast<double>(std::abs(d));
    if (biased) added += bias_at(static_cast<int64_t>(i), static_cast<int64_t>(j));
    if (table > 0) added += table_at(std::clamp<int64_t>(d, -table, table));
    return std::exp(capped + added - lse[i]);
  }
  /// What dropout makes of a weight of 1.
  double factor(size_t i, size_t j) const {
    if (dropout == 0) return 1;
    const uint64_t of_four = (first_row + i) << 28 | j >> 2;
    const double word = philox(random_seed, of_four, random_sequence).word[j % 4];
    return word < std::floor(std::ldexp(dropout, 32)) ? 0 : 1 / (1 - dropout);
  }
  /// The gradient of a product, and the size of its terms, which may cancel.
  std::pair<double, double> dscore(size_t i, size_t j) const {
    const double t = softcap > 0 ? std::tanh(product(i, j) / softcap) : 0;
    const double by = weight(i, j) * (1 - t * t) / std::sqrt(static_cast<double>(n));
    const double dp = factor(i, j) * dot(dout, i, v, j), mean = dot(dout, i, out, i);
    return {by * (dp - mean), by * (std::abs(dp) + std::abs(mean))};
  }

  /// Compares column d of one row of all results. Weights add up to 1 along a row.
  void check(const std::string& what, size_t row, size_t d, double epsilon) const {
    double sums[5] = {};
    double sizes[5] = {};
    const auto add_product = [&](int which, std::pair<double, double> of, double with) {
      sums[which] += of.first * with;
      sizes[which] += of.second * std::abs(with);
    };
    const auto add = [&](int which, double x) { add_product(which, {x, std::abs(x)}, 1); };
    if (sinks) add(0, std::exp(sink - lse[row]));
    for (size_t j = 0; j < length; ++j) {
      add(0, weight(row, j));
      add(1, weight(row, j) * factor(row, j) * v[j * n + d]);
      add_product(2, dscore(row, j), k[j * n + d]);
      add_product(3, dscore(j, row), q[j * n + d]);
      add(4, weight(j, row) * factor(j, row) * dout[j * n + d]);
    }
    const double actual[5] = {sums[0] > 0 ? 1.0 : 0.0, out[row * n + d], dq[row * n + d],
                              dk[row * n + d], dv[row * n + d]};
    // Weights and their gradients are rounded to the dtype before the second products.
    for (int i = 0; i < 5; ++i)
      BS_CHECK(std::abs(actual[i] - sums[i]) <= 4 * epsilon * (sizes[i] + 1e-2),
               "bench: {}: {} is wrong in row {}: {}, not {}", what,
               std::vector<const char*>{"lse", "out", "dq", "dk", "dv"}[static_cast<size_t>(i)],
               static_cast<int64_t>(row), actual[i], sums[i]);
  }
};

inline double rounding(DType dtype) {
  return dtype == f64 ? 0x1p-42 : dtype == f32 ? 0x1p-17 : dtype == f16 ? 0x1p-10 : 0x1p-7;
}

}  // namespace bs::bench
