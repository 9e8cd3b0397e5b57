#include <bs/kernels/gather.h>
#include <bs/kernels/index_select.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/device/ptx/async_copy.cuh>
#include <bs/kernels/cuda/rows.cuh>

#include <cstring>
#include <limits>

namespace bs::cuda {

namespace {

constexpr int threads = 256;

/// Copies rows of `width` units; a unit is an element, or 16 bytes of them. Rows of indices outside
/// the table are filled with `absent`.
template <class Unit, class Index>
__global__ void gather_kernel(const Unit* x, const Index* indices, Unit* y, Unit absent,
                              int64_t rows, int64_t count, int64_t extent, int64_t width) {
  const int64_t step = int64_t{gridDim.x} * blockDim.y;
  for (int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; r < rows; r += step) {
    const int64_t index = indices[r % count];
    const bool inside = index >= 0 && index < extent;
    const Unit* from = x + (r / count * extent + index) * width;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
      y[r * width + i] = inside ? from[i] : absent;
  }
}

/// The same for rows of a few units, so for single elements along the last axis: a block holds
/// `held` of outer's matrices [extent, width] in shared memory, where reading here and there is
/// cheap, and a thread takes its place in [count, width] from all of them.
template <class Unit, class Index>
__global__ void __launch_bounds__(threads)
    gather_held_kernel(const Unit* x, const Index* indices, Unit* y, Unit absent, int64_t outer,
                       uint32_t held, uint32_t line, int64_t extent, uint32_t width) {
  extern __shared__ uint4 memory[];
  auto* const matrices = reinterpret_cast<Unit*>(memory);
  const auto size = static_cast<uint32_t>(extent) * width;
  for (int64_t first = int64_t{blockIdx.x} * held; first < outer;
       first += int64_t{gridDim.x} * held) {
    const auto n = static_cast<uint32_t>(outer - first < held ? outer - first : held);
#pragma unroll 8
    for (uint32_t e = threadIdx.x; e < n * size; e += threads) matrices[e] = x[first * size + e];
    __syncthreads();
#pragma unroll 2
    for (uint32_t e = threadIdx.x; e < line; e += threads) {
      const uint32_t k = width == 1 ? e : e / width;
      const int64_t index = indices[k];
      const bool inside = index >= 0 && index < extent;
      const uint32_t at = inside ? static_cast<uint32_t>(index) * width + e - k * width : 0;
#pragma unroll 4
      for (uint32_t o = 0; o < n; ++o)
        y[(first + o) * line + e] = inside ? matrices[o * size + at] : absent;
    }
    __syncthreads();
  }
}

/// Rows of n elements, of which `line` are selected: both whole packs of 16 bytes, n less than
/// 2^16.
template <class Unit>
struct SelectedRows {
  static constexpr int N = 16 / static_cast<int>(sizeof(Unit));
  static constexpr unsigned stages = 2;
  const Unit* x;
  Unit* y;
  Unit absent;
  int64_t rows;
  unsigned n, line;

