#include <bs/kernels/copy.h>
#include <bs/kernels/strided.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

namespace bs::cuda {

namespace {

template <class From, class To>
__device__ To convert(From value) {
  if constexpr (std::is_same_v<From, To>) {
    return value;
  } else if constexpr (std::is_same_v<To, __half> || std::is_same_v<To, __nv_bfloat16>) {
    return device::narrow<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<From, __half> || std::is_same_v<From, __nv_bfloat16>) {
    return static_cast<To>(device::widen(value));
  } else {
    return static_cast<To>(value);
  }
}

template <class From, class To>
__global__ void copy_kernel(const From* from, To* to, StridedLoop<2> loop, int64_t total) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < total; i += step) {
    int64_t rest = i;
    int64_t source = 0;
    int64_t target = 0;
    for (int axis = loop.rank - 1; axis >= 0; --axis) {
      const int64_t at = rest % loop.shape[axis];
      rest /= loop.shape[axis];
      source += at * loop.strides[0][axis];
      target += at * loop.strides[1][axis];
    }
    to[target] = convert<From, To>(from[source]);
  }
}

constexpr int tile = 64;

/// Elements (x, y) for x below nx, y below ny, of each matrix of a batch: `from` has neighbours in
/// y side by side, `to` those in x.
struct Turn {
  int64_t nx, ny, from_x, to_y;
  int64_t tiles_x, tiles_y;
  StridedLoop<2> batch;

  /// Where a square begins, and its matrix among those of the batch.
  struct Place {
    int64_t x0, y0, from, to;
  };
  __device__ Place place(int64_t t) const {
    const int64_t matrix = t / tiles_x / tiles_y;
    return {t % tiles_x * tile, t / tiles_x % tiles_y * tile, batch.offset(0, matrix),
            batch.offset(1, matrix)};
  }
};

/// Reads and writes whole lines of a square, which is turned in shared memory.
template <class T>
__global__ void __launch_bounds__(256) turn_kernel(const T* from, T* to, Turn turn, int64_t tiles) {
  __shared__ T square[tile][tile + 2];
  const int lane = static_cast<int>(threadIdx.x) % tile;
  const int line = static_cast<int>(threadIdx.x) / tile;
  constexpr int lines = 256 / tile;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const auto [x0, y0, at, there] = turn.place(t);
    const T* source = from + at;
    T* target = to + there;
#pragma unroll
    for (int i = line; i < tile; i += lines)
      if (x0 + i < turn.nx && y0 + lane < turn.ny)
        square[i][lane] = source[(x0 + i) * turn.from_x + y0 + lane];
    __syncthreads();
#pragma unroll
    for (int i = line; i < tile; i += lines)
      if (y0 + i < turn.ny && x0 + lane < turn.nx)
        target[(y0 + i) * turn.to_y + x0 + lane] = square[lane][i];
    __syncthreads();
  }
}

/// The same for elements of 16 bits whose lines lie at multiples of 8 elements: 16 bytes a thread
/// and access. A thread reads 8 elements of two lines and puts them down as 8 pairs, one for each
/// line of the result, of which groups of four pairs are exchanged so that no two threads meet in a
/// bank.
__global__ void __launch_bounds__(256)
    turn_pairs_kernel(const uint16_t* from, uint16_t* to, Turn turn, int64_t tiles) {
  __shared__ alignas(16) uint32_t square[tile][tile / 2];
  const int low = static_cast<int>(threadIdx.x) % 8, high = static_cast<int>(threadIdx.x) / 8;
  const auto pairs = [&](int y, int x) { return &square[y][((x / 4) ^ (y / 8 % 8)) * 4 + x % 4]; };
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const auto [x0, y0, at, there] = turn.place(t);
    const uint16_t* source = from + at;
    uint16_t* target = to + there;
    const int64_t x = x0 + 2 * high, y = y0 + 8 * low;
    if (x < turn.nx && y < turn.ny) {
      const uint4 first = *reinterpret_cast<const uint4*>(source + x * turn.from_x + y);
      const uint4 second = *reinterpret_cast<const uint4*>(source + (x + 1) * turn.from_x + y);
      const uint32_t a[4] = {first.x, first.y, first.z, first.w};
      const uint32_t b[4] = {second.x, second.y, second.z, second.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        *pairs(8 * low + 2 * i, high) = __byte_perm(a[i], b[i], 0x5410);
        *pairs(8 * low + 2 * i + 1, high) = __byte_perm(a[i], b[i], 0x7632);
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = high; i < tile; i += 32)
      if (y0 + i < turn.ny && x0 + 8 * low < turn.nx)
        *reinterpret_cast<uint4*>(target + (y0 + i) * turn.to_y + x0 + 8 * low) =
            *reinterpret_cast<const uint4*>(pairs(i, 4 * low));
    __syncthreads();
  }
}

