#pragma once
/** @file Named tensors as NumPy's .npz files: ZIP archives of .npy files. */
#include <bs/lib/tensor.h>

#include <map>
#include <string>

namespace bs {

/** @brief Writes an archive as `numpy.savez` does, without compression, whole or not at all. The
 *  same content gives the same bytes. Entries of 4 GiB and more are written as ZIP64.
 *  @throws IoError naming the path; Error for an undefined tensor, an empty name, or one that is
 *  not UTF-8. */
void save_npz(const std::string& path, const std::map<std::string, Tensor>& arrays);

/** @brief Reads what `numpy.savez` and `numpy.savez_compressed` wrote, and verifies the checksums.
 *  Beside the arrays it needs some pages of memory. An array takes at most 1,032 times its bytes in
 *  the file, deflate's best ratio, and is memory of tensors. A file from elsewhere is read under
 *  set_memory_limit.
 *  @throws IoError naming the path and the entry for a file that is no such archive, or is damaged
 *  or encrypted. Also for two entries of one name, and what load_npy would refuse. */
std::map<std::string, Tensor> load_npz(const std::string& path, Device device = Device::cpu());

}  // namespace bs
