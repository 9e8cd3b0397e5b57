#include <bs/kernels/cuda/gpu/gpu_model.h>
#include <bs/lib/check.h>
#include <bs/lib/sha256.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace bs::cuda {

namespace {

/// The number that `text` is, as from_chars reads it in every locale.
std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

/// Three digits: what differs from one run to the next does not matter to plans.
std::string digits(double value) {
  char text[400];
  const auto print = [&](double x, std::chars_format style, int precision) {
    return std::string(text, std::to_chars(text, text + sizeof text, x, style, precision).ptr);
  };
  const std::string three = print(value, std::chars_format::general, 3);
  return print(number(three).value_or(value), std::chars_format::general, 12);  // no exponent
}

const char* name_of(Origin origin) {
  constexpr const char* names[] = {"table", "asked", "measured", "assumed"};
  return names[static_cast<int>(origin)];
}

std::string identity(const GpuKey& key) {
  return format("bs gpu 1\nname {}\ncapability {}\nmultiprocessors {}\nclock {}\ndriver {}\n",
                key.name, key.capability, key.multiprocessors, key.clock, key.driver);
}

/// The rest of the line that begins with `word` and a space, which the text then stands behind.
std::optional<double> take_number(std::string_view& text, std::string_view word) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos || !text.starts_with(word) || end <= word.size()) return {};
  const std::optional<double> value = number(text.substr(word.size() + 1, end - word.size() - 1));
  text.remove_prefix(end + 1);
  return value;
}

}  // namespace

Measured plausible(const Measured& measured) {
  Measured kept{};
  for (size_t i = 0; i < measured_count; ++i) {
    const auto& [name, field, least, most] = measured_numbers[i];
    const double value = measured[i];
    if (value >= least && value <= most) kept[i] = number(digits(value)).value_or(0);
  }
  return kept;
}

bool is_complete(const Measured& measured) {
  return std::ranges::all_of(measured, [](double value) { return value > 0; });
}

bool is_in_table(const GpuKey& key) {
  const auto named = [&](const char* part) { return key.name.find(part) != std::string::npos; };
  return key.capability == 90 && (named("H100") || named("H200"));
}

std::string measured_file(const GpuKey& key) {
  return "gpu-" + sha256(identity(key)).substr(0, 32) + ".txt";
}

std::string format_measured(const GpuKey& key, const Measured& measured) {
  std::string text = identity(key);
  for (size_t i = 0; i < measured_count; ++i)
    text += format("{} {}\n", measured_numbers[i].name, digits(measured[i]));
  return text + format("sha256 {}\n", sha256(text));
}

std::optional<Measured> parse_measured(std::string_view text, const GpuKey& key) {
  const std::string known = identity(key);
  if (!text.starts_with(known)) return {};
  std::string_view rest = text.substr(known.size());
  Measured measured{};
  for (size_t i = 0; i < measured_count; ++i) {
    const std::optional<double> value = take_number(rest, measured_numbers[i].name);
    if (!value) return {};
    measured[i] = *value;
  }
  measured = plausible(measured);
  // Cut short anywhere, or changed: then writing it again gives another text.
  if (!is_complete(measured) || format_measured(key, measured) != text) return {};
  return measured;
}

GpuModel stand_in_model() {
  GpuModel model{.told = Origin::table};
  model.origins.fill(Origin::table);
  return model;
}

GpuModel table_model(const Gpu& asked) {
  GpuModel model{.gpu = asked};
  model.origins.fill(Origin::table);
  return model;
}

GpuModel measured_model(const Gpu& asked, const Measured& measured) {
  constexpr Gpu known;
  GpuModel model{.gpu = asked};
  Gpu& gpu = model.gpu;
  if (gpu.memory_rate > 0) gpu.copy_rate = gpu.memory_rate * known.copy_rate / known.memory_rate;
  for (size_t i = 0; i < measured_count; ++i) {
    model.origins[i] = measured[i] > 0 ? Origin::measured : Origin::assumed;
    if (measured[i] > 0) gpu.*measured_numbers[i].field = measured[i];
  }
  // Newer drivers do not tell the clock of the memory.
  if (!(gpu.memory_rate > 0)) gpu.memory_rate = gpu.copy_rate * known.memory_rate / known.copy_rate;
  return model;
}

std::string describe(const GpuModel& model) {
  const Gpu& gpu = model.gpu;
  constexpr const char* units[] = {"cycles a ns",
                                   "bytes a ns, read and written",
                                   "ns",
                                   "cycles a line of 128 bytes, a multiprocessor",
                                   "multiply-adds a cycle and multiprocessor",
                                   "multiply-adds a cycle and multiprocessor"};
  std::string text;
  const auto add = [&](const char* name, const std::string& value, const char* unit,
                       Origin origin) {
    text += format("{}: {}{}{} ({})\n", name, value, *unit != 0 ? " " : "", unit, name_of(origin));
  };
  const auto told = [&](const char* name, int64_t value, const char* unit) {
    add(name, format("{}", value), unit, model.told);
  };
  told("multiprocessors", gpu.multiprocessors, "");
  told("capability", gpu.capability, "");
  told("shared_bytes", gpu.shared_bytes, "bytes a CTA");
  told("l2_bytes", gpu.l2_bytes, "bytes");
  told("memory_bytes", gpu.memory_bytes, "bytes");
  told("memory_rate", std::llround(gpu.memory_rate), "bytes a ns");
  for (size_t i = 0; i < measured_count; ++i)
    add(measured_numbers[i].name, digits(gpu.*measured_numbers[i].field), units[i],
        model.origins[i]);
  return text;
}

}  // namespace bs::cuda
