#include <bs/nn/decode/lattice_posterior.h>

#include <bs/lib/host_view.h>
#include <bs/nn/decode/log_add.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace bs::decode {

namespace {

constexpr double nothing = -std::numeric_limits<double>::infinity();

/// Log probabilities of going on from each (t, u), and the sums over all ways to and from there.
struct Lattice {
  int64_t frames, rows;  ///< T and U + 1
  std::vector<double> blank = {}, token = {}, forward = {}, backward = {};

  size_t at(int64_t t, int64_t u) const { return static_cast<size_t>(t * rows + u); }
  void sum_forward();
  void sum_backward();
};

void Lattice::sum_forward() {
  forward.assign(blank.size(), nothing);
  for (int64_t t = 0; t < frames; ++t)
    for (int64_t u = 0; u < rows; ++u) {
      double& here = forward[at(t, u)];
      if (t == 0 && u == 0) here = 0;
      if (t > 0) here = log_add(here, forward[at(t - 1, u)] + blank[at(t - 1, u)]);
      if (u > 0) here = log_add(here, forward[at(t, u - 1)] + token[at(t, u - 1)]);
    }
}

void Lattice::sum_backward() {
  backward.assign(blank.size(), nothing);
  for (int64_t t = frames - 1; t >= 0; --t)
    for (int64_t u = rows - 1; u >= 0; --u) {
      double& here = backward[at(t, u)];
      if (t + 1 == frames && u + 1 == rows) here = blank[at(t, u)];
      if (t + 1 < frames) here = log_add(here, backward[at(t + 1, u)] + blank[at(t, u)]);
      if (u + 1 < rows) here = log_add(here, backward[at(t, u + 1)] + token[at(t, u)]);
    }
}

Lattice lattice_of(const Tensor& logits, std::span<const int64_t> tokens, int64_t blank) {
  Lattice lattice{.frames = logits.size(0), .rows = logits.size(1)};
  const auto classes = static_cast<size_t>(logits.size(2));
  std::vector<double> row;
  const auto finish_row = [&] {
    const double top = *std::ranges::max_element(row);
    double sum = 0;
    for (const double v : row) sum += std::exp(v - top);
    const double shift = top + std::log(sum);
    const size_t u = lattice.blank.size() % static_cast<size_t>(lattice.rows);
    lattice.blank.push_back(row[static_cast<size_t>(blank)] - shift);
    lattice.token.push_back(u < tokens.size() ? row[static_cast<size_t>(tokens[u])] - shift
                                              : nothing);
    row.clear();
  };
  const Tensor host = host_view(logits);
  visit_floating("lattice_posterior", logits.dtype(), [&]<class T>(Type<T>) {
    for_each_value<T>(host, [&](T v) {
      row.push_back(static_cast<double>(v));
      if (row.size() == classes) finish_row();
    });
  });
  return lattice;
}

}  // namespace

LatticePosterior lattice_posterior(const Tensor& logits, std::span<const int64_t> tokens,
                                   int64_t blank) {
  BS_CHECK(logits.rank() == 3 && logits.size(0) > 0 &&
               logits.size(1) == static_cast<int64_t>(tokens.size()) + 1,
           "lattice_posterior: logits {} for {} tokens", logits.shape(), tokens.size());
  const int64_t classes = logits.size(2);
  for (const int64_t token : tokens)
    BS_CHECK(token >= 0 && token < classes, "lattice_posterior: token {} of {} classes", token,
             classes);
  BS_CHECK(blank >= 0 && blank < classes, "lattice_posterior: blank {} of {} classes", blank,
           classes);
  Lattice lattice = lattice_of(logits, tokens, blank);
  lattice.sum_forward();
  lattice.sum_backward();
  LatticePosterior result{.frames = lattice.frames, .tokens = lattice.rows - 1};
  const double total = result.log_probability = lattice.backward[0];
  for (int64_t t = 0; t < lattice.frames; ++t)
    for (int64_t u = 0; u < lattice.rows; ++u) {
      const size_t here = lattice.at(t, u);
      result.node.push_back(std::exp(lattice.forward[here] + lattice.backward[here] - total));
      if (u + 1 < lattice.rows)
        result.emit.push_back(std::exp(lattice.forward[here] + lattice.token[here] +
                                       lattice.backward[here + 1] - total));
    }
  return result;
}

}  // namespace bs::decode
