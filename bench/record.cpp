#include <bs/bench/machine.h>
#include <bs/bench/record.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/math_mode.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/random.h>
#include <bs/lib/file.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace bs::bench {

namespace {

/// The members of a cell as one line: "n 4096, block 32".
std::string joined(const Json::Object& cell) {
  std::string text;
  for (const auto& [name, value] : cell) {
    if (!text.empty()) text += ", ";
    text += name + " " + (value.is_string() ? value.string() : value.dump());
  }
  return text;
}

std::string printed(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

}  // namespace

Ceilings measure_ceilings(Device device, DType dtype) {
  const MeasureOptions options{.seconds = 0, .runs = device.is_cuda() ? 10 : 3};
  const int64_t n = device.is_cuda() ? 4096 : 1024;
  const Tensor a = randn({n, n}, dtype, device), b = randn({n, n}, dtype, device);
  const double product = measure(
                             device, [&] { matmul(a, b); }, options)
                             .median;
  const int64_t bytes = device.is_cuda() ? int64_t{1} << 30 : int64_t{1} << 26;
  const Tensor from = rand({bytes / 4}, f32, device), to = Tensor::empty(from.shape(), f32, device);
  const double copied = measure(
                            device, [&] { copy(from, to); }, options)
                            .median;
  return {2 * std::pow(static_cast<double>(n), 3) / product,
          2 * static_cast<double>(bytes) / copied};
}

Record::Record(std::string benchmark, const Settings& settings)
    : benchmark_(std::move(benchmark)),
      settings_(settings),
      machine_(describe_machine(settings.device)),
      ceilings_(measure_ceilings(settings.device, settings.dtype)) {
  if (settings.dtype == f32 && settings.device.is_cuda()) {
    const TF32Guard guard;
    tf32_rate_ = measure_ceilings(settings.device, f32).flops_per_second;
  }
  std::printf("%s, %s; %s\n", benchmark_.c_str(), to_string(settings.dtype).c_str(),
              joined(machine_).c_str());
  std::printf("ceilings: dense %.4g TF, copy %.4g TB/s\n", 1e-12 * ceilings_.flops_per_second,
              1e-12 * ceilings_.bytes_per_second);
}

double Record::floor(double flops, double bytes) const {
  const double rate = tf32_allowed() && tf32_rate_ > 0 ? tf32_rate_ : ceilings_.flops_per_second;
  return std::max(flops / rate, bytes / ceilings_.bytes_per_second);
}

void Record::add(Figure f) {
  const std::string heading = joined(f.cell);
  if (heading != heading_) {
    std::printf("\n%s\n  %-16s %-12s %11s  %-23s %9s %9s %9s\n", heading.c_str(), "what", "by",
                "us", "(quartiles)", "TF", "TB/s", "of floor");
    heading_ = heading;
  }
  const double floor_seconds = floor(f.flops / f.rate, f.bytes);
  const std::string spread =
      printed("(%.1f .. ", 1e6 * f.time.low) + printed("%.1f)", 1e6 * f.time.high);
  // What nobody counted stays blank.
  const auto rate = [&](double work) {
    return work > 0 ? printed("%.4g", 1e-12 * work / f.time.median) : std::string();
  };
  const std::string share =
      floor_seconds > 0 ? printed("%.2f", floor_seconds / f.time.median) : std::string();
  std::printf("  %-16s %-12s %11.1f  %-23s %9s %9s %9s\n", f.what.c_str(), f.by.c_str(),
              1e6 * f.time.median, spread.c_str(), rate(f.flops).c_str(), rate(f.bytes).c_str(),
              share.c_str());
  std::fflush(stdout);
  Json::Object row{{"cell", std::move(f.cell)}, {"what", std::move(f.what)},
                   {"by", std::move(f.by)},     {"seconds", f.time.median},
                   {"low", f.time.low},         {"high", f.time.high},
                   {"runs", f.time.runs},       {"flops", f.flops},
                   {"bytes", f.bytes},          {"floor_seconds", floor_seconds}};
  for (auto& member : f.further) row.push_back(std::move(member));
  figures_.emplace_back(std::move(row));
}

void Record::write() const {
  if (settings_.json.empty()) return;
  const Json all(
      Json::Object{{"benchmark", benchmark_},
                   {"machine", machine_},
                   {"command", settings_.command},
                   {"dtype", to_string(settings_.dtype)},
                   {"ceilings", Json::Object{{"flops_per_second", ceilings_.flops_per_second},
                                             {"bytes_per_second", ceilings_.bytes_per_second}}},
                   {"figures", figures_}});
  write_text(settings_.json, all.dump() + "\n");
}

double sum_error(DType dtype, double terms, double size, double value) {
  const double summed = dtype == f64 ? 0x1p-53 : 0x1p-24;
  const double stored = dtype == f64   ? 0x1p-52
                        : dtype == f32 ? 0x1p-23
                        : dtype == f16 ? 0x1p-10
                                       : 0x1p-7;
  return std::sqrt(terms) * summed * size + stored * std::abs(value);
}

void write_text(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace bs::bench
