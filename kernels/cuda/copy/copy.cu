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

/// Turns elements of any size whose lines lie anywhere: a thread moves one at a time.
template <class T>
__global__ void __launch_bounds__(256)
    turn_kernel(const T* from, T* to, const __grid_constant__ Turn<2> turn) {
  __shared__ T square[turn_edge][turn_edge + 4 / sizeof(T) + (sizeof(T) > 4)];
  const unsigned lane = threadIdx.x % turn_edge, first = threadIdx.x / turn_edge;
  constexpr unsigned lines = 256 / turn_edge;
  const auto [at, x0, y0] = turn.tile(blockIdx.x);
#pragma unroll 4
  for (unsigned i = first; i < turn_edge; i += lines)
    if (x0 + i < turn.nx && y0 + lane < turn.ny)
      square[i][lane] = from[at[1] + turn.line(1, x0 + i) + static_cast<int>(y0 + lane)];
  __syncthreads();
#pragma unroll 4
  for (unsigned i = first; i < turn_edge; i += lines)
    if (y0 + i < turn.ny && x0 + lane < turn.nx)
      to[at[0] + turn.line(0, y0 + i) + static_cast<int>(x0 + lane)] = square[lane][i];
}

/// Every second element of two vectors.
template <class T, class Raw>
__device__ Raw every_second(const Raw& low, const Raw& high) {
  Raw out;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const Raw& half = w < 2 ? low : high;
    const unsigned first = half.at[w % 2 * 2], second = half.at[w % 2 * 2 + 1];
    out.at[w] =
        sizeof(T) == 4 ? first : __byte_perm(first, second, sizeof(T) == 2 ? 0x5410 : 0x6420);
  }
  return out;
}

/// The vector that begins at a byte of the first of two.
template <class T, class Raw>
__device__ Raw from_byte(const Raw& low, const Raw& high, unsigned byte) {
  unsigned words[8], moved[6];
#pragma unroll
  for (int w = 0; w < 8; ++w) words[w] = w < 4 ? low.at[w] : high.at[w - 4];
#pragma unroll
  for (int w = 0; w < 6; ++w) moved[w] = byte & 8 ? words[w + 2] : words[w];
#pragma unroll
  for (int w = 0; w < 5; ++w) moved[w] = byte & 4 ? moved[w + 1] : moved[w];
  Raw out;
#pragma unroll
  for (int w = 0; w < 4; ++w)
    out.at[w] = sizeof(T) < 4 ? __funnelshift_r(moved[w], moved[w + 1], byte % 4 * 8) : moved[w];
  return out;
}

/// Vectors of elements `step` apart, one or two, each of the two vectors of the source that they
/// lie in. A pair that reaches beyond the tensor is read element by element.
template <class T, int step>
__global__ void __launch_bounds__(256)
    copy_pairs_kernel(const T* from, const T* end, T* to, const __grid_constant__ Walk<2> walk,
                      uint32_t count) {
  constexpr int N = device::pack_size<T>;
  using Raw = device::Raw<T, N>;
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i >= count) return;
  int32_t at[2];
  walk.locate(i, at);
  const T* const first = from + at[1];
  const auto byte = static_cast<unsigned>(reinterpret_cast<uintptr_t>(first) % sizeof(Raw));
  const T* const whole = first - byte / sizeof(T);
  if (whole < from || end - whole < 2 * N) {
    for (int k = 0; k < N; ++k) to[at[0] + k] = first[step * k];
    return;
  }
  const auto* const pair = reinterpret_cast<const Raw*>(whole);
  const Raw low = pair[0], high = pair[1];
  auto& out = *reinterpret_cast<Raw*>(to + at[0]);
  if constexpr (step == 2) {
    out = every_second<T>(low, high);
  } else {
    out = from_byte<T>(low, high, byte);
  }
}

/// Copies lines of whole vectors, of which the source has every second element, or neighbours where
/// no vector begins; says whether it has.
template <class T>
bool copy_pairs(const StridedLoop<2>& loop, const T* from, T* to, Stream stream) {
  constexpr int N = device::pack_size<T>;
  const bool seconds = loop.inner_stride(1) == 2;
  if (loop.inner() % N != 0 || !detail::packable<N>(loop, 0, to)) return false;
  if (seconds ? sizeof(T) > 4 : loop.inner_stride(1) != 1) return false;
  bool whole = reinterpret_cast<uintptr_t>(from) % 16 == 0;
  int64_t last = (loop.inner() - 1) * loop.inner_stride(1);
  for (int axis = 0; axis < loop.rank - 1; ++axis) {
    whole = whole && loop.strides[1][axis] % N == 0;
    last += (loop.shape[axis] - 1) * loop.strides[1][axis];
  }
  if (whole != seconds) return false;
  const auto count = static_cast<uint32_t>(loop.numel() / N);
  auto* const kernel = seconds ? &copy_pairs_kernel<T, 2> : &copy_pairs_kernel<T, 1>;
  kernel<<<static_cast<unsigned>(ceil_div(count, 256)), 256, 0, native(stream)>>>(
      from, from + last + 1, to, Walk<2>(loop, N), count);
  return true;
}

/// Copies elements of one type, or of one size. The result comes first in the loop.
template <class T>
void copy_elements(const StridedLoop<2>& loop, const T* from, T* to, Stream stream) {
  const Identity<device::wide<T>> identity;
  const Source<T> source{from, {}, false};
  if (copy_pairs(loop, from, to, stream)) return;
  if (detail::launch_turned(identity, loop, to, stream, source)) return;
  Turn<2> turn;
  if (find_turn(loop, turn)) {
    turn_kernel<<<turn.tiles, 256, 0, native(stream)>>>(from, to, turn);
    return;
  }
  detail::launch_part(identity, loop, to, stream, source);
}

template <class T>
void copy_alike(const Tensor& from, const Tensor& to, Stream stream) {
  const auto loop = ordered_loop<2>(from.shape(), {to.strides(), from.strides()});
  for_each_part(loop, {}, [&](const StridedLoop<2>& part, const Offsets<2>& at) {
    copy_elements(part, static_cast<const T*>(from.data()) + at[1],
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

}  // namespace

void copy(const Tensor& from, const Tensor& to, Stream stream) {
  if (from.dtype() == to.dtype()) return copy_alike(from, to, stream);
  visit_any(from.dtype(), [&]<class From>(Type<From>) {
    visit_any(to.dtype(), [&]<class To>(Type<To>) {
      if constexpr (!std::is_same_v<From, To>)
        map<To, From>("copy", Convert<device::wide<device_type<To>>>{}, to, stream, from);
    });
  });
}

}  // namespace bs::cuda
