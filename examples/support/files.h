#pragma once
/** @file Whole files as texts. */
#include <bs/lib/file.h>

#include <string>

namespace bs::example {

/** @brief Replaces the file at `path`. @throws IoError */
inline void write_file(const std::string& path, const std::string& content) {
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

/** @brief The bytes of a file. @throws IoError */
inline std::string content(const std::string& path) {
  InputFile file(path);
  return file.read_text(static_cast<size_t>(file.size()));
}

/** @brief FNV-1a of 64 bits: knows data again, protects from nobody. */
inline uint64_t fnv1a(const void* data, size_t bytes, uint64_t value = 0xcbf29ce484222325) {
  const auto* byte = static_cast<const uint8_t*>(data);
  for (size_t i = 0; i < bytes; ++i) value = (value ^ byte[i]) * 0x100000001b3;
  return value;
}

}  // namespace bs::example
