#pragma once
/** @file Named tensors in one file, in the format of Hugging Face's `safetensors`: eight bytes of
 *  header length, a JSON header, then the data. Reading one runs no code and trusts no number. */
#include <bs/lib/tensor.h>

#include <map>
#include <string>

namespace bs {

/** @brief What a file holds. */
struct Safetensors {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;  ///< free text
};

/** @brief Writes tensors of any dtype, device and strides, whole or not at all. The same content
 *  gives the same bytes, those of the reference implementation: larger elements first (so that all
 *  are aligned), then by name.
 *  @throws IoError naming the path; Error for an undefined tensor or one named `__metadata__`. */
void save_safetensors(const std::string& path, const Safetensors& content);

/** @brief Reads and validates: the header is at most 100 MB of strict JSON, each tensor's bytes fit
 *  its dtype and shape, and together they cover the data without gaps or overlaps.
 *  @throws IoError naming the path and what is wrong. */
Safetensors load_safetensors(const std::string& path, Device device = Device::cpu());

}  // namespace bs
