#include <bs/kernels/concat_rows.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/unit_pack.cuh>
#include <bs/kernels/cuda/walk.cuh>

#include <algorithm>
#include <limits>
#include <vector>

namespace bs::cuda {

namespace {

constexpr int threads = 256;

/// Rows of units, which stand from unit `at` of each row of the result on.
struct Part {
  const void* from = nullptr;
  uint32_t width = 0, at = std::numeric_limits<uint32_t>::max();
};

/// Parts side by side, which are all columns of the result or some, from unit `at` of its rows on.
template <int most>
struct Parts {
  Part of[most];
  int count = 0;
  uint32_t row_width = 0, at = 0;  ///< of the result
  Divisor width;                   ///< of the parts together
};
constexpr int few_parts = 4, most_parts = 64;

/// The part of a column. A few are chosen among by conditions: their fields come with the
/// instructions, and a load that waits for a number of a part would cost a short launch more.
template <int most>
__device__ Part part_of(const Part* of, int count, uint32_t column) {
  if constexpr (most <= few_parts) {
    Part part = of[0];
#pragma unroll
    for (int p = 1; p < most; ++p)
      if (column >= of[p].at) part = of[p];
    return part;
  } else {
    int p = 0;
#pragma unroll
    for (int step = most / 2; step > 0; step /= 2)
      if (p + step < count && column >= of[p + step].at) p += step;
    return of[p];
  }
}

/// A thread K units of the result that lie side by side, 16 bytes of it, or 8 of single bytes,
/// where all of its columns are there.
template <class Unit, int K, int most>
__global__ void __launch_bounds__(threads)
    concat_kernel(const __grid_constant__ Parts<most> parts, Unit* y, uint32_t count) {
  const Part* of = parts.of;
  if constexpr (most > few_parts) {
    __shared__ Part held[most];
    if (threadIdx.x < parts.count) held[threadIdx.x] = parts.of[threadIdx.x];
    __syncthreads();
    of = held;
  }
  const uint32_t first = (blockIdx.x * threads + threadIdx.x) * K;
  if (first >= count) return;
  uint32_t row = parts.width.divide(first), column = first - row * parts.width.number;
  Unit* const to = K == 1 ? y + (row * parts.row_width + parts.at + column) : y + first;
  device::Pack<Unit, K> made;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const Part part = part_of<most>(of, parts.count, column);
    const auto* const from = static_cast<const Unit*>(part.from);
    if (first + k < count) made.at[k] = __ldg(from + (row * part.width + (column - part.at)));
    if (++column == parts.width.number) {
      column = 0;
      ++row;
    }
  }
  store_units<Unit, K>(to, made, count - first);
}

/// Two parts of one column, whose units stand in turns: a thread K of the result, of which each
/// part has half, side by side.
template <class Unit, int K>
__global__ void __launch_bounds__(threads)
    concat_columns_kernel(const Unit* a, const Unit* b, Unit* y, uint32_t count) {
  const uint32_t first = (blockIdx.x * threads + threadIdx.x) * K;
  if (first + K <= count) {
    using Half = device::Pack<Unit, K / 2>;
    const Half of_a = *reinterpret_cast<const Half*>(a + first / 2);
    const Half of_b = *reinterpret_cast<const Half*>(b + first / 2);
    device::Pack<Unit, K> made;
#pragma unroll
    for (int k = 0; k < K; ++k) made.at[k] = (k % 2 == 0 ? of_a : of_b).at[k / 2];
    *reinterpret_cast<device::Pack<Unit, K>*>(y + first) = made;
  } else {
    for (uint32_t i = first; i < count; ++i) y[i] = (i % 2 == 0 ? a : b)[i / 2];
  }
}

/// Units of a row.
template <class Unit>
uint32_t units_of(const Tensor& t) {
  return static_cast<uint32_t>(static_cast<size_t>(t.size(1)) * size_of(t.dtype()) / sizeof(Unit));
}

/// A launch for `parts`, which begin at unit `at` of rows of `row_width`.
template <class Unit, int K, int most>
void launch(std::span<const Tensor> parts, uint32_t at, uint32_t row_width, const Tensor& y,
            Stream stream) {
  Parts<most> some;
  some.row_width = row_width;
  some.at = at;
  uint32_t width = 0;
  for (const Tensor& part : parts) {
    some.of[some.count++] = {part.data(), units_of<Unit>(part), width};
    width += units_of<Unit>(part);
  }
  some.width = Divisor(width);
  const auto count = width * static_cast<uint32_t>(y.size(0));
  concat_kernel<Unit, K, most>
      <<<static_cast<unsigned>(ceil_div(count, threads * K)), threads, 0, native(stream)>>>(
          some, static_cast<Unit*>(y.data()), count);
  BS_CUDA_CHECK_LAUNCH("concat");
}

/// Joins two columns, where both begin at halves of the packs of K; says whether they are such.
template <class Unit, int K>
bool concat_columns(std::span<const Tensor> parts, const Tensor& y, Stream stream) {
  if constexpr (K == 1) {
    return false;
  } else {
    const auto fits = [](const Tensor& part) {
      return units_of<Unit>(part) == 1 &&
             reinterpret_cast<uintptr_t>(part.data()) % (sizeof(Unit) * K / 2) == 0;
    };
    if (parts.size() != 2 || !fits(parts[0]) || !fits(parts[1])) return false;
    const auto count = 2 * static_cast<uint32_t>(y.size(0));
    concat_columns_kernel<Unit, K>
        <<<static_cast<unsigned>(ceil_div(count, threads * K)), threads, 0, native(stream)>>>(
            static_cast<const Unit*>(parts[0].data()), static_cast<const Unit*>(parts[1].data()),
            static_cast<Unit*>(y.data()), count);
    BS_CUDA_CHECK_LAUNCH("concat");
    return true;
  }
}

template <class Unit>
void concat_units(std::span<const Tensor> parts, const Tensor& y, Stream stream) {
  constexpr int K = std::min(device::pack_size<Unit>, 8);
  const uint32_t row_width = units_of<Unit>(y);
  if (reinterpret_cast<uintptr_t>(y.data()) % 16 == 0) {
    if (concat_columns<Unit, K>(parts, y, stream)) return;
    if (parts.size() <= 2) return launch<Unit, K, 2>(parts, 0, row_width, y, stream);
    if (parts.size() <= few_parts)
      return launch<Unit, K, few_parts>(parts, 0, row_width, y, stream);
    if (parts.size() <= most_parts)
      return launch<Unit, K, most_parts>(parts, 0, row_width, y, stream);
  }
  uint32_t at = 0;
  while (!parts.empty()) {
    const auto some = parts.first(std::min<size_t>(parts.size(), most_parts));
    launch<Unit, 1, most_parts>(some, at, row_width, y, stream);
    for (const Tensor& part : some) at += units_of<Unit>(part);
    parts = parts.subspan(some.size());
  }
}

}  // namespace

void concat(std::span<const Tensor> all, const Tensor& y, Stream stream) {
  const auto row_bytes = [&](const Tensor& t) {
    return static_cast<uint64_t>(t.size(1)) * size_of(y.dtype());
  };
  std::vector<Tensor> parts;
  uint64_t bits = reinterpret_cast<uintptr_t>(y.data()) | row_bytes(y);
  for (const Tensor& part : all) {
    if (part.numel() == 0) continue;
    parts.push_back(part);
    bits |= reinterpret_cast<uintptr_t>(part.data()) | row_bytes(part);
  }
  visit_unit(bits, [&]<class Unit>(Type<Unit>) { concat_units<Unit>(parts, y, stream); });
}

}  // namespace bs::cuda
