#include <bs/kernels/concat_rows.h>
#include <bs/lib/cuda/grid.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/walk.cuh>

#include <algorithm>

namespace bs::cuda {

namespace {

constexpr int threads = 256;
constexpr int most_parts = 8;  ///< of a launch

/// Rows of units, which stand from unit `at` of each row of the result on.
struct Part {
  const void* from;
  Divisor width;
  uint32_t count, at;
  uint32_t first_block;
};
struct Parts {
  Part of[most_parts];
  int count;
  uint32_t row_width;  ///< of the result
};

/// Units of a thread: enough bytes on their way.
template <class Unit>
constexpr uint32_t each = sizeof(Unit) < 16 ? 4 : 1;

/// A block is of one part.
template <class Unit>
__global__ void __launch_bounds__(threads)
    concat_kernel(const __grid_constant__ Parts parts, Unit* y) {
  int p = parts.count - 1;
  while (p > 0 && blockIdx.x < parts.of[p].first_block) --p;
  const Part& part = parts.of[p];
  const uint32_t first = (blockIdx.x - part.first_block) * (threads * each<Unit>)+threadIdx.x;
  Unit units[each<Unit>];
#pragma unroll
  for (uint32_t u = 0; u < each<Unit>; ++u)
    if (const uint32_t i = first + u * threads; i < part.count)
      units[u] = static_cast<const Unit*>(part.from)[i];
#pragma unroll
  for (uint32_t u = 0; u < each<Unit>; ++u) {
    const uint32_t i = first + u * threads;
    if (i >= part.count) break;
    const uint32_t row = part.width.divide(i), column = i - row * part.width.number;
    y[row * parts.row_width + part.at + column] = units[u];
  }
}

/// The largest unit of 1 to 16 bytes of which the result and all parts, rows and all, are made.
int64_t unit_of(std::span<const Tensor> parts, const Tensor& y) {
  const auto size = static_cast<uint64_t>(size_of(y.dtype()));
  uint64_t all = reinterpret_cast<uintptr_t>(y.data()) | static_cast<uint64_t>(y.size(1)) * size;
  for (const Tensor& part : parts)
    all |= reinterpret_cast<uintptr_t>(part.data()) | static_cast<uint64_t>(part.size(1)) * size;
  return int64_t{1} << std::min(std::countr_zero(all), 4);
}

template <class Unit>
void launch(std::span<const Tensor> parts, const Tensor& y, Stream stream) {
  const auto units = [&](int64_t elements) {
    const auto size = static_cast<int64_t>(size_of(y.dtype()));
    return static_cast<uint32_t>(elements * size / static_cast<int64_t>(sizeof(Unit)));
  };
  Parts some{};
  some.row_width = units(y.size(1));
  uint32_t at = 0, blocks = 0;
  const auto flush = [&] {
    if (blocks > 0)
      concat_kernel<<<blocks, threads, 0, native(stream)>>>(some, static_cast<Unit*>(y.data()));
    some.count = 0;
    blocks = 0;
  };
  for (const Tensor& part : parts) {
    const uint32_t width = units(part.size(1)), count = units(part.numel());
    if (count > 0) {
      some.of[some.count++] = {part.data(), Divisor(width), count, at, blocks};
      blocks += ceil_div(count, threads * each<Unit>);
    }
    at += width;
    if (some.count == most_parts) flush();
  }
  flush();
  BS_CUDA_CHECK_LAUNCH("concat");
}

}  // namespace

void concat(std::span<const Tensor> parts, const Tensor& y, Stream stream) {
  switch (unit_of(parts, y)) {
    case 1:
      return launch<unsigned char>(parts, y, stream);
    case 2:
      return launch<unsigned short>(parts, y, stream);
    case 4:
      return launch<unsigned>(parts, y, stream);
    case 8:
      return launch<uint2>(parts, y, stream);
    default:
      return launch<uint4>(parts, y, stream);
  }
}

}  // namespace bs::cuda
