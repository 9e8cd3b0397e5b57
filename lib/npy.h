#pragma once
/** @file Tensors as NumPy's .npy files. */
#include <bs/lib/file.h>
#include <bs/lib/tensor.h>

#include <string>

namespace bs {

/** @brief Writes `tensor` (any dtype, device and strides) as an .npy file, whole or not at all.
 *  bf16, which NumPy lacks, is written as ml_dtypes does: descr '<V2'.
 *  @throws IoError naming the path. */
void save_npy(const std::string& path, const Tensor& tensor);

/** @brief The bytes of an .npy file that come before the data of `tensor`. */
std::string npy_header(const Tensor& tensor);

/** @brief Reads an .npy file of format 1, 2 or 3, in C or Fortran order, as a contiguous tensor.
 *  Integers that have no DType are widened: i1, i2 and u2 to i32, u4 to i64.
 *  @throws IoError naming the path for what is no such file, is truncated or too long, is
 *  big-endian, or holds a type that has no DType. */
Tensor load_npy(const std::string& path, Device device = Device::cpu());
/** @brief The same for bytes that lie elsewhere, all of which it takes. */
Tensor load_npy(Input& input, Device device = Device::cpu());

}  // namespace bs
