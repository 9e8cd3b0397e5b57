#include <bs/lib/capturing.h>

#include <array>
#include <cstddef>

namespace bs {

namespace {

thread_local int own = 0;  ///< captures of this thread

/// Shared by those who capture on a device. Never destroyed: pools wait as the program ends.
std::shared_mutex& captured(Device device) {
  static auto* const all = new std::array<std::shared_mutex, 65>;
  return all->at(device.is_cpu() ? 0 : 1 + static_cast<size_t>(device.index()));
}

}  // namespace

Capturing::Capturing(Device device) : lock_(captured(device)) { ++own; }

Capturing::~Capturing() { --own; }

std::unique_lock<std::shared_mutex> Capturing::none(Device device) {
  if (own > 0) return {};
  return {captured(device), std::try_to_lock};
}

}  // namespace bs
