#pragma once
/** @file What the environment says about how kernels are chosen. */

namespace bs {

/** @brief Switches for tests and measurements, each off unless its variable is in the environment
 *  when a program first asks. Empty and 0 mean off, too. */
struct Settings {
  /// BS_PORTABLE_PRODUCTS: mma.sync for all block-sparse products, as GPUs without wgmma have them.
  bool portable_products = false;
  /// BS_GATHERED_PRODUCTS: the f32 kernels for blocks of 16 and 32 wherever they can be taken, so
  /// that small tests meet them.
  bool gathered_products = false;
  /// BS_FINITE_OPERANDS: no dense operand of dsd and dds holds an infinity or NaN. Products that go
  /// by way of a dense one are not looked after then, and blocks that are absent may let such
  /// through.
  bool finite_operands = false;
  /// BS_TUNE: the first block-sparse product of a layout and a shape times some plans on the GPU,
  /// and keeps the choice beside the compiled kernels.
  bool tune = false;
  bool operator==(const Settings&) const = default;
};

Settings settings();

/** @brief Other settings for the whole program until the end of the scope. */
class SettingsGuard {
 public:
  explicit SettingsGuard(const Settings& settings);
  ~SettingsGuard();
  SettingsGuard(const SettingsGuard&) = delete;
  SettingsGuard& operator=(const SettingsGuard&) = delete;

 private:
  Settings before_;
};

}  // namespace bs
