#include <bs/kernels/muon.h>

#include <bs/kernels/axpby.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/vector_norm.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace bs {

namespace {

void check_options(const MuonOptions& o) {
  BS_CHECK(o.momentum >= 0 && o.momentum < 1, "muon: a momentum of {} is not within [0, 1)",
           o.momentum);
  BS_CHECK(o.learning_rate >= 0 && o.eps >= 0 && o.weight_decay >= 0,
           "muon: a rate of {}, an eps of {}, a decay of {}: none may be negative", o.learning_rate,
           o.eps, o.weight_decay);
  BS_CHECK(o.iterations >= 0 && o.iterations < 100, "muon: {} iterations", o.iterations);
  BS_CHECK(is_floating(o.products), "muon: products of {}", o.products);
}

double length_of(MuonLength length, const Shape& shape) {
  const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
  switch (length) {
    case MuonLength::original:
      return std::sqrt(std::max(1.0, rows / columns));
    case MuonLength::match_rms_adamw:
      return 0.2 * std::sqrt(std::max(rows, columns));
    case MuonLength::spectral_unclamped:
      return std::sqrt(rows / columns);
  }
  return 1;
}

/// The momenta and what is added to them.
std::vector<AxpbyParameter> momenta_of(std::span<const MuonParameter> parameters) {
  std::vector<AxpbyParameter> momenta;
  for (const MuonParameter& p : parameters)
    momenta.push_back({p.momentum, cast(p.gradient, p.momentum.dtype()), {}});
  return momenta;
}

/// What the matrices are stepped by: their momenta as they will be, or the gradient that looks
/// ahead. The momenta themselves stay as they are.
std::vector<AxpbyParameter> directions(std::vector<AxpbyParameter> momenta,
                                       const MuonOptions& options, const GradientClip& clip) {
  for (AxpbyParameter& p : momenta) p.value = clone(p.value);
  for (int i = 0; i < (options.nesterov ? 2 : 1); ++i)
    axpby(momenta, options.momentum, 1 - options.momentum, clip);
  return momenta;
}

}  // namespace

Tensor newton_schulz(const Tensor& g, DType dtype, int iterations,
                     const std::array<double, 3>& coefficients, double eps) {
  BS_CHECK(g.rank() == 2 && is_floating(g.dtype()), "newton_schulz: {} of {} is no matrix",
           g.shape(), g.dtype());
  BS_CHECK(iterations >= 0 && iterations < 100, "newton_schulz: {} iterations", iterations);
  if (g.size(0) > g.size(1))
    return newton_schulz(g.transpose(0, 1), dtype, iterations, coefficients, eps).transpose(0, 1);
  const auto& [a, b, c] = coefficients;
  const auto sum = [](const Tensor& y, double keep, const Tensor& x, double mix) {
    axpby(std::vector{AxpbyParameter{y, x, {}}}, keep, mix);
    return y;
  };
  Tensor x = contiguous(cast(div(g, maximum(vector_norm(g), eps)), dtype));
  for (int i = 0; i < iterations; ++i) {
    const Tensor gram = matmul(x, x.transpose(0, 1));
    x = sum(matmul(sum(matmul(gram, gram), c, gram, b), x), 1, x, a);
  }
  return x;
}

PreparedStep prepared_muon(std::span<const MuonParameter> parameters, const MuonOptions& options,
                           const GradientClip& clip, const Tensor& numbers) {
  check_options(options);
  for (const MuonParameter& p : parameters)
    BS_CHECK(p.value.rank() == 2, "muon: a parameter {} is no matrix", p.value.shape());
  auto present = checked_parameters("muon", parameters, state_names(options), clip);
  if (present.empty()) return [] {};
  check_numbers("muon", numbers, 2, present.front().value.device());
  const std::vector<AxpbyParameter> momenta = momenta_of(present);
  std::vector<AxpbyParameter> steps;
  for (const AxpbyParameter& direction : directions(momenta, options, clip)) {
    const MuonParameter& p = present[steps.size()];
    const DType dtype = p.value.dtype() == f64 ? f64 : options.products;
    const Tensor u = newton_schulz(direction.value, dtype, options.iterations, options.coefficients,
                                   options.eps);
    const Tensor weights = full_precision(p);
    steps.push_back(
        {weights, mul(cast(u, weights.dtype()), length_of(options.length, p.value.shape())), {}});
  }
  const auto [keep, mix] = muon_numbers(1, options);
  auto move = prepared_axpby(momenta, options.momentum, 1 - options.momentum, clip);
  auto step = prepared_axpby(steps, keep, mix, only_skips(clip), numbers);
  return [present = std::move(present), steps = std::move(steps), move = std::move(move),
          step = std::move(step)] {
    note_step("muon", present);
    move();
    step();
    for (size_t i = 0; i < present.size(); ++i) round_back(steps[i].value, present[i]);
  };
}

void muon(std::span<const MuonParameter> parameters, const MuonOptions& options,
          const GradientClip& clip, const Tensor& numbers) {
  prepared_muon(parameters, options, clip, numbers)();
}

std::array<double, 2> muon_numbers(int64_t, const MuonOptions& options) {
  check_options(options);
  return {1 - options.learning_rate * options.weight_decay, -options.learning_rate};
}

}  // namespace bs
