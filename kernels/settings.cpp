#include <bs/kernels/settings.h>

#include <bs/lib/environment.h>

#include <mutex>

namespace bs {

namespace {

std::mutex mutex;

Settings& current() {
  static Settings all{.portable_products = is_wished("BS_PORTABLE_PRODUCTS"),
                      .gathered_products = is_wished("BS_GATHERED_PRODUCTS"),
                      .finite_operands = is_wished("BS_FINITE_OPERANDS"),
                      .tune = is_wished("BS_TUNE")};
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
