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

/// Copies elements of one type, or of one size. The result comes first in the loop.
template <class T>
void copy_elements(const StridedLoop<2>& loop, const T* from, T* to, Stream stream) {
  const Identity<device::wide<T>> identity;
  const Source<T> source{from, {}, false};
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
