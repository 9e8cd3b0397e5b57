#include <bs/kernels/gather.h>
#include <bs/kernels/index_select.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/device/ptx/async_copy.cuh>
#include <bs/kernels/cuda/rows.cuh>
#include <bs/kernels/cuda/unit_pack.cuh>
#include <bs/kernels/cuda/walk.cuh>

#include <cstring>
#include <limits>

namespace bs::cuda {

namespace {

constexpr int threads = 256;

/// Rows of units: `count` of them are selected of each of some matrices, whose rows are longer
/// where a launch takes a part of them.
struct SelectedUnits {
  Divisor width, count;
  int64_t pitch;         ///< from row to row
  int64_t extent, line;  ///< rows of a matrix of x and of y
  uint32_t units = 0;    ///< of the launch
};

/// A thread U times K units that lie side by side in y. All indices are asked for before the first
/// is used, and all units before the first is stored. Rows of indices outside the table are filled
/// with `absent`.
template <class Unit, int K, int U, class Index>
__global__ void __launch_bounds__(threads)
    gather_kernel(const Unit* x, const Index* indices, Unit* y, Unit absent,
                  const __grid_constant__ SelectedUnits s) {
  const uint32_t first = (blockIdx.x * (threads * U) + threadIdx.x) * K;
  int64_t index[U][K];
  uint32_t of[U][K], at[U][K], place[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const uint32_t unit = first + u * threads * K;
    uint32_t row = s.width.divide(unit);
    at[u][0] = unit - row * s.width.number;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      of[u][k] = s.count.divide(row);
      const uint32_t number = row - of[u][k] * s.count.number;
      if (k == 0) place[u] = number;
      index[u][k] = -1;
      if (unit + k < s.units) index[u][k] = indices[number];
      if (k + 1 < K) {
        const bool ends = at[u][k] + 1 == s.width.number;
        at[u][k + 1] = ends ? 0 : at[u][k] + 1;
        row += ends;
      }
    }
  }
  device::Pack<Unit, K> made[U];
#pragma unroll
  for (int u = 0; u < U; ++u)
#pragma unroll
    for (int k = 0; k < K; ++k) {
      made[u].at[k] = absent;
      if (index[u][k] >= 0 && index[u][k] < s.extent)
        made[u].at[k] = __ldg(x + (of[u][k] * s.extent + index[u][k]) * s.pitch + at[u][k]);
    }
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const uint32_t unit = first + u * threads * K;
    if (unit >= s.units) continue;
    Unit* const to = K == 1 ? y + ((of[u][0] * s.line + place[u]) * s.pitch + at[u][0]) : y + unit;
    store_units<Unit, K>(to, made[u], s.units - unit);
  }
}

