#include <bs/kernels/block_sparse_softmax.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_rows.cuh>

namespace bs::cuda {

// A block of threads has the same rows of all matrices that are summed. Its warps take these in
// turns, keep sums in registers, and add them up in a fixed order at the end. So y and dy are read
// once, unless rows are longer than a warp keeps.

namespace {

using namespace block_rows;

/// Warps of a block, at most; lanes that keep many packs have the registers of fewer.
constexpr int most_warps(int held) { return held > 4 ? 8 : 16; }

/// Matrices [before, count, after], of which those along the middle axis are summed.
struct Summed {
  uint32_t count;
  Divisor after;
  int64_t matrix;  ///< elements of one

  /// How far the first of the matrices lies behind where their sum would.
  __device__ int64_t first_behind(uint32_t sum) const {
    return int64_t{after.divide(sum)} * (count - 1) * after.number * matrix;
  }
  __device__ int64_t step() const { return int64_t{after.number} * matrix; }
};

/// Where sums go: as the operands' type, or as that of sums.
template <class T>
struct Sums {
  T* narrow;
  wide<T>* kept;
};

/// Adds up what the warps of a block have, in the first one's registers. `memory` has room for half
/// of them.
template <class W, int count>
__device__ void add_warps(W (&sums)[count], W* memory) {
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    W* const to = memory + (threadIdx.y % half * count * warp + threadIdx.x);
    if (threadIdx.y >= half && threadIdx.y < 2 * half)
#pragma unroll
      for (int i = 0; i < count; ++i) to[i * warp] = sums[i];
    __syncthreads();
    if (threadIdx.y < half)
#pragma unroll
      for (int i = 0; i < count; ++i) sums[i] += to[i * warp];
    __syncthreads();
  }
}

template <class T, int N, int held>
__global__ void __launch_bounds__(warp* most_warps(held))
    sum_gradients_kernel(const T* y, const T* dy, Sums<T> to, const __grid_constant__ Shares shares,
                         const __grid_constant__ Summed summed) {
  using W = wide<T>;
  extern __shared__ uint4 memory[];
  auto* const exchanged = reinterpret_cast<W*>(memory);
  W* const dots = exchanged + blockDim.y / 2 * held * N * warp;  // of long rows
  for_each_row<T, N, held>(shares, blockIdx.x, [&](const Row<T, N, held>& row) {
    typename Row<T, N, held>::Packs result, gradient;
    const int64_t behind = summed.first_behind(row.matrix);
    const auto load = [&](uint32_t matrix, int chunk) {
      const int64_t at = behind + matrix * summed.step();
      row.load(y + at, chunk, result);
      row.load(dy + at, chunk, gradient);
    };
    // Calls f(place, pack number, y, dy).
    const auto for_each = [&](int chunk, auto&& f) {
      row.for_each(chunk, [&](int k, int p) {
        W a[N], b[N];
        device::widen_pack<T, N>(result[k], a);
        device::widen_pack<T, N>(gradient[k], b);
        f(k, p, a, b);
      });
    };
    const auto add_dot = [&](int chunk, W& dot) {
      for_each(chunk, [&](int, int, const W(&a)[N], const W(&b)[N]) {
#pragma unroll
        for (int j = 0; j < N; ++j) dot += a[j] * b[j];
      });
    };
    const int chunks = row.chunks();
    if (chunks > 1) {  // a warp has one row, and reads back its own dots alone
      for (uint32_t m = threadIdx.y; m < summed.count; m += blockDim.y) {
        W dot = 0;
        for (int c = 0; c < chunks; ++c) {
          load(m, c);
          add_dot(c, dot);
        }
        dots[m] = row.reduce(dot, device::Sum{});
      }
    }
    for (int c = 0; c < chunks; ++c) {
      W sums[held * N] = {};
      for (uint32_t m = threadIdx.y; m < summed.count; m += blockDim.y) {
        load(m, c);
        W dot = 0;
        if (chunks > 1) {
          dot = dots[m];
        } else {
          add_dot(c, dot);
          dot = row.reduce(dot, device::Sum{});
        }
        for_each(c, [&](int k, int, const W(&a)[N], const W(&b)[N]) {
#pragma unroll
          for (int j = 0; j < N; ++j) sums[k * N + j] += a[j] * (b[j] - dot);
        });
      }
      add_warps(sums, exchanged);
      if (threadIdx.y > 0) continue;
      row.for_each(c, [&](int k, int p) {
        const auto& of_pack = reinterpret_cast<const W(&)[N]>(sums[k * N]);
        if (to.kept) {
          row.store(to.kept, p, of_pack);
        } else {
          row.store(to.narrow, p, of_pack);
        }
      });
    }
  });
}

/// Warps that share the matrices: as many as keep a GPU busy for several turns, a power of two.
unsigned warps_of(const Shares& shares, int64_t matrices, int most, Device device) {
  constexpr int64_t busy = 64;  // warps of a multiprocessor
  const int64_t wanted = busy * device_properties(device).multiprocessors;
  unsigned warps = 1;
  while (2 * warps <= static_cast<unsigned>(most) && 2 * warps <= matrices &&
         warps * int64_t{shares.count} < wanted)
    warps *= 2;
  return warps;
}

}  // namespace

void block_sparse_softmax_bias_gradient(const Tensor& y, const Tensor& dy, const Layout& layout,
                                        const Tensor& ds, Stream stream) {
  const char* const op = "block_sparse_softmax_bias_gradient";
  const Summed summed{static_cast<uint32_t>(y.size(1)), Divisor(y.size(2)),
                      y.size(3) * y.size(4) * y.size(5)};
  visit_floating(op, y.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    Sums<D> to{};
    if (ds.dtype() == y.dtype()) {
      to.narrow = pointer<T>(ds);
    } else {
      to.kept = ds.data<W>();
    }
    visit_pack<T>(aligned16(y, dy, ds), y.size(5), [&]<int N>(std::integral_constant<int, N>) {
      // Sums need as many registers as operands, so lanes have fewer packs. But of f32 a warp shall
      // read whole lines: 16 blocks of 16 a row took 216 us where it read halves, and 162 so.
      Shares shares = shares_of(layout, ds, N, 2);
      const int64_t bytes = int64_t{layout.block()} * (warp >> shares.log_lanes) * sizeof(T);
      if (sizeof(T) > 2 && bytes < 128) shares = shares_of(layout, ds, N, 4);
      visit_held<N, 8>(layout, shares, [&]<int held>(std::integral_constant<int, held>) {
        const unsigned warps = warps_of(shares, summed.count, most_warps(held), y.device());
        const bool is_long = int64_t{layout.max_row()} * layout.block() / N > held * warp;
        const int64_t numbers = int64_t{warps / 2} * held * N * warp + (is_long ? summed.count : 0);
        sum_gradients_kernel<D, N, held>
            <<<grid_of(op, shares.count), dim3(warp, warps),
               static_cast<size_t>(numbers) * sizeof(W), native(stream)>>>(
                pointer<T>(y), pointer<T>(dy), to, shares, summed);
      });
    });
  });
  BS_CUDA_CHECK_LAUNCH(op);
}

}  // namespace bs::cuda
