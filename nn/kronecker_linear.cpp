#include <bs/nn/kronecker_linear.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/matmul.h>
#include <bs/lib/host_view.h>
#include <bs/nn/init.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace bs::nn {

namespace {

std::vector<int64_t> primes_of(int64_t n) {
  std::vector<int64_t> primes;
  for (int64_t p = 2; p * p <= n; ++p)
    for (; n % p == 0; n /= p) primes.push_back(p);
  if (n > 1) primes.push_back(n);
  return primes;
}

/// `count` divisors that multiply to n, as equal as giving the largest prime that is left to the
/// smallest of them makes them; largest first.
std::vector<int64_t> parts_of(int64_t n, int count) {
  std::vector<int64_t> parts(static_cast<size_t>(count), 1);
  std::vector<int64_t> primes = primes_of(n);
  for (auto p = primes.rbegin(); p != primes.rend(); ++p) *std::ranges::min_element(parts) *= *p;
  std::ranges::sort(parts, std::greater());
  return parts;
}

using Values = std::vector<double>;

Values values_of(const Tensor& t) {
  Values values;
  for_each_value<double>(cast(host_copy(t), f64), [&](double v) { values.push_back(v); });
  return values;
}

double norm_of(const Values& v) {
  return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
}

/// The weight [in, out] as a sum over all but one factor. Its entries are the products of one entry
/// [in_i, out_i] of each factor, the first on the fastest axis.
class Fit {
 public:
  Fit(std::vector<KroneckerExtents> extents, Values weight, int64_t out)
      : extents_(std::move(extents)), weight_(std::move(weight)), out_(out) {
    for (const KroneckerExtents& e : extents_)
      factors_.emplace_back(static_cast<size_t>(e.in * e.out), 0.0);
  }

  /// Starts each factor at the entries of the weight that lie along its axis from the largest entry
  /// on. That is exact for a product, and never orthogonal to the solution there.
  void start() {
    const auto largest =
        std::ranges::max_element(weight_, {}, [](double v) { return std::abs(v); });
    const int64_t at = largest - weight_.begin();
    for (size_t f = 0; f < factors_.size(); ++f) {
      const auto [row, col] = place(at, f);
      for (int64_t i = 0; i < extents_[f].in; ++i)
        for (int64_t j = 0; j < extents_[f].out; ++j)
          factors_[f][static_cast<size_t>(i * extents_[f].out + j)] = weight_[static_cast<size_t>(
              at + ((i - row.first) * row.second) * out_ + (j - col.first) * col.second)];
      const double size = norm_of(factors_[f]);
      if (size > 0)
        for (double& v : factors_[f]) v /= size;
    }
  }

  /// Makes factor f the best one for the others: the weight contracted with all of them, over the
  /// square of their norms.
  void improve(size_t f) {
    double squares = 1;
    for (size_t k = 0; k < factors_.size(); ++k)
      if (k != f) squares *= norm_of(factors_[k]) * norm_of(factors_[k]);
    if (squares == 0) return;
    std::ranges::fill(factors_[f], 0.0);
    each([&](int64_t entry, const std::vector<size_t>& indices) {
      double others = weight_[static_cast<size_t>(entry)];
      for (size_t k = 0; k < factors_.size(); ++k)
        if (k != f) others *= factors_[k][indices[k]];
      factors_[f][indices[f]] += others;
    });
    for (double& v : factors_[f]) v /= squares;
  }

  /// Gives all factors one norm.
  void balance() {
    double log_sum = 0;
    for (const Values& v : factors_) {
      if (norm_of(v) == 0) return;
      log_sum += std::log(norm_of(v));
    }
    const double norm = std::exp(log_sum / static_cast<double>(factors_.size()));
    for (Values& values : factors_) {
      const double scale = norm / norm_of(values);
      for (double& v : values) v *= scale;
    }
  }

  double error() const {
    double sum = 0;
    each([&](int64_t entry, const std::vector<size_t>& indices) {
      double product = 1;
      for (size_t k = 0; k < factors_.size(); ++k) product *= factors_[k][indices[k]];
      const double off = weight_[static_cast<size_t>(entry)] - product;
      sum += off * off;
    });
    const double size = norm_of(weight_);
    return size == 0 ? 0 : std::sqrt(sum) / size;
  }

  const Values& factor(size_t f) const { return factors_[f]; }

 private:
  using Step = std::pair<int64_t, int64_t>;  ///< index along an axis; distance of its neighbours

  std::pair<Step, Step> place(int64_t entry, size_t f) const {
    int64_t rows = 1, cols = 1;
    for (size_t k = 0; k < f; ++k) rows *= extents_[k].in, cols *= extents_[k].out;
    return {{entry / out_ / rows % extents_[f].in, rows},
            {entry % out_ / cols % extents_[f].out, cols}};
  }

