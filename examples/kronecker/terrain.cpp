#include <bs/examples/kronecker/terrain.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/kron_solve.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/unary.h>
#include <bs/examples/support/training.h>
#include <bs/kernels/inverse.h>
#include <bs/lib/npy.h>
#include <bs/nn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <random>

namespace bs::example {

namespace {

/// Heights on a grid, on the host.
struct Terrain {
  int64_t rows = 0, cols = 0;
  std::vector<double> heights;

  explicit Terrain(const Tensor& map) {
    BS_CHECK(map.rank() == 2, "terrain: a map of shape {}; a matrix is expected", map.shape());
    rows = map.size(0);
    cols = map.size(1);
    const Tensor values = contiguous(cast(map.to(Device::cpu()), f64));
    for_each_value<double>(values, [&](double v) {
      BS_CHECK(std::isfinite(v), "terrain: the map holds {}", v);
      heights.push_back(v);
    });
  }
  double at(int64_t row, int64_t col) const {
    return heights[static_cast<size_t>(row * cols + col)];
  }
};

/// Points of an axis that are known: every `spacing`-th.
std::vector<double> known(int64_t extent, int spacing) {
  std::vector<double> points;
  for (int64_t i = 0; i < extent; i += spacing) points.push_back(static_cast<double>(i));
  return points;
}

std::vector<double> every(int64_t extent) { return known(extent, 1); }

Tensor tensor_of(const std::vector<double>& values, const Shape& shape, Device device) {
  return Tensor::from(std::span<const double>(values), shape).to(device);
}

/// Distances between points of an axis.
Tensor distances(const std::vector<double>& from, const std::vector<double>& to, Device device) {
  std::vector<double> all;
  for (const double a : from)
    for (const double b : to) all.push_back(std::abs(a - b));
  return tensor_of(all, {static_cast<int64_t>(from.size()), static_cast<int64_t>(to.size())},
                   device);
}

/// Matern's covariance of smoothness 3/2: (1 + r) exp(-r) for r the distance in lengths.
Variable covariance(const Tensor& distance, const Variable& log_length) {
  const Variable r = mul(Variable(distance), exp(sub(std::log(std::sqrt(3.0)), log_length)));
  return mul(add(r, 1.0), exp(neg(r)));
}

/// Heights are s * (a process of covariance rows kron cols, plus noise), s^2 known in closed form.
class GridProcess : public nn::Module {
 public:
  Variable log_rows, log_cols, log_noise;

  GridProcess(const Terrain& map, int spacing, Device device)
      : device_(device),
        row_points_(known(map.rows, spacing)),
        col_points_(known(map.cols, spacing)) {
    const auto number = [&](double v) { return tensor_of({v}, {}, device); };
    log_rows = register_parameter("log_rows", number(std::log(8.0)));
    log_cols = register_parameter("log_cols", number(std::log(8.0)));
    log_noise = register_parameter("log_noise", number(std::log(1e-2)));
    std::vector<double> values;
    for (const double row : row_points_)
      for (const double col : col_points_)
        values.push_back(map.at(static_cast<int64_t>(row), static_cast<int64_t>(col)));
    for (const double v : values) mean_ += v / static_cast<double>(values.size());
    for (double& v : values) v -= mean_;
    count_ = static_cast<double>(values.size());
    heights_ = tensor_of(values, {static_cast<int64_t>(values.size())}, device);
    row_distances_ = distances(row_points_, row_points_, device);
    col_distances_ = distances(col_points_, col_points_, device);
  }

  /// Minus the logarithm of the heights' likelihood a point, at the best scale s.
  Variable loss() const {
    const std::vector<Variable> factors = covariances();
    const KronEigh eigh = kron_eigh({factors[0].data(), factors[1].data()});
    const Variable noise = exp(log_noise);
    const Variable weights = kron_shifted_solve(Variable(heights_), factors, noise, eigh);
    const Variable variance = div(sum(mul(Variable(heights_), weights)), count_);
    const Variable logdet = kron_shifted_logdet(factors, noise, eigh);
    const double constant = std::log(2 * std::numbers::pi) + 1;
    return mul(add(add(log(variance), div(logdet, count_)), constant), 0.5);
  }