/// The same for rows of one matrix that are shorter than what a thread stores at once. Neighbouring
/// threads have neighbouring units, for all of a row lie in a sector or two, which a warp then asks
/// for once.
template <class Unit, int U, class Index>
__global__ void __launch_bounds__(threads)
    gather_narrow_kernel(const Unit* x, const Index* indices, Unit* y, Unit absent, Divisor width,
                         uint32_t units, int64_t extent) {
  const uint32_t first = blockIdx.x * (threads * U) + threadIdx.x;
  int64_t index[U];
  uint32_t at[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    const uint32_t unit = first + u * threads, row = width.divide(unit);
    at[u] = unit - row * width.number;
    index[u] = -1;
    if (unit < units) index[u] = indices[row];
  }
  Unit made[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    made[u] = absent;
    if (index[u] >= 0 && index[u] < extent) made[u] = __ldg(x + index[u] * width.number + at[u]);
  }
#pragma unroll
  for (int u = 0; u < U; ++u)
    if (const uint32_t unit = first + u * threads; unit < units) y[unit] = made[u];
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
bool gather_rows(const Tensor& x, const Tensor& indices, const Tensor& y, Unit absent,
                 Stream stream) {
  constexpr int64_t least_line = 128, longest_row = 0xffff, most_bytes = 48 << 10;
  using Rows = SelectedRows<Unit>;
  const int64_t n = x.size(1), line = y.size(1);
  const bool whole = aligned16(x, y) && (n | line) % Rows::N == 0;
  if (y.size(2) != 1 || !whole || line < least_line || n > longest_row || line > most_bytes)
    return false;
  const Rows rows{
      static_cast<const Unit*>(x.data()), static_cast<Unit*>(y.data()), absent, y.size(0),
      static_cast<unsigned>(n),           static_cast<unsigned>(line)};
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

/// Selects rows of a few units from matrices that fit into shared memory a few at a time, and says
/// whether they are such. `width` is in units.
template <class Unit>
bool gather_held(const Tensor& x, const Tensor& indices, const Tensor& y, int64_t width,
                 Unit absent, Stream stream) {
  constexpr int64_t narrow = 16, long_line = 128, most_bytes = 48 << 10;
  const int64_t outer = y.size(0), line = y.size(1) * width;
  const int64_t matrix_bytes = x.size(1) * width * static_cast<int64_t>(sizeof(Unit));
  const int64_t held = std::min<int64_t>(8, most_bytes / std::max<int64_t>(matrix_bytes, 1));
  if (width >= narrow || line < long_line || outer == 1 || held == 0 ||
      line > std::numeric_limits<int32_t>::max())
    return false;
  const unsigned blocks = grid_of("index_select", ceil_div(outer, held));
  visit_index("index_select", indices.dtype(), [&]<class Index>(Type<Index>) {
    gather_held_kernel<<<blocks, threads, static_cast<size_t>(held * matrix_bytes),
                         native(stream)>>>(
        static_cast<const Unit*>(x.data()), pointer<Index>(indices), static_cast<Unit*>(y.data()),
        absent, outer, static_cast<uint32_t>(held), static_cast<uint32_t>(line), x.size(1),
        static_cast<uint32_t>(width));
  });
  return true;
}

/// Selects rows of one matrix that are shorter than a pack, and says whether they are such. Single
/// units are none: a row of one has nothing to share.
template <class Unit>
bool gather_narrow(const Tensor& x, const Tensor& indices, const Tensor& y, int64_t width,
                   Unit absent, Stream stream) {
  constexpr int64_t most = int64_t{1} << 30;
  constexpr int64_t packed = std::min(device::pack_size<Unit>, 8);
  const int64_t units = y.size(1) * width;
  if (y.size(0) != 1 || width < 2 || width >= packed || units > most) return false;
  constexpr int U = 4;
  visit_index("index_select", indices.dtype(), [&]<class Index>(Type<Index>) {
    gather_narrow_kernel<Unit, U>
        <<<static_cast<unsigned>(ceil_div(units, threads * U)), threads, 0, native(stream)>>>(
            static_cast<const Unit*>(x.data()), pointer<Index>(indices),
            static_cast<Unit*>(y.data()), absent, Divisor(width), static_cast<uint32_t>(units),
            x.size(1));
  });
  return true;
}

/// Selects rows of any width in launches of so many units as 32 bits number.
template <class Unit>
void gather_units(const Tensor& x, const Tensor& indices, const Tensor& y, int64_t width,
                  Unit absent, Stream stream) {
  constexpr int64_t most = int64_t{1} << 30;
  constexpr int packed = std::min(device::pack_size<Unit>, 8);
  const int64_t outer = y.size(0), line = y.size(1), extent = x.size(1);
  const int64_t columns = std::min(width, most);
  const int64_t rows = std::min(line, std::max<int64_t>(most / width, 1));
  const int64_t matrices = std::min(outer, std::max<int64_t>(most / width / line, 1));
  const bool whole = columns == width && rows == line && matrices == outer && aligned16(y);
  const auto run = [&]<int K>(std::integral_constant<int, K>, int64_t o, int64_t r, int64_t c) {
    constexpr int U = K == 1 ? 2 : 1;
    SelectedUnits s{.width = Divisor(std::min(columns, width - c)),
                    .count = Divisor(std::min(rows, line - r)),
                    .pitch = width,
                    .extent = extent,
                    .line = line};
    s.units =
        s.width.number * s.count.number * static_cast<uint32_t>(std::min(matrices, outer - o));
    visit_index("index_select", indices.dtype(), [&]<class Index>(Type<Index>) {
      gather_kernel<Unit, K, U><<<static_cast<unsigned>(ceil_div(s.units, threads * K * U)),
                                  threads, 0, native(stream)>>>(
          static_cast<const Unit*>(x.data()) + o * extent * width + c, pointer<Index>(indices) + r,
          static_cast<Unit*>(y.data()) + (o * line + r) * width + c, absent, s);
    });
  };
  if (whole) return run(std::integral_constant<int, packed>{}, 0, 0, 0);
  for (int64_t o = 0; o < outer; o += matrices)
    for (int64_t r = 0; r < line; r += rows)
      for (int64_t c = 0; c < width; c += columns) run(std::integral_constant<int, 1>{}, o, r, c);
}

template <class Unit>
void gather(const Tensor& x, const Tensor& indices, const Tensor& y, Stream stream) {
  const int64_t width =
      y.size(2) * static_cast<int64_t>(size_of(x.dtype())) / static_cast<int64_t>(sizeof(Unit));
  const uint4 bits = absent_bits(x.dtype());
  Unit absent;
  std::memcpy(&absent, &bits, sizeof absent);
  if constexpr (sizeof(Unit) < 16)
    if (gather_rows<Unit>(x, indices, y, absent, stream))
      return BS_CUDA_CHECK_LAUNCH("index_select");
  if (!gather_held(x, indices, y, width, absent, stream) &&
      !gather_narrow(x, indices, y, width, absent, stream))
    gather_units(x, indices, y, width, absent, stream);
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
  visit_unit(bits, [&]<class Unit>(Type<Unit>) { gather<Unit>(x, indices, y, stream); });
}

}  // namespace bs::cuda
