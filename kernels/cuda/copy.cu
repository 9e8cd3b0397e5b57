#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/elementwise.cuh>

namespace bs::cuda {

namespace {

/// Elements as they are, and conversions between what elements are computed in.
template <class W>
struct Identity {
  __device__ W operator()(W x) const { return x; }
};
template <class W>
struct Convert {
  template <class V>
  __device__ W operator()(V x) const {
    return static_cast<W>(x);
  }
};

constexpr int tile = 64;

/// Elements (x, y) for x below nx, y below ny, of each matrix of a batch: `from` has neighbours in
/// y side by side, `to` those in x. Either may stand for several axes.
struct Turn {
  uint32_t nx, ny;
  Divisor tiles_x, tiles_y;
  uint32_t tiles;
  Walk<1> from_x, to_y;  ///< where a line x begins in `from`, and a line y in `to`
  Walk<2> batch;

  struct Place {
    int32_t from, to;
    uint32_t x, y;
  };
  __device__ Place place(uint32_t t) const {
    const uint32_t line = tiles_x.divide(t), matrix = tiles_y.divide(line);
    int32_t at[2];
    batch.locate(matrix, at);
    return {at[0], at[1], (t - line * tiles_x.number) * tile,
            (line - matrix * tiles_y.number) * tile};
  }
  static __device__ int32_t line(const Walk<1>& lines, uint32_t i) {
    int32_t at[1];
    lines.locate(i, at);
    return at[0];
  }
};

/// Reads and writes whole lines of a square, which is turned in shared memory.
template <class T>
__global__ void __launch_bounds__(256)
    turn_kernel(const T* from, T* to, const __grid_constant__ Turn turn) {
  __shared__ T square[tile][tile + 4 / sizeof(T) + (sizeof(T) > 4)];
  const unsigned lane = threadIdx.x % tile, first = threadIdx.x / tile;
  constexpr unsigned lines = 256 / tile;
  const auto [at, there, x0, y0] = turn.place(blockIdx.x);
#pragma unroll 4
  for (unsigned i = first; i < tile; i += lines)
    if (x0 + i < turn.nx && y0 + lane < turn.ny)
      square[i][lane] = from[at + Turn::line(turn.from_x, x0 + i) + static_cast<int>(y0 + lane)];
  __syncthreads();
#pragma unroll 4
  for (unsigned i = first; i < tile; i += lines)
    if (y0 + i < turn.ny && x0 + lane < turn.nx)
      to[there + Turn::line(turn.to_y, y0 + i) + static_cast<int>(x0 + lane)] = square[lane][i];
}

/// The same for elements of 16 bits whose lines lie at multiples of 8 elements: 16 bytes a thread
/// and access. A thread reads 8 elements of two lines and puts them down as 8 pairs, one for each
/// line of the result, of which groups of four pairs are exchanged so that no two threads meet in a
/// bank.
__global__ void __launch_bounds__(256)
    turn_vectors_kernel(const uint16_t* from, uint16_t* to, const __grid_constant__ Turn turn) {
  __shared__ alignas(16) uint32_t square[tile][tile / 2];
  const unsigned low = threadIdx.x % 8, high = threadIdx.x / 8;
  const auto pairs = [&](unsigned y, unsigned x) {
    return &square[y][((x / 4) ^ (y / 8 % 8)) * 4 + x % 4];
  };
  const auto [at, there, x0, y0] = turn.place(blockIdx.x);
  const uint32_t x = x0 + 2 * high, y = y0 + 8 * low;
  if (x < turn.nx && y < turn.ny) {
    const uint16_t* source = from + at + static_cast<int>(y);
    const uint4 first = *reinterpret_cast<const uint4*>(source + Turn::line(turn.from_x, x));
    const uint4 second = *reinterpret_cast<const uint4*>(source + Turn::line(turn.from_x, x + 1));
    const uint32_t a[4] = {first.x, first.y, first.z, first.w};
    const uint32_t b[4] = {second.x, second.y, second.z, second.w};
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      *pairs(8 * low + 2 * i, high) = __byte_perm(a[i], b[i], 0x5410);
      *pairs(8 * low + 2 * i + 1, high) = __byte_perm(a[i], b[i], 0x7632);
    }
  }
  __syncthreads();
#pragma unroll
  for (unsigned i = high; i < tile; i += 32)
    if (y0 + i < turn.ny && x0 + 8 * low < turn.nx)
      *reinterpret_cast<uint4*>(to + there + Turn::line(turn.to_y, y0 + i) +
                                static_cast<int>(x0 + 8 * low)) =
          *reinterpret_cast<const uint4*>(pairs(i, 4 * low));
}

/// For elements of 32 bits at multiples of 4: groups of four are exchanged likewise.
__global__ void __launch_bounds__(256)
    turn_vectors_kernel(const int* from, int* to, const __grid_constant__ Turn turn) {
  __shared__ alignas(16) int square[tile][tile];
  const auto element = [&](unsigned y, unsigned x) {
    return &square[y][((x / 4) ^ (y / 4)) * 4 + x % 4];
  };
  const auto [at, there, x0, y0] = turn.place(blockIdx.x);
  int4 in[4];
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const uint32_t x = x0 + threadIdx.x / 8 + i / 2 * 32,
                   y = y0 + 4 * (threadIdx.x % 8 + i % 2 * 8);
    if (x < turn.nx && y < turn.ny)
      in[i] = *reinterpret_cast<const int4*>(from + at + Turn::line(turn.from_x, x) +
                                             static_cast<int>(y));
  }
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned x = threadIdx.x / 8 + i / 2 * 32, y = 4 * (threadIdx.x % 8 + i % 2 * 8);
    *element(y, x) = in[i].x;
    *element(y + 1, x) = in[i].y;
    *element(y + 2, x) = in[i].z;
    *element(y + 3, x) = in[i].w;
  }
  __syncthreads();
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned x = threadIdx.x % 16 * 4, y = threadIdx.x / 16 + 16 * i;
    if (x0 + x < turn.nx && y0 + y < turn.ny)
      *reinterpret_cast<int4*>(to + there + Turn::line(turn.to_y, y0 + y) +
                               static_cast<int>(x0 + x)) =
          *reinterpret_cast<const int4*>(element(y, x));
  }
}

