#include <bs/lib/file.h>
#include <bs/lib/format_fixed.h>
#include <bs/lib/json.h>
#include <bs/lib/profiler.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace bs {

namespace {

template <class T>
T argument(T value) {
  static_assert(!std::is_floating_point_v<T>, "printf obeys the locale: format_fixed");
  return value;
}
const char* argument(const std::string& value) { return value.c_str(); }

/// printf into a string, which takes strings.
template <class... Args>
std::string text(const char* pattern, const Args&... args) {
  char buffer[256];
  const int length = std::snprintf(buffer, sizeof buffer, pattern, argument(args)...);
  return {buffer, static_cast<size_t>(std::clamp(length, 0, 255))};
}

std::string describe(std::span<const ProfiledTensor> tensors) {
  std::string all;
  for (const ProfiledTensor& t : tensors)
    all += (all.empty() ? "" : ", ") + to_string(t.dtype) + " " + to_string(t.shape);
  return all;
}

/// The time that the work of a row took: on a GPU what that did, else from begin to end.
double working_seconds(const ProfilerRow& row) {
  return row.on_host ? row.seconds : row.device_seconds;
}

/// A rate for the table; empty where it is not known.
std::string rate(double amount, double unit, const ProfilerRow& row, int decimals) {
  const double seconds = working_seconds(row);
  return amount <= 0 || seconds <= 0 ? "" : format_fixed(amount / unit / seconds, decimals);
}

/// How near the time is to the least that it could be, in percent.
std::string share_of_peak(const ProfilerRow& row) {
  const double seconds = working_seconds(row);
  return row.least_seconds <= 0 || seconds <= 0
             ? ""
             : format_fixed(100 * row.least_seconds / seconds, 1) + " %";
}

std::string line_of(const ProfilerRow& row, double all_seconds, int width, bool peaks) {
  const double share = all_seconds > 0 ? 100 * row.self_seconds / all_seconds : 0;
  std::string line = text("%-*s %9lld %11s %6s %% %11s %9s %9s %9s %8s", width, row.name,
                          static_cast<long long>(row.calls),
                          format_fixed(1e3 * row.self_seconds, 3), format_fixed(share, 1),
                          format_fixed(1e6 * row.seconds / static_cast<double>(row.calls), 2),
                          row.device_seconds > 0 ? format_fixed(1e3 * row.device_seconds, 3) : "",
                          rate(row.work.flops, 1e12, row, 3), rate(row.work.bytes, 1e9, row, 1),
                          row.work.density > 0 ? format_fixed(row.work.density, 3) : "");
  if (peaks) line += text(" %8s", share_of_peak(row));
  if (!row.tensors.empty()) line += "  " + row.tensors;
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

Json arguments_of(const ProfilerEvent& event) {
  const double seconds = 1e-9 * static_cast<double>(event.end - event.begin);
  Json::Object all = {{"device", to_string(event.device)}, {"tensors", describe(event.tensors)}};
  const auto add = [&](const char* name, double value, const char* rate_name, double unit) {
    if (value <= 0) return;
    all.emplace_back(name, value);
    if (event.device.is_cpu() && seconds > 0) all.emplace_back(rate_name, value / unit / seconds);
  };
  add("flops", event.work.flops, "TFLOP/s", 1e12);
  add("bytes", event.work.bytes, "GB/s", 1e9);
  if (event.work.density > 0) all.emplace_back("density", event.work.density);
  return all;
}

/// Kernels, copies and fills by name, those with the most time first.
std::string kernel_table(std::span<const DeviceEvent> events, int64_t most) {
  if (events.empty()) return "";
  struct Sum {
    int64_t calls = 0, time = 0, bytes = 0;
  };
  std::map<std::string, Sum> sums;
  int64_t all = 0;
  for (const DeviceEvent& event : events) {
    Sum& sum = sums[event.name];
    ++sum.calls;
    sum.time += event.end - event.begin;
    sum.bytes += event.bytes;
    all += event.end - event.begin;
  }
  std::vector<std::pair<std::string, Sum>> sorted(sums.begin(), sums.end());
  std::ranges::stable_sort(sorted, std::greater<>(), [](const auto& s) { return s.second.time; });
  std::string out = text("\n%-64s %9s %11s %8s %11s %9s\n", "on the GPU", "calls", "GPU ms",
                         "share", "mean us", "GB/s");
  if (most > 0 && most < std::ssize(sorted)) sorted.resize(static_cast<size_t>(most));
  for (const auto& [name, sum] : sorted) {
    const auto time = static_cast<double>(sum.time);
    const double share = all > 0 ? 100 * time / static_cast<double>(all) : 0;
    std::string line = text(
        "%-64.64s %9lld %11s %6s %% %11s %9s", name, static_cast<long long>(sum.calls),
        format_fixed(1e-6 * time, 3), format_fixed(share, 1),
        format_fixed(1e-3 * time / static_cast<double>(sum.calls), 2),
        sum.bytes > 0 && time > 0 ? format_fixed(static_cast<double>(sum.bytes) / time, 1) : "");
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

/// The trace's unit.
std::string microseconds(int64_t nanoseconds) {
  return format_fixed(1e-3 * static_cast<double>(nanoseconds), 3);
}

/// GPUs are processes of their own in the trace, and their streams threads.
std::string trace_line(const DeviceEvent& event) {
  std::string line =
      text(R"({"ph":"X","pid":%d,"tid":%u,"ts":%s,"dur":%s,"cat":"gpu","name":)", 2 + event.device,
           event.stream, microseconds(event.begin), microseconds(event.end - event.begin));
  Json::Object arguments = {{"launched by", event.from ? event.from : "no operation"}};
  if (event.bytes > 0) arguments.emplace_back("bytes", event.bytes);
  return line + Json(event.name).dump() + R"(,"args":)" + Json(std::move(arguments)).dump() + '}';
}

std::string trace_line(const ProfilerEvent& event) {
  std::string line = R"({"ph":"X","pid":1,"tid":)" + std::to_string(event.thread) + R"(,"name":)" +
                     Json(event.name).dump() + R"(,"cat":")" +
                     (event.operation ? "operation" : "range") + '"';
  line += text(R"(,"ts":%s,"dur":%s)", microseconds(event.begin),
               microseconds(event.end - event.begin));
  if (event.operation) line += R"(,"args":)" + arguments_of(event).dump();
  return line + '}';
}

}  // namespace

double DeviceRates::least(const Work& work, DType dtype) const {
  const double products = size_of(dtype) == 8 ? wide : size_of(dtype) == 4 ? single : half;
  if ((work.flops > 0 && products <= 0) || (work.bytes > 0 && bytes <= 0)) return 0;
  return std::max(work.flops > 0 ? work.flops / products : 0,
                  work.bytes > 0 ? work.bytes / bytes : 0);
}

std::vector<ProfilerRow> Profiler::rows(bool by_shape, const RatesOf& rates) const {
  check_stopped("rows()");
  std::map<int, DeviceRates> rates_of;
  const auto least = [&](const ProfilerEvent& event) {
    if (!rates || event.tensors.empty()) return 0.0;
    const int slot = event.device.is_cpu() ? -1 : event.device.index();
    const auto [found, added] = rates_of.try_emplace(slot);
    if (added) found->second = rates(event.device);
    return found->second.least(event.work, event.tensors[0].dtype);
  };
  std::map<std::pair<std::string, std::string>, ProfilerRow> all;
  std::unordered_map<uint64_t, ProfilerRow*> of;  // the ranges, where GPUs were watched
  for (const ProfilerEvent& event : events_) {
    std::string tensors = by_shape ? describe(event.tensors) : "";
    ProfilerRow& row = all[{event.name, tensors}];
    if (!device_events_.empty()) of[event.number] = &row;
    row.name = event.name;
    row.tensors = std::move(tensors);
    row.operation = event.operation;
    row.on_host = row.on_host && event.device.is_cpu();
    ++row.calls;
    row.seconds += 1e-9 * static_cast<double>(event.end - event.begin);
    row.self_seconds += 1e-9 * static_cast<double>(event.self);
    row.least_seconds += least(event);
    row.work.flops += event.work.flops;
    row.work.bytes += event.work.bytes;
    row.work.density += (event.work.density - row.work.density) / static_cast<double>(row.calls);
  }
  for (const DeviceEvent& device : device_events_) {
    const auto from = of.find(device.number);
    if (from != of.end())
      from->second->device_seconds += 1e-9 * static_cast<double>(device.end - device.begin);
  }
  std::vector<ProfilerRow> sorted;
  sorted.reserve(all.size());
  for (auto& [key, row] : all) sorted.push_back(std::move(row));
  std::ranges::stable_sort(sorted, std::greater<>(), &ProfilerRow::self_seconds);
  return sorted;
}

std::string Profiler::table(const ProfilerTableOptions& options) const {
  check_stopped("table()");
  std::vector<ProfilerRow> all = rows(options.by_shape, options.rates);
  const bool peaks = static_cast<bool>(options.rates);
  // Operations first; both kinds stay in the order of their time.
  std::stable_partition(all.begin(), all.end(), std::mem_fn(&ProfilerRow::operation));
  double seconds = 0;
  size_t width = std::string_view("operation").size();
  for (const ProfilerRow& row : all) {
    seconds += row.self_seconds;
    width = std::max(width, std::min<size_t>(row.name.size(), 48));
  }
  const int column = static_cast<int>(width);
  const auto head = [&](const char* what) {
    return text("%-*s %9s %11s %8s %11s %9s %9s %9s %8s%s\n", column, what, "calls", "self ms",
                "share", "mean us", "GPU ms", "TFLOP/s", "GB/s", "density",
                peaks ? "  of peak" : "");
  };
  std::string out = head("operation");
  bool ranges = false;
  int64_t shown = 0, left = 0;
  for (const ProfilerRow& row : all) {
    if (!row.operation && !std::exchange(ranges, true)) out += "\n" + head("range");
    if (row.operation && options.rows > 0 && ++shown > options.rows) {
      ++left;
      continue;
    }
    out += line_of(row, seconds, column, peaks);
  }
  if (left > 0) out += "(" + std::to_string(left) + " more operations)\n";
  out += kernel_table(device_events_, options.rows);
  if (!unwatched_.empty()) out += "(no times of the GPU: " + unwatched_ + ")\n";
  if (dropped_ > 0) out += "(" + std::to_string(dropped_) + " later events were not kept)\n";
  return out;
}

void Profiler::write_trace(const std::string& path) const {
  check_stopped("write_trace()");
  AtomicFile file(path);
  std::string part = R"({"displayTimeUnit":"ns","traceEvents":[)";
  part += '\n';
  int thread = -1;
  for (size_t i = 0; i < events_.size(); ++i) {
    if (i > 0) part += ",\n";
    if (std::exchange(thread, events_[i].thread) != thread)
      part +=
          text(R"({"ph":"M","pid":1,"tid":%d,"name":"thread_name","args":{"name":"thread %d"}},)",
               thread, thread) +
          "\n";
    part += trace_line(events_[i]);
    if (part.size() < 1 << 20) continue;
    file.write(part.data(), part.size());
    part.clear();
  }
  int device = -1;
  bool any = !events_.empty();
  for (const DeviceEvent& event : device_events_) {
    if (std::exchange(any, true)) part += ",\n";
    if (std::exchange(device, event.device) != event.device)
      part += text(R"({"ph":"M","pid":%d,"name":"process_name","args":{"name":"GPU %d"}},)",
                   2 + event.device, event.device) +
              "\n";
    part += trace_line(event);
    if (part.size() < 1 << 20) continue;
    file.write(part.data(), part.size());
    part.clear();
  }
  part += "\n]}\n";
  file.write(part.data(), part.size());
  file.commit();
}

}  // namespace bs
