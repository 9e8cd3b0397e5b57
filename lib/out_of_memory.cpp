#include <bs/lib/out_of_memory.h>

#include <bs/lib/check.h>
#include <bs/lib/format_fixed.h>

#include <algorithm>
#include <array>
#include <new>

namespace bs {

std::string in_units(int64_t bytes) {
  constexpr std::array units = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return format_fixed(value, unit == 0 ? 0 : 2) + " " + units[unit];
}

namespace {

/// Made before it is needed, and a copy of it takes no memory.
const OutOfMemory nameless("memory: the host has none left, not even for a longer text");

}  // namespace

void out_of_own_memory(const char* operation) { out_of_own_memory(operation, {}); }

void out_of_own_memory(const char* operation, const std::string& path) {
  try {
    BS_THROW(OutOfMemory,
             "{}: {}{}the host has no memory left for what this needs beside its tensors",
             operation, path, path.empty() ? "" : ": ");
  } catch (const std::bad_alloc&) {
  }
  throw OutOfMemory(nameless);
}

std::string out_of_memory_text(Device device, size_t bytes, const MemoryShares& s) {
  const int64_t cached = std::max<int64_t>(s.reserved - s.tensors, 0);
  const int64_t others = std::max<int64_t>(s.total - s.free - s.reserved, 0);
  const std::string stranded =
      s.stranded > 0
          ? format(", {} of it kept back while graphs are recorded", in_units(s.stranded))
          : "";
  return format(
      "memory: {} cannot give {}. Of its {}, {} are free; tensors of this process hold {}, its "
      "pool has {} cached or cut into pieces that are too small{}{}; other programs and {} have "
      "{}. "
      "Smaller batches, fewer saved values (NoGrad, recompute) and other programs that end help; "
      "see memory_statistics().",
      device, in_units(static_cast<int64_t>(bytes)), in_units(s.total), in_units(s.free),
      in_units(s.tensors), in_units(cached), device.is_cuda() ? ", graphs included" : "", stranded,
      device.is_cuda() ? "CUDA itself" : "the system", in_units(others));
}

}  // namespace bs