/// Turns and converts: elements wait as f32 in groups of four, exchanged likewise. Lines of both
/// lie at multiples of 8 elements.
template <class To, class From>
__global__ void __launch_bounds__(256)
    turn_and_convert_kernel(const From* from, To* to, const __grid_constant__ Turn turn) {
  constexpr unsigned read = device::pack_size<From>, written = device::pack_size<To>;
  constexpr unsigned wide_steps = tile / (8 * read);
  __shared__ alignas(16) float square[tile][tile];
  const auto group = [&](unsigned y, unsigned four) {
    return &square[y][((four ^ (y / read)) % (tile / 4)) * 4];
  };
  const unsigned low = threadIdx.x % 8, high = threadIdx.x / 8;
  const auto [at, there, x0, y0] = turn.place(blockIdx.x);
  device::Raw<From, read> in[2][wide_steps];
#pragma unroll
  for (unsigned i = 0; i < 2; ++i)
#pragma unroll
    for (unsigned j = 0; j < wide_steps; ++j) {
      const uint32_t x = x0 + high + 32 * i, y = y0 + read * (low + 8 * j);
      if (x < turn.nx && y < turn.ny)
        in[i][j] = *reinterpret_cast<const device::Raw<From, read>*>(
            from + at + Turn::line(turn.from_x, x) + static_cast<int>(y));
    }
#pragma unroll
  for (unsigned i = 0; i < 2; ++i)
#pragma unroll
    for (unsigned j = 0; j < wide_steps; ++j) {
      const unsigned x = high + 32 * i, y = read * (low + 8 * j);
      float values[read];
      device::widen_pack<From, read>(in[i][j], values);
#pragma unroll
      for (unsigned k = 0; k < read; ++k) group(y + k, x / 4)[x % 4] = values[k];
    }
  __syncthreads();
  constexpr unsigned lanes = tile / written;
#pragma unroll
  for (unsigned i = 0; i < tile; i += 256 / lanes) {
    const unsigned x = threadIdx.x % lanes * written, y = threadIdx.x / lanes + i;
    if (x0 + x >= turn.nx || y0 + y >= turn.ny) continue;
    float values[written];
#pragma unroll
    for (unsigned k = 0; k < written; k += 4)
      *reinterpret_cast<float4*>(values + k) =
          *reinterpret_cast<const float4*>(group(y, (x + k) / 4));
    *reinterpret_cast<device::Pack<To, written>*>(to + there + Turn::line(turn.to_y, y0 + y) +
                                                  static_cast<int>(x0 + x)) =
        device::narrow_pack<To, written>(values);
  }
}

