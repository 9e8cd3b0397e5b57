#include <bs/kernels/muon.h>

#include <bs/kernels/axpby.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/vector_norm.h>

#include <algorithm>
#include <cmath>
#include <memory>
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
  momenta.reserve(parameters.size());
  for (const MuonParameter& p : parameters)
    momenta.push_back({p.momentum, cast(p.gradient, p.momentum.dtype()), {}});
  return momenta;
}

/// Matrices of one shape and dtype, which take the same products at once.
struct Alike {
  std::vector<size_t> numbers;
  Tensor matrices;  ///< [count, rows, columns]
};

/// The momenta by shape, as many together as are small: products of large ones take their time, and
/// would take memory.
std::vector<Alike> alike(std::span<const AxpbyParameter> momenta) {
  constexpr int64_t most_elements = int64_t{1} << 24;
  std::vector<Alike> groups;
  for (size_t i = 0; i < momenta.size(); ++i) {
    const Tensor& m = momenta[i].value;
    const auto fits = [&](const Alike& group) {
      const Tensor& first = momenta[group.numbers.front()].value;
      return first.shape() == m.shape() && first.dtype() == m.dtype() &&
             static_cast<int64_t>(group.numbers.size() + 1) * m.numel() <= most_elements;
    };
    const auto group = std::find_if(groups.begin(), groups.end(), fits);
    (group == groups.end() ? groups.emplace_back() : *group).numbers.push_back(i);
  }
  for (Alike& group : groups) {
    const Tensor& first = momenta[group.numbers.front()].value;
    const auto count = static_cast<int64_t>(group.numbers.size());
    group.matrices = zeros({count, first.size(0), first.size(1)}, first.dtype(), first.device());
  }
  return groups;
}

/// Makes the groups' matrices what parameters are stepped by: their momenta as they will be, or the
/// gradient that looks ahead. The momenta themselves stay as they are.
void set_directions(const std::vector<Alike>& groups, std::span<const AxpbyParameter> momenta,
                    const MuonOptions& options, const GradientClip& clip) {
  std::vector<AxpbyParameter> copies, directions;
  for (const Alike& group : groups)
    for (size_t k = 0; k < group.numbers.size(); ++k) {
      const AxpbyParameter& from = momenta[group.numbers[k]];
      const Tensor matrix = group.matrices.select(0, static_cast<int64_t>(k));
      copies.push_back({matrix, from.value, {}});
      directions.push_back({matrix, from.gradient, {}});
    }
  axpby(copies, 1, 1);
  for (int i = 0; i < (options.nesterov ? 2 : 1); ++i)
    axpby(directions, options.momentum, 1 - options.momentum, clip);
}

/// newton_schulz of matrices [count, rows, columns].
Tensor orthogonal(const Tensor& g, DType dtype, int iterations,
                  const std::array<double, 3>& coefficients, double eps) {
  if (g.size(1) > g.size(2))
    return orthogonal(g.transpose(1, 2), dtype, iterations, coefficients, eps).transpose(1, 2);
  const auto& [a, b, c] = coefficients;
  const auto sum = [](const Tensor& y, double keep, const Tensor& x, double mix) {
    axpby(std::vector{AxpbyParameter{y, x, {}}}, keep, mix);
    return y;
  };
  const Tensor norm = vector_norm(g, 2, Dims{1, 2}, true);
  Tensor x = contiguous(cast(div(g, maximum(norm, eps)), dtype));
  for (int i = 0; i < iterations; ++i) {
    const Tensor gram = matmul(x, x.transpose(1, 2));
    x = sum(matmul(sum(matmul(gram, gram), c, gram, b), x), 1, x, a);
  }
  return x;
}

}  // namespace

Tensor newton_schulz(const Tensor& g, DType dtype, int iterations,
                     const std::array<double, 3>& coefficients, double eps) {
  BS_CHECK(g.rank() == 2 && is_floating(g.dtype()), "newton_schulz: {} of {} is no matrix",
           g.shape(), g.dtype());
  BS_CHECK(iterations >= 0 && iterations < 100, "newton_schulz: {} iterations", iterations);
  return orthogonal(g.unsqueeze(0), dtype, iterations, coefficients, eps).squeeze(0);
}

PreparedStep prepared_muon(std::span<const MuonParameter> parameters, const MuonOptions& options,
                           const GradientClip& clip, const Tensor& numbers) {
  check_options(options);
  for (const MuonParameter& p : parameters)
    BS_CHECK(p.value.rank() == 2, "muon: a parameter {} is no matrix", p.value.shape());
  auto present = checked_parameters("muon", parameters, state_names(options), clip);
  if (present.empty()) return [] {};
  check_numbers("muon", numbers, 2, present.device());
  const std::span<const MuonParameter> all = present.all();
  const auto momenta = std::make_shared<const std::vector<AxpbyParameter>>(momenta_of(all));
  const std::vector<Alike> groups = alike(*momenta);
  set_directions(groups, *momenta, options, clip);
  const auto steps = std::make_shared<std::vector<AxpbyParameter>>(all.size());
  for (const Alike& group : groups) {
    const Tensor& g = group.matrices;
    const DType dtype = g.dtype() == f64 ? f64 : options.products;
    const Tensor u = orthogonal(g, dtype, options.iterations, options.coefficients, options.eps);
    const double length = length_of(options.length, {g.size(1), g.size(2)});
    const Tensor step = mul(cast(u, g.dtype()), length);
    for (size_t k = 0; k < group.numbers.size(); ++k) {
      const size_t number = group.numbers[k];
      (*steps)[number] = {full_precision(all[number]), step.select(0, static_cast<int64_t>(k)), {}};
    }
  }
  const auto [keep, mix] = muon_numbers(1, options);
  auto move = prepared_axpby(*momenta, options.momentum, 1 - options.momentum, clip);
  auto step = prepared_axpby(*steps, keep, mix, only_skips(clip), numbers);
  return [present = std::move(present), momenta, steps, move = std::move(move),
          step = std::move(step)] {
    const std::span<const MuonParameter> stepped = present.all();
    note_step("muon", stepped);
    move();
    step();
    for (size_t i = 0; i < stepped.size(); ++i) round_back((*steps)[i].value, stepped[i]);
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
