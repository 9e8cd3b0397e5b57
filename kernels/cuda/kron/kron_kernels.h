#pragma once
/** @file The text of the kernels of kron_matmul, one for the extents of a pass. */
#include <bs/kernels/cuda/kron/kron_config.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/dtype.h>

#include <array>
#include <compare>

namespace bs::cuda {

/** @brief What a kernel is emitted from. */
struct KronKernel {
  DType dtype = f32;
  bool backward = false;
  bool whole = false;    ///< tiles have the whole inner extent
  bool aligned = false;  ///< chunks of 16 bytes are whole or absent
  bool finish = false;   ///< there is a bias or an activation
  int products = 0;      ///< of TF32, see KronShape
  int rows = 1, chunk = 1, threads = 256, count = 1;
  std::array<int, device::KronShape::most> p{}, q{};
  auto operator<=>(const KronKernel&) const = default;  // NOLINT(modernize-use-nullptr): its bug

  device::KronShape shape() const;
};

/** @brief The kernel for a shape. */
KronKernel kron_kernel(DType dtype, const device::KronShape& shape);
jit::Source kron_source(const KronKernel& kernel);
/** @brief Sums the partial gradients of factors. */
jit::Source kron_sum_source(DType dtype);

}  // namespace bs::cuda
