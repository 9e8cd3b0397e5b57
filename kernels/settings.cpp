#include <bs/kernels/settings.h>

#include <cstdlib>
#include <mutex>

namespace bs {

namespace {

std::mutex mutex;

Settings& current() {
  static Settings all{.portable_products = std::getenv("BS_PORTABLE_PRODUCTS") != nullptr,
                      .gathered_products = std::getenv("BS_GATHERED_PRODUCTS") != nullptr,
                      .finite_operands = std::getenv("BS_FINITE_OPERANDS") != nullptr,
                      .tune = std::getenv("BS_TUNE") != nullptr};
  return all;
}

}  // namespace

Settings settings() {
  const std::lock_guard lock(mutex);
  return current();
}

SettingsGuard::SettingsGuard(const Settings& settings) {
  const std::lock_guard lock(mutex);
  before_ = current();
  current() = settings;
}

SettingsGuard::~SettingsGuard() {
  const std::lock_guard lock(mutex);
  current() = before_;
}

}  // namespace bs