/// The loop as matrices to be turned, where it is that and they are larger than a few lines.
bool find_turn(const StridedLoop<2>& loop, Turn& turn) {
  const int x = loop.rank - 1;
  int y = -1;
  for (int axis = 0; axis < x; ++axis)
    if (loop.strides[0][axis] == 1) y = axis;
  if (y < 0 || loop.strides[1][x] != 1 || loop.strides[0][x] == 1) return false;
  if (loop.shape[x] < 16 || loop.shape[y] < 16) return false;
  turn.nx = loop.shape[x];
  turn.ny = loop.shape[y];
  turn.from_x = loop.strides[0][x];
  turn.to_y = loop.strides[1][y];
  turn.tiles_x = ceil_div(turn.nx, tile);
  turn.tiles_y = ceil_div(turn.ny, tile);
  turn.batch = loop;
  turn.batch.shape[x] = turn.batch.shape[y] = 1;
  return true;
}

/// Whether all lines of both lie at multiples of 16 bytes, for elements of 2.
bool lines_aligned(const Tensor& from, const Tensor& to, const Turn& turn) {
  int64_t all = turn.nx | turn.ny | turn.from_x | turn.to_y;
  for (int axis = 0; axis < turn.batch.rank; ++axis)
    if (turn.batch.shape[axis] > 1)
      all |= turn.batch.strides[0][axis] | turn.batch.strides[1][axis];
  return all % 8 == 0 && reinterpret_cast<uintptr_t>(from.data()) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(to.data()) % 16 == 0;
}

template <class T>
void launch_turn(const Tensor& from, const Tensor& to, const Turn& turn, Stream stream) {
  const int64_t tiles = turn.tiles_x * turn.tiles_y * turn.batch.numel();
  const unsigned grid = grid_size(tiles, 1, to.device(), 64);
  if (sizeof(T) == 2 && lines_aligned(from, to, turn)) {
    turn_pairs_kernel<<<grid, 256, 0, native(stream)>>>(
        static_cast<const uint16_t*>(from.data()), static_cast<uint16_t*>(to.data()), turn, tiles);
    return;
  }
  turn_kernel<<<grid, 256, 0, native(stream)>>>(pointer<T>(from), pointer<T>(to), turn, tiles);
}

}  // namespace

void copy(const Tensor& from, const Tensor& to, Stream stream) {
  constexpr int threads = 256;
  const StridedLoop<2> loop(from.shape(), {from.strides(), to.strides()});
  if (Turn turn; from.dtype() == to.dtype() && find_turn(loop, turn)) {
    visit_any(from.dtype(), [&]<class T>(Type<T>) { launch_turn<T>(from, to, turn, stream); });
    BS_CUDA_CHECK_LAUNCH("copy");
    return;
  }
  const int64_t total = loop.numel();
  visit_any(from.dtype(), [&]<class From>(Type<From>) {
    visit_any(to.dtype(), [&]<class To>(Type<To>) {
      copy_kernel<<<grid_size(total, threads, to.device()), threads, 0, native(stream)>>>(
          pointer<From>(from), pointer<To>(to), loop, total);
    });
  });
  BS_CUDA_CHECK_LAUNCH("copy");
}

}  // namespace bs::cuda