/// Some axes of a loop over `from` and `to`, outermost first.
struct AxesOf {
  const StridedLoop<2>& loop;
  StridedLoop<2> some{};

  explicit AxesOf(const StridedLoop<2>& from) : loop(from) {}
  void push_front(int axis) {
    for (int i = some.rank++; i > 0; --i) {
      some.shape[i] = some.shape[i - 1];
      for (auto& strides : some.strides) strides[i] = strides[i - 1];
    }
    some.shape[0] = loop.shape[axis];
    for (int n = 0; n < 2; ++n) some.strides[n][0] = loop.strides[n][axis];
  }
  /// One tensor's steps alone.
  Walk<1> walk(int n) const {
    StridedLoop<1> one;
    one.rank = some.rank;
    for (int i = 0; i < some.rank; ++i) {
      one.shape[i] = some.shape[i];
      one.strides[0][i] = some.strides[n][i];
    }
    return {one, 1};
  }
};

/// The loop as matrices to be turned, where it is that and they are larger than a few lines. Lines
/// go on over as many axes as lie side by side, until they are as long as a tile.
bool find_turn(const StridedLoop<2>& loop, Turn& turn) {
  constexpr int64_t least = 16;
  AxesOf x(loop), y(loop), batch(loop);
  bool taken[Dims::max_rank] = {};
  const auto take = [&](AxesOf& axes, int axis) {
    axes.push_front(axis);
    taken[axis] = true;
  };
  // Axis of stride `step` in tensor n that is free, and neither a line of the other's nor repeated.
  const auto next = [&](int n, int64_t step) {
    for (int axis = loop.rank - 1; axis >= 0; --axis)
      if (!taken[axis] && loop.strides[n][axis] == step && loop.strides[1 - n][axis] > 1)
        return axis;
    return -1;
  };
  for (int axis; x.some.numel() < tile && (axis = next(1, x.some.numel())) >= 0;) take(x, axis);
  for (int axis; y.some.numel() < tile && (axis = next(0, y.some.numel())) >= 0;) take(y, axis);
  if (x.some.numel() < least || y.some.numel() < least) return false;
  for (int axis = loop.rank - 1; axis >= 0; --axis)
    if (!taken[axis]) batch.push_front(axis);
  if (batch.some.rank == 0) {
    batch.some.rank = 1;
    batch.some.shape[0] = 1;
  }
  const int64_t tiles_x = ceil_div(x.some.numel(), tile), tiles_y = ceil_div(y.some.numel(), tile);
  turn = {static_cast<uint32_t>(x.some.numel()),
          static_cast<uint32_t>(y.some.numel()),
          Divisor(tiles_x),
          Divisor(tiles_y),
          static_cast<uint32_t>(tiles_x * tiles_y * batch.some.numel()),
          x.walk(0),
          y.walk(1),
          Walk<2>(batch.some, 1)};
  return true;
}