  /// Of the rows and places that a block has in shared memory.
  unsigned bytes() const {
    return stages * n * static_cast<unsigned>(sizeof(Unit)) +
           line * static_cast<unsigned>(sizeof(uint16_t));
  }
};

/// The same for single elements of whole packs: a block takes row after row, the next of which is
/// on its way while one is read here and there in shared memory.
template <class Unit, class Index>
__global__ void __launch_bounds__(threads)
    gather_row_kernel(SelectedRows<Unit> selected, const Index* indices) {
  using Rows = SelectedRows<Unit>;
  constexpr int N = Rows::N;
  constexpr uint16_t none = 0xffff;
  extern __shared__ uint4 memory[];
  const unsigned row_packs = selected.n / N, line_packs = selected.line / N;
  auto* const places = reinterpret_cast<uint16_t*>(memory + Rows::stages * row_packs);
  const auto fetch = [&](int64_t row, unsigned stage) {
    const auto* from = reinterpret_cast<const uint4*>(selected.x) + row * row_packs;
    if (row < selected.rows)
      for (unsigned p = threadIdx.x; p < row_packs; p += threads)
        device::copy_async_16(memory + stage * row_packs + p, from + p, true);
    device::commit_copies();
  };
  fetch(blockIdx.x, 0);
  for (unsigned k = threadIdx.x; k < selected.line; k += threads) {
    const int64_t index = indices[k];
    places[k] = index >= 0 && index < selected.n ? static_cast<uint16_t>(index) : none;
  }
  unsigned stage = 0;
  for (int64_t row = blockIdx.x; row < selected.rows; row += gridDim.x, stage ^= 1) {
    fetch(row + gridDim.x, stage ^ 1);
    device::wait_copies<1>();
    __syncthreads();
    const auto* const from = reinterpret_cast<const Unit*>(memory + stage * row_packs);
    auto* const to = reinterpret_cast<device::Pack<Unit, N>*>(selected.y) + row * line_packs;
    for (unsigned p = threadIdx.x; p < line_packs; p += threads) {
      const auto at = reinterpret_cast<const device::Pack<uint16_t, N>*>(places)[p];
      device::Pack<Unit, N> pack;
#pragma unroll
      for (int i = 0; i < N; ++i) pack.at[i] = at.at[i] == none ? selected.absent : from[at.at[i]];
      to[p] = pack;
    }
    __syncthreads();
  }
}

/// Bytes of the value that stands for a missing element, over 16 bytes: NaN, 0 for integers.
uint4 absent_bits(DType dtype) {
  unsigned char bytes[16] = {};
  visit_any(dtype, [&]<class T>(Type<T>) {
    T value{};
    if constexpr (std::is_same_v<T, half>) {
      value = half(std::numeric_limits<float>::quiet_NaN());
    } else if constexpr (std::is_same_v<T, bfloat16>) {
      value = bfloat16(std::numeric_limits<float>::quiet_NaN());
    } else if constexpr (std::is_floating_point_v<T>) {
      value = std::numeric_limits<T>::quiet_NaN();
    }
    for (size_t at = 0; at < sizeof bytes; at += sizeof value)
      std::memcpy(bytes + at, &value, sizeof value);
  });
  uint4 bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

/// Selects elements of rows that a block has room for, and says whether they are such.
template <class Unit>
bool gather_rows(const Tensor& x, const Tensor& indices, const Tensor& y, Stream stream) {
  constexpr int64_t least_line = 128, longest_row = 0xffff, most_bytes = 48 << 10;
  using Rows = SelectedRows<Unit>;
  const int64_t n = x.size(1), line = y.size(1);
  const bool whole = aligned16(x, y) && (n | line) % Rows::N == 0;
  if (y.size(2) != 1 || !whole || line < least_line || n > longest_row || line > most_bytes)
    return false;
  const uint4 bits = absent_bits(x.dtype());
  Rows rows{static_cast<const Unit*>(x.data()), static_cast<Unit*>(y.data()), {}, y.size(0),
            static_cast<unsigned>(n),           static_cast<unsigned>(line)};
  std::memcpy(&rows.absent, &bits, sizeof rows.absent);
  const unsigned bytes = rows.bytes();
  if (bytes > most_bytes) return false;
  constexpr int most_resident = 2048 / threads, shared_bytes = 200 << 10;
  const int resident = std::min(most_resident, shared_bytes / static_cast<int>(bytes));
  visit_index("index_select", indices.dtype(), [&]<class Index>(Type<Index>) {
    gather_row_kernel<<<grid_size(rows.rows, 1, x.device(), resident), threads, bytes,
                        native(stream)>>>(rows, pointer<Index>(indices));
  });
  return true;
}

template <class Unit>
void gather(const Tensor& x, const Tensor& indices, const Tensor& y, Stream stream) {
  if constexpr (sizeof(Unit) < 16)
    if (gather_rows<Unit>(x, indices, y, stream)) return BS_CUDA_CHECK_LAUNCH("index_select");
  const int64_t width =
      y.size(2) * static_cast<int64_t>(size_of(x.dtype())) / static_cast<int64_t>(sizeof(Unit));
  const int64_t outer = y.size(0), rows = outer * y.size(1), line = y.size(1) * width;
  unsigned across = 1;
  while (across < threads && across < width) across *= 2;
  const dim3 block(across, threads / across);
  const uint4 bits = absent_bits(x.dtype());
  Unit absent;
  std::memcpy(&absent, &bits, sizeof absent);
  // Matrices that fit into shared memory a few at a time.
  constexpr int64_t narrow = 16, long_line = 128, most_bytes = 48 << 10;
  const int64_t matrix_bytes = x.size(1) * width * static_cast<int64_t>(sizeof(Unit));
  const int64_t held = std::min<int64_t>(8, most_bytes / std::max<int64_t>(matrix_bytes, 1));
  const bool holds = width < narrow && line >= long_line && outer > 1 && held > 0 &&
                     line <= std::numeric_limits<int32_t>::max();
  visit_index("index_select", indices.dtype(), [&]<class Index>(Type<Index>) {
    if (holds) {
      const unsigned blocks = grid_of("index_select", ceil_div(outer, held));
      gather_held_kernel<<<blocks, threads, static_cast<size_t>(held * matrix_bytes),
                           native(stream)>>>(
          static_cast<const Unit*>(x.data()), pointer<Index>(indices), static_cast<Unit*>(y.data()),
          absent, outer, static_cast<uint32_t>(held), static_cast<uint32_t>(line), x.size(1),
          static_cast<uint32_t>(width));
      return;
    }
    const unsigned blocks = grid_size(rows, static_cast<int>(block.y), x.device());
    gather_kernel<<<blocks, block, 0, native(stream)>>>(
        static_cast<const Unit*>(x.data()), pointer<Index>(indices), static_cast<Unit*>(y.data()),
        absent, rows, y.size(1), x.size(1), width);
  });
  BS_CUDA_CHECK_LAUNCH("index_select");
}

}  // namespace

void index_select(const Tensor& x, const Tensor& indices, const Tensor& y, const char*,
                  Stream stream) {
  // Single elements of one row: gather has several of a thread on their way.
  if (y.size(0) == 1 && y.size(2) == 1)
    return cuda::gather(x, indices.view({1, indices.numel(), 1}), y, stream);
  const auto bits = reinterpret_cast<uintptr_t>(x.data()) | reinterpret_cast<uintptr_t>(y.data()) |
                    static_cast<uintptr_t>(y.size(2)) * size_of(x.dtype());
  if (bits % 16 == 0) return gather<uint4>(x, indices, y, stream);
  switch (size_of(x.dtype())) {
    case 1:
      return gather<uint8_t>(x, indices, y, stream);
    case 2:
      return gather<uint16_t>(x, indices, y, stream);
    case 4:
      return gather<uint32_t>(x, indices, y, stream);
    default:
      return gather<uint64_t>(x, indices, y, stream);
  }
}

}  // namespace bs::cuda
