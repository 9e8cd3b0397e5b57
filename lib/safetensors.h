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

/** @brief Reads and validates. The header is at most 100 MB of strict JSON. Each tensor's bytes fit
 *  its dtype and shape, and together they cover the data without gaps or overlaps.
 *  @throws IoError naming the path and what is wrong. */
Safetensors load_safetensors(const std::string& path, Device device = Device::cpu());

/** @brief The same on the host without reading the data. Tensors are views of a private map of the
 *  file, and the system reads a page when it is first touched. Writing to a tensor changes the file
 *  for nobody. The map lives until its last tensor is gone. The file may be deleted or replaced by
 *  then. If it is cut short, touching what is missing ends the process (SIGBUS).
 *
 *  Booleans, which have to be checked, and tensors that lie at no multiple of their elements' size
 *  are read at once.
 *  @throws IoError like load_safetensors. */
Safetensors map_safetensors(const std::string& path);

}  // namespace bs