/// Whether all lines of both lie at multiples of `vector` elements of 16 bytes together.
bool lines_aligned(const Turn& turn, int vector, const void* from, const void* to) {
  int64_t all = turn.nx | turn.ny;
  for (int i = 0; i < turn.from_x.rank; ++i) all |= turn.from_x.step[i][0];
  for (int i = 0; i < turn.to_y.rank; ++i) all |= turn.to_y.step[i][0];
  for (int i = 0; i < turn.batch.rank; ++i) all |= turn.batch.step[i][0] | turn.batch.step[i][1];
  return all % vector == 0 &&
         (reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % 16 == 0;
}

/// Copies elements of one type, or of one size.
template <class T>
void copy_elements(const StridedLoop<2>& loop, const T* from, T* to, Stream stream) {
  Turn turn;
  if (!find_turn(loop, turn)) {
    StridedLoop<2> swapped = loop;  // the result comes first
    std::swap(swapped.strides[0], swapped.strides[1]);
    const Source<T> source{from, {}, false};
    return detail::launch_part(Identity<device::wide<T>>{}, swapped, to, stream, source);
  }
  if constexpr (sizeof(T) == 2 || sizeof(T) == 4) {
    if (lines_aligned(turn, 16 / sizeof(T), from, to)) {
      turn_vectors_kernel<<<turn.tiles, 256, 0, native(stream)>>>(from, to, turn);
      return;
    }
  }
  turn_kernel<<<turn.tiles, 256, 0, native(stream)>>>(from, to, turn);
}

template <class T>
void copy_alike(const Tensor& from, const Tensor& to, Stream stream) {
  const auto loop = ordered_loop<2>(from.shape(), {to.strides(), from.strides()});
  for_each_part(loop, {}, [&](const StridedLoop<2>& part, const Offsets<2>& at) {
    StridedLoop<2> turned = part;
    std::swap(turned.strides[0], turned.strides[1]);
    copy_elements(turned, static_cast<const T*>(from.data()) + at[1],
                  static_cast<T*>(to.data()) + at[0], stream);
  });
  BS_CUDA_CHECK_LAUNCH("copy");
}

void copy_alike(const Tensor& from, const Tensor& to, Stream stream) {
  switch (size_of(from.dtype())) {
    case 1:
      return copy_alike<unsigned char>(from, to, stream);
    case 2:
      return copy_alike<unsigned short>(from, to, stream);
    case 4:
      return copy_alike<int>(from, to, stream);
    default:
      return copy_alike<long>(from, to, stream);
  }
}

/// Between floating dtypes of up to 32 bits: says whether the tensors are matrices to be turned,
/// and then has.
bool turn_and_convert(const Tensor& from, const Tensor& to, Stream stream) {
  const auto narrow = [](DType dtype) { return dtype == f32 || dtype == f16 || dtype == bf16; };
  if (!narrow(from.dtype()) || !narrow(to.dtype())) return false;
  const StridedLoop<2> loop = ordered_loop<2>(from.shape(), {from.strides(), to.strides()});
  Turn turn;
  if (!fits_32_bits(loop) || !find_turn(loop, turn) ||
      !lines_aligned(turn, 8, from.data(), to.data()))
    return false;
  visit_floating("copy", from.dtype(), [&]<class From>(Type<From>) {
    visit_floating("copy", to.dtype(), [&]<class To>(Type<To>) {
      if constexpr (!std::is_same_v<From, To> && sizeof(From) <= 4 && sizeof(To) <= 4)
        turn_and_convert_kernel<<<turn.tiles, 256, 0, native(stream)>>>(pointer<From>(from),
                                                                        pointer<To>(to), turn);
    });
  });
  BS_CUDA_CHECK_LAUNCH("copy");
  return true;
}

}  // namespace

/// Other conversions are of dense tensors: what is not is made dense before, or scattered behind.
void copy(const Tensor& from, const Tensor& to, Stream stream) {
  if (from.dtype() == to.dtype()) return copy_alike(from, to, stream);
  if (turn_and_convert(from, to, stream)) return;
  Tensor source = from, target = to;
  if (!from.is_contiguous()) {
    source = Tensor::empty_like(from);
    copy_alike(from, source, stream);
  }
  if (!to.is_contiguous()) target = Tensor::empty_like(to);
  visit_any(from.dtype(), [&]<class From>(Type<From>) {
    visit_any(to.dtype(), [&]<class To>(Type<To>) {
      if constexpr (!std::is_same_v<From, To>) {
        map<To, From>("copy", Convert<device::wide<device_type<To>>>{}, target, stream, source);
      }
    });
  });
  if (!to.is_contiguous()) copy_alike(target, to, stream);
}

}  // namespace bs::cuda