  template <class F>
  void each(const F& f) const {
    std::vector<size_t> indices(extents_.size());
    for (int64_t entry = 0; entry < static_cast<int64_t>(weight_.size()); ++entry) {
      int64_t row = entry / out_, col = entry % out_;
      for (size_t k = 0; k < extents_.size(); ++k) {
        const auto [in, out] = extents_[k];
        indices[k] = static_cast<size_t>(row % in * out + col % out);
        row /= in;
        col /= out;
      }
      f(entry, indices);
    }
  }

  std::vector<KroneckerExtents> extents_;
  Values weight_;
  int64_t out_;
  std::vector<Values> factors_;
};

}  // namespace

std::vector<KroneckerExtents> kronecker_factors(int64_t in, int64_t out, int count) {
  constexpr int64_t most = int64_t{1} << 32;
  BS_CHECK(in > 0 && out > 0 && in <= most && out <= most && count > 0 && count <= 64,
           "kronecker_linear: {} factors from {} to {} features", count, in, out);
  const std::vector<int64_t> rows = parts_of(in, count), cols = parts_of(out, count);
  std::vector<KroneckerExtents> factors;
  for (size_t i = 0; i < rows.size(); ++i) factors.push_back({rows[i], cols[i]});
  return factors;
}

KroneckerLinear::KroneckerLinear(const Options& o)
    : extents_(o.factors.empty() ? kronecker_factors(o.in, o.out, o.count) : o.factors),
      activation_(o.activation),
      keep_prefixes_(o.keep_prefixes) {
  int64_t in = 1, out = 1;
  for (const KroneckerExtents& e : extents_)
    BS_CHECK(e.in > 0 && e.out > 0 && !__builtin_mul_overflow(in, e.in, &in) &&
                 !__builtin_mul_overflow(out, e.out, &out),
             "kronecker_linear: a factor from {} to {} features", e.in, e.out);
  BS_CHECK(in == o.in && out == o.out && in > 0 && out > 0,
           "kronecker_linear: factors from {} to {} features for a layer from {} to {}", in, out,
           o.in, o.out);
  for (size_t i = 0; i < extents_.size(); ++i)
    factors.push_back(
        register_parameter("factors." + std::to_string(i),
                           Tensor::empty({extents_[i].in, extents_[i].out}, o.dtype, o.device)));
  register_parameter("bias", bias, o.bias ? Tensor::empty({out}, o.dtype, o.device) : Tensor());
  init_normal(1 / std::sqrt(3 * static_cast<double>(in)));
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  if (o.bias) init::uniform(bias.data(), -bound, bound);
}

Variable KroneckerLinear::forward(const Variable& x) const {
  return kron_matmul(x, factors, bias,
                     {.activation = activation_, .keep_prefixes = keep_prefixes_});
}

void KroneckerLinear::init_normal(double deviation) const {
  const double each = std::pow(deviation, 1 / static_cast<double>(factors.size()));
  for (const Variable& f : factors) init::normal(f.data(), 0, each);
}

double KroneckerLinear::fit(const Tensor& dense, int sweeps) const {
  int64_t in = 1, out = 1;
  for (const KroneckerExtents& e : extents_) in *= e.in, out *= e.out;
  BS_CHECK(dense.shape() == (Shape{out, in}),
           "kronecker_linear: a weight {} for a layer from {} to {} features", dense.shape(), in,
           out);
  Fit fit(extents_, values_of(contiguous(dense.transpose(0, 1))), out);
  fit.start();
  for (int sweep = 0; sweep < sweeps; ++sweep)
    for (size_t f = 0; f < factors.size(); ++f) fit.improve(f);
  fit.balance();
  for (size_t f = 0; f < factors.size(); ++f) {
    const Tensor values =
        Tensor::from(std::span<const double>(fit.factor(f)), {extents_[f].in, extents_[f].out});
    copy(cast(values, factors[f].dtype()).to(factors[f].device()), factors[f].data());
  }
  return fit.error();
}

Tensor KroneckerLinear::weight() const {
  BS_CHECK(!factors.empty(), "kronecker_linear: the layer was moved away");
  Tensor product = factors[0].data();
  for (size_t i = 1; i < factors.size(); ++i) product = kron(factors[i].data(), product);
  return contiguous(product.transpose(0, 1));
}

std::string to_string(const KroneckerLinear& layer) {
  int64_t in = 1, out = 1;
  for (const KroneckerExtents& e : layer.extents()) in *= e.in, out *= e.out;
  const int64_t dense = in * out + (layer.bias.defined() ? out : 0);
  return format("{}, where a dense layer has {}", to_string(static_cast<const Module&>(layer)),
                dense);
}

}  // namespace bs::nn
