#include <bs/nn/init.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/random.h>
#include <bs/lib/host_view.h>

#include <cmath>
#include <vector>

namespace bs::nn::init {

Fans fans(const Tensor& weight) {
  BS_CHECK(weight.rank() >= 2, "init: a weight of shape {} has no fans; it needs two axes",
           weight.shape());
  const int64_t field = weight.shape().slice(2, weight.rank()).product();
  return {weight.size(1) * field, weight.size(0) * field};
}

void zeros(const Tensor& x) { fill(x, 0); }
void ones(const Tensor& x) { fill(x, 1); }
void constant(const Tensor& x, double value) { fill(x, value); }

void uniform(const Tensor& x, double low, double high, Generator& generator) {
  uniform_(x, low, high, generator);
}

void normal(const Tensor& x, double mean, double deviation, Generator& generator) {
  normal_(x, mean, deviation, generator);
}

namespace {

double xavier_deviation(const Tensor& weight, double gain) {
  const Fans f = fans(weight);
  return gain * std::sqrt(2.0 / static_cast<double>(f.in + f.out));
}

double kaiming_deviation(const Tensor& weight, double slope) {
  return std::sqrt(2.0 / ((1 + slope * slope) * static_cast<double>(fans(weight).in)));
}

/// Uniform values of a given standard deviation.
void uniform_of(const Tensor& x, double deviation, Generator& generator) {
  if (x.numel() == 0) return;  // without inputs there is no deviation
  const double bound = std::sqrt(3.0) * deviation;
  uniform_(x, -bound, bound, generator);
}

void normal_of(const Tensor& x, double deviation, Generator& generator) {
  if (x.numel() > 0) normal_(x, 0, deviation, generator);
}

}  // namespace

void xavier_uniform(const Tensor& weight, double gain, Generator& generator) {
  uniform_of(weight, xavier_deviation(weight, gain), generator);
}

void xavier_normal(const Tensor& weight, double gain, Generator& generator) {
  normal_of(weight, xavier_deviation(weight, gain), generator);
}

void kaiming_uniform(const Tensor& weight, double slope, Generator& generator) {
  uniform_of(weight, kaiming_deviation(weight, slope), generator);
}

void kaiming_normal(const Tensor& weight, double slope, Generator& generator) {
  normal_of(weight, kaiming_deviation(weight, slope), generator);
}

namespace {

using Vectors = std::vector<std::vector<double>>;

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Gram and Schmidt, each vector twice: orthogonal to the last digit ("twice is enough").
void orthonormalise(Vectors& vectors) {
  for (size_t i = 0; i < vectors.size(); ++i) {
    std::vector<double>& v = vectors[i];
    for (int pass = 0; pass < 2; ++pass)
      for (size_t j = 0; j < i; ++j) {
        const double along = dot(v, vectors[j]);
        for (size_t k = 0; k < v.size(); ++k) v[k] -= along * vectors[j][k];
      }
    const double length = std::sqrt(dot(v, v));
    for (double& x : v) x /= length;
  }
}

}  // namespace

void orthogonal(const Tensor& weight, double gain, Generator& generator) {
  BS_CHECK(weight.rank() >= 2, "init: orthogonal needs two axes, not {}", weight.shape());
  if (weight.numel() == 0) return;
  const int64_t rows = weight.size(0);
  const int64_t cols = weight.numel() / rows;
  const int64_t count = std::min(rows, cols);
  const int64_t length = std::max(rows, cols);
  const Tensor drawn = randn({count, length}, f64, Device::cpu(), generator);
  std::vector<double> flat;
  for_each_value<double>(drawn, [&](double v) { flat.push_back(v); });
  Vectors vectors;
  for (auto at = flat.begin(); at != flat.end(); at += length)
    vectors.emplace_back(at, at + length);
  orthonormalise(vectors);
  auto to = flat.begin();
  for (const auto& vector : vectors)
    for (double v : vector) *to++ = gain * v;
  Tensor result = Tensor::from(std::span<const double>(flat), {count, length});
  if (rows > cols) result = contiguous(result.transpose(0, 1));
  copy(cast(result.view(weight.shape()), weight.dtype()).to(weight.device()), weight);
}

}  // namespace bs::nn::init
