#pragma once
/** @file Where a tensor lives. */
#include <cstdint>
#include <string>
#include <string_view>

namespace bs {

enum class DeviceType : uint8_t { cpu, cuda };

/** @brief A processor with its memory: the host, or one GPU. */
class Device {
 public:
  constexpr Device() = default;
  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {DeviceType::cuda, index}; }
  /** @brief Reads "cpu", "cuda" or "cuda:1". @throws Error for anything else. */
  static Device parse(std::string_view text);

  constexpr DeviceType type() const { return type_; }
  constexpr int index() const { return index_; }
  constexpr bool is_cpu() const { return type_ == DeviceType::cpu; }
  constexpr bool is_cuda() const { return type_ == DeviceType::cuda; }
  constexpr bool operator==(const Device&) const = default;

 private:
  constexpr Device(DeviceType type, int index) : type_(type), index_(index) {}
  DeviceType type_ = DeviceType::cpu;
  int index_ = 0;
};

std::string to_string(Device device);

/** @brief Number of GPUs that can be used; 0 without a driver, a GPU, or a CUDA build. Never
 * throws. */
int cuda_device_count();
inline bool cuda_available() { return cuda_device_count() > 0; }
/** @brief Throws an Error naming `op` unless this build and this machine can run on `device`. */
void check_usable(const char* op, Device device);

}  // namespace bs