  /// Expected heights at all points of a finer grid: one product with rectangular factors.
  Tensor predict(const std::vector<double>& rows, const std::vector<double>& cols) const {
    const NoGrad no_grad;
    const std::vector<Variable> factors = covariances();
    const KronEigh eigh = kron_eigh({factors[0].data(), factors[1].data()});
    const Tensor weights = kron_shifted_solve(heights_, eigh, exp(log_noise).data());
    const Tensor to_rows = covariance(distances(row_points_, rows, device_), log_rows).data();
    const Tensor to_cols = covariance(distances(col_points_, cols, device_), log_cols).data();
    const Tensor y = add(kron_matmul(weights, {to_cols, to_rows}), mean_);
    return y.view({static_cast<int64_t>(rows.size()), static_cast<int64_t>(cols.size())});
  }

  double mean() const { return mean_; }
  double count() const { return count_; }
  double row_length() const { return std::exp(log_rows.data().item()); }
  double col_length() const { return std::exp(log_cols.data().item()); }
  double noise() const { return std::exp(log_noise.data().item()); }

 private:
  /// The fastest axis, the columns, first.
  std::vector<Variable> covariances() const {
    return {covariance(col_distances_, log_cols), covariance(row_distances_, log_rows)};
  }

  Device device_;
  std::vector<double> row_points_, col_points_;
  double mean_ = 0, count_ = 0;
  Tensor heights_, row_distances_, col_distances_;
};

std::vector<double> values_of(const Tensor& t) {
  std::vector<double> values;
  for_each_value<double>(host_copy(contiguous(t)), [&](double v) { values.push_back(v); });
  return values;
}

/// Root of the mean square error at the points of the map that were not known.
double error_of(const Terrain& map, int spacing, const std::vector<double>& predicted) {
  double sum = 0, count = 0;
  for (int64_t row = 0; row < map.rows; ++row)
    for (int64_t col = 0; col < map.cols; ++col) {
      if (row % spacing == 0 && col % spacing == 0) continue;
      const double off = map.at(row, col) - predicted[static_cast<size_t>(row * map.cols + col)];
      sum += off * off;
      ++count;
    }
  return std::sqrt(sum / count);
}

/// Between the four known points around each; beyond the last, the nearest ones.
std::vector<double> interpolated(const Terrain& map, int spacing) {
  std::vector<double> all;
  const auto last = [&](int64_t extent) { return (extent - 1) / spacing * spacing; };
  for (int64_t row = 0; row < map.rows; ++row)
    for (int64_t col = 0; col < map.cols; ++col) {
      const int64_t r0 = row / spacing * spacing, r1 = std::min(r0 + spacing, last(map.rows));
      const int64_t c0 = col / spacing * spacing, c1 = std::min(c0 + spacing, last(map.cols));
      const double r = static_cast<double>(row - r0) / spacing;
      const double c = static_cast<double>(col - c0) / spacing;
      all.push_back((1 - r) * ((1 - c) * map.at(r0, c0) + c * map.at(r0, c1)) +
                    r * ((1 - c) * map.at(r1, c0) + c * map.at(r1, c1)));
    }
  return all;
}

/// The same process from `count` of the known points, with its covariance as one dense matrix.
std::vector<double> dense_prediction(const Terrain& map, int spacing, const GridProcess& process,
                                     int64_t count) {
  std::vector<std::pair<int64_t, int64_t>> points;
  for (int64_t row = 0; row < map.rows; row += spacing)
    for (int64_t col = 0; col < map.cols; col += spacing) points.emplace_back(row, col);
  std::ranges::shuffle(points, std::mt19937_64(1));
  points.resize(static_cast<size_t>(count));
  const auto along = [](int64_t extent, double length) {
    std::vector<double> all;  // by distance
    for (int64_t i = 0; i < extent; ++i) {
      const double r = std::sqrt(3.0) * static_cast<double>(i) / length;
      all.push_back((1 + r) * std::exp(-r));
    }
    return all;
  };
  const std::vector<double> along_rows = along(map.rows, process.row_length());
  const std::vector<double> along_cols = along(map.cols, process.col_length());
  const auto covariance_of = [&](int64_t rows, int64_t cols) {
    return along_rows[static_cast<size_t>(std::abs(rows))] *
           along_cols[static_cast<size_t>(std::abs(cols))];
  };
  std::vector<double> matrix, heights;
  for (const auto& [row, col] : points) {
    heights.push_back(map.at(row, col) - process.mean());
    for (const auto& [r, c] : points)
      matrix.push_back(covariance_of(row - r, col - c) +
                       (row == r && col == c ? process.noise() : 0));
  }
  const Tensor solver = inverse(tensor_of(matrix, {count, count}, Device::cpu())).matrix;
  const std::vector<double> weights =
      values_of(matmul(tensor_of(heights, {1, count}, Device::cpu()), solver));
  std::vector<double> predicted(map.heights.size(), process.mean());
  for (int64_t row = 0; row < map.rows; ++row)
    for (int64_t col = 0; col < map.cols; ++col)
      for (size_t i = 0; i < points.size(); ++i)
        predicted[static_cast<size_t>(row * map.cols + col)] +=
            weights[i] * covariance_of(row - points[i].first, col - points[i].second);
  return predicted;
}

struct Errors {
  double process, interpolation;
};

Errors fit(const Terrain& map, const KroneckerOptions& o) {
  BS_CHECK(map.rows > o.spacing && map.cols > o.spacing,
           "terrain: a map of {} x {} points, every {}-th of which is known", map.rows, map.cols,
           o.spacing);
  GridProcess process(map, o.spacing, o.device);
  optim::AdamW optimizer(process, {.learning_rate = 0.1, .weight_decay = 0});
  std::printf("%lld of %lld heights are known, every %d-th row and column\n",
              static_cast<long long>(process.count()), static_cast<long long>(map.heights.size()),
              o.spacing);
  const Clock::time_point start = Clock::now();
  for (int step = 0; step < o.steps; ++step) {
    optimizer.zero_grad();
    const Variable loss = process.loss();
    check_finite("loss", loss.data().item(), step + 1);
    loss.backward();
    optimizer.step();
    if (step % 10 == 0 || step + 1 == o.steps)
      std::printf("step %3d  loss %.4f  lengths %.1f %.1f  noise %.2g  %.1f s\n", step,
                  loss.data().item(), process.row_length(), process.col_length(), process.noise(),
                  seconds_since(start));
  }
  Clock::time_point last = Clock::now();
  const Tensor all = process.predict(every(map.rows), every(map.cols));
  const double seconds = seconds_since(last);
  const Errors errors{error_of(map, o.spacing, values_of(all)),
                      error_of(map, o.spacing, interpolated(map, o.spacing))};
  const auto count = std::min<int64_t>(o.dense, static_cast<int64_t>(process.count()));
  last = Clock::now();
  const double dense = error_of(map, o.spacing, dense_prediction(map, o.spacing, process, count));
  const double dense_seconds = seconds_since(last);
  const double rows = std::ceil(static_cast<double>(map.rows) / o.spacing);
  const double cols = std::ceil(static_cast<double>(map.cols) / o.spacing);
  const auto square = [](double n) { return n * n; };
  std::printf("%-34s %12s %14s %10s\n", "", "error", "covariances", "seconds");
  std::printf("%-34s %12.3f %14s %10s\n", "linear interpolation", errors.interpolation, "", "");
  std::printf("%-34s %12.3f %14.3g %10.2f\n", format("dense process, {} points", count).c_str(),
              dense, square(static_cast<double>(count)), dense_seconds);
  std::printf("%-34s %12.3f %14.3g %10.2f\n",
              format("Kronecker process, {} points", static_cast<int64_t>(process.count())).c_str(),
              errors.process, square(rows) + square(cols), seconds);
  std::printf("a dense matrix of all known points would hold %.3g covariances\n",
              square(process.count()));
  if (!o.out.empty()) {
    save_npy(o.out, cast(all, f32));
    std::printf("heights   %s\n", o.out.c_str());
  }
  return errors;
}

}  // namespace

void fit_terrain(const KroneckerOptions& options) {
  if (options.data.empty()) BS_THROW(UsageError, "terrain: --data FILE.npy names the map");
  fit(Terrain(load_npy(options.data)), options);
}

void smoke_terrain(const KroneckerOptions& options) {
  constexpr int64_t rows = 31, cols = 44;
  std::vector<double> hills;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      hills.push_back(100 * std::sin(static_cast<double>(r) / 3) *
                      std::cos(static_cast<double>(c) / 4));
  KroneckerOptions o = options;
  o.steps = 15;
  o.dense = 50;
  o.out.clear();
  const Errors errors = fit(Terrain(tensor_of(hills, {rows, cols}, Device::cpu())), o);
  BS_CHECK(errors.process < errors.interpolation / 2,
           "the process is {} off, linear interpolation {}", errors.process, errors.interpolation);
}

}  // namespace bs::example
