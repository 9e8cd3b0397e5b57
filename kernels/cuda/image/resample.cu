#include <bs/kernels/resample.h>
#include <bs/lib/cuda/grid.h>
#include <bs/kernels/cuda/image/held_planes.cuh>
#include <bs/kernels/cuda/image/image_lanes.cuh>
#include <bs/kernels/cuda/image/resample_map.cuh>
#include <bs/kernels/cuda/image/turned_planes.cuh>

#include <algorithm>

namespace bs::cuda {

namespace {

using device::wide;

/// Images of h x w pixels.
struct Extents {
  uint32_t h, w;
};

/// The output of row p and column q; false where no input has a part in it. What it reads of two
/// rows is asked for at once, or of one where it has more inputs.
template <class W, int N, class T, bool planes, int several, int most>
__device__ bool sum_inputs(const ImageLanes<T, N, planes, several>& from, uint32_t w,
                           uint32_t packs, FewEach<W, most> rows, FewEach<W, most> columns,
                           uint32_t p, uint32_t q, W (&sum)[several][N]) {
  using Lanes = ImageLanes<T, N, planes, several>;
  constexpr int together = most > 2 ? 1 : most;
  const Few<W, most> row = rows.of[p], column = columns.of[q];
  if ((row.from[0] | column.from[0]) < 0) return false;
#pragma unroll
  for (int first = 0; first < most; first += together) {
    typename Lanes::Raw raw[several][together][most];
#pragma unroll
    for (int r = 0; r < together; ++r)
#pragma unroll
      for (int s = 0; s < most; ++s) {
        const uint32_t pixel =
            static_cast<uint32_t>(row.from[first + r]) * w + static_cast<uint32_t>(column.from[s]);
#pragma unroll
        for (int u = 0; u < several; ++u) raw[u][r][s] = from.raw(pixel * packs, u);
      }
#pragma unroll
    for (int u = 0; u < several; ++u)
#pragma unroll
      for (int r = 0; r < together; ++r) {
        W of_row[N] = {};
#pragma unroll
        for (int s = 0; s < most; ++s) {
          W v[N];
          device::widen_pack<typename Lanes::Element, N>(raw[u][r][s], v);
#pragma unroll
          for (int k = 0; k < N; ++k) of_row[k] += column.weights[s] * v[k];
        }
#pragma unroll
        for (int k = 0; k < N; ++k) sum[u][k] += row.weights[first + r] * of_row[k];
      }
  }
  return true;
}

template <class W, int N, class T, bool planes, int several>
__device__ bool sum_inputs(const ImageLanes<T, N, planes, several>& from, uint32_t w,
                           uint32_t packs, Lists<W> rows, Lists<W> columns, uint32_t p, uint32_t q,
                           W (&sum)[several][N]) {
  const int first_row = rows.offsets[p], last_row = rows.offsets[p + 1];
  const int first_column = columns.offsets[q], last_column = columns.offsets[q + 1];
  for (int s = first_column; s < last_column; ++s) {
    const auto column = static_cast<uint32_t>(columns.from[s]);
    W of_column[several][N] = {};
#pragma unroll 4
    for (int r = first_row; r < last_row; ++r) {
      const uint32_t pixel = static_cast<uint32_t>(rows.from[r]) * w + column;
      const W weight = rows.weights[r];
#pragma unroll
      for (int u = 0; u < several; ++u) {
        W v[N];
        from.load(pixel * packs, v, u);
#pragma unroll
        for (int k = 0; k < N; ++k) of_column[u][k] += weight * v[k];
      }
    }
    const W weight = columns.weights[s];
#pragma unroll
    for (int u = 0; u < several; ++u)
#pragma unroll
      for (int k = 0; k < N; ++k) sum[u][k] += weight * of_column[u][k];
  }
  return first_row < last_row && first_column < last_column;
}

/// A column of an output, which a thread walks down. What the column makes of the rows that it read
/// last stays with the thread: the next output mostly needs some of them again. The sums are those
/// of sum_inputs(), bit by bit.
template <class W, int N, class Lanes, int most>
struct ColumnSums {
  static constexpr int together = most == 2 ? 2 : 1;  ///< rows that are asked for at once

  Lanes from;
  uint32_t w, packs;
  const Few<W, most>* rows;
  Few<W, most> column;
  int row[most];  ///< that are held; -1 for none
  W of_row[most][N];

  __device__ ColumnSums(const Lanes& lanes, uint32_t width, uint32_t packs_of_pixel,
                        FewEach<W, most> all_rows, FewEach<W, most> columns, uint32_t q)
      : from(lanes), w(width), packs(packs_of_pixel), rows(all_rows.of), column(columns.of[q]) {
#pragma unroll
    for (int r = 0; r < most; ++r) row[r] = -1;
  }

  /// The output of row p, which is `outside` where no input has a part in it.
  __device__ void sum(uint32_t p, W outside, W (&sums)[N]) {
    const Few<W, most> wanted = rows[p];
    const bool is_outside = (wanted.from[0] | column.from[0]) < 0;
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k] = is_outside ? outside : W(0);
    if (is_outside) return;
    keep_from(wanted.from[0]);
#pragma unroll
    for (int first = 0; first < most; first += together) {
      typename Lanes::Raw raw[together][most];
#pragma unroll
      for (int r = 0; r < together; ++r)
        if (row[first + r] != wanted.from[first + r]) load(wanted.from[first + r], raw[r]);
#pragma unroll
      for (int r = 0; r < together; ++r)
        if (row[first + r] != wanted.from[first + r]) add_columns(raw[r], of_row[first + r]);
    }
#pragma unroll
    for (int r = 0; r < most; ++r) row[r] = wanted.from[r];
#pragma unroll
    for (int r = 0; r < most; ++r)
#pragma unroll
      for (int k = 0; k < N; ++k) sums[k] += wanted.weights[r] * of_row[r][k];
  }

 private:
  /// Moves the rows from `first` on, if it is held, to the front.
  __device__ void keep_from(int first) {
#pragma unroll
    for (int s = 1; s < most; ++s) {
      if (row[0] == first || row[s] != first) continue;
#pragma unroll
      for (int r = 0; r + s < most; ++r) {
        row[r] = row[r + s];
#pragma unroll
        for (int k = 0; k < N; ++k) of_row[r][k] = of_row[r + s][k];
      }
#pragma unroll
      for (int r = most - s; r < most; ++r) row[r] = -1;
    }
  }
  __device__ void load(int line, typename Lanes::Raw (&raw)[most]) const {
#pragma unroll
    for (int s = 0; s < most; ++s) {
      const uint32_t pixel =
          static_cast<uint32_t>(line) * w + static_cast<uint32_t>(column.from[s]);
      raw[s] = from.raw(pixel * packs);
    }
  }
  __device__ void add_columns(const typename Lanes::Raw (&raw)[most], W (&sums)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k] = 0;
#pragma unroll
    for (int s = 0; s < most; ++s) {
      W v[N];
      device::widen_pack<typename Lanes::Element, N>(raw[s], v);
#pragma unroll
      for (int k = 0; k < N; ++k) sums[k] += column.weights[s] * v[k];
    }
  }
};

/// A thread a place of an output, and of channels `several` packs of it. Planes are left to the
/// compiler's choice of registers, which lets more blocks in.
template <class T, int N, bool planes, int several, class Axis>
__global__ void __launch_bounds__(256, planes ? 0 : 2)
    resample_kernel(const T* x, T* y, const __grid_constant__ Extents e,
                    const __grid_constant__ ImageWalk walk, const __grid_constant__ MapWords map,
                    Axis rows, Axis columns, wide<T> outside, uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const ImageWalk::Place at = walk.place(i);
  wide<T> sum[several][N] = {};
  if (!sum_inputs(walk.lanes<N, planes, several>(x, e.h * e.w, at), e.w, walk.packs.number,
                  rows.in(map), columns.in(map), at.line, at.column, sum)) {
#pragma unroll
    for (int u = 0; u < several; ++u)
#pragma unroll
      for (int k = 0; k < N; ++k) sum[u][k] = outside;
  }
#pragma unroll
  for (int u = 0; u < several; ++u)
    walk.own<N, planes, several>(y, at).store(walk.own_place<planes, several>(at), sum[u], u);
}

/// The same of planes that are held.
template <class T, class Axis>
__global__ void __launch_bounds__(HeldPlanes::threads)
    resample_held_kernel(const T* x, T* y, const __grid_constant__ Extents e,
                         const __grid_constant__ HeldPlanes planes,
                         const __grid_constant__ MapWords map, Axis rows, Axis columns,
                         wide<T> outside) {
  constexpr int N = HeldPlanes::together;
  extern __shared__ uint4 memory[];
  const uint32_t size = e.h * e.w, pixels = planes.pixels.number;
  const uint32_t before = planes.packs(size * sizeof(T)), after = planes.packs(pixels * sizeof(T));
  planes.load(memory, x, before);
  planes.wait();
  planes.for_each_pixel([&](uint32_t plane, uint32_t line, uint32_t column) {
    const ImageLanes<const T, N, true> in{reinterpret_cast<const T*>(memory) + plane * size, size};
    wide<T> sum[1][N] = {};
    if (!sum_inputs(in, e.w, 1, rows.in(map), columns.in(map), line, column, sum)) {
#pragma unroll
      for (int k = 0; k < N; ++k) sum[0][k] = outside;
    }
    const ImageLanes<T, N, true> out{reinterpret_cast<T*>(memory + before) + plane * pixels,
                                     pixels};
    out.store(line * planes.columns.number + column, sum[0]);
  });
  __syncthreads();
  planes.store(memory + before, y, after);
}

/// Images, what they are enlarged to, and how many lines of it a thread walks down.
struct Enlargement {
  Extents x, y;
  uint32_t lines;
};

/// A thread walks down a column of a pack of channels.
template <class T, int N, int most>
__global__ void __launch_bounds__(256, 2)
    enlarge_kernel(const T* x, T* y, const __grid_constant__ Enlargement e,
                   const __grid_constant__ ImageWalk walk, const __grid_constant__ MapWords map,
                   FewAt<wide<T>, most> rows, FewAt<wide<T>, most> columns, wide<T> outside,
                   uint32_t count) {
  using W = wide<T>;
  using In = ImageLanes<const T, N, false>;
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const ImageWalk::Place at = walk.place(i);
  const auto out = walk.lanes<N, false>(y, e.y.h * e.y.w, at);
  ColumnSums<W, N, In, most> column(walk.lanes<N, false>(x, e.x.h * e.x.w, at), e.x.w,
                                    walk.packs.number, rows.in(map), columns.in(map), at.column);
  const uint32_t first = at.line * e.lines, end = min(first + e.lines, e.y.h);
#pragma unroll 1
  for (uint32_t p = first; p < end; ++p) {
    W sums[N];
    column.sum(p, outside, sums);
    out.store((p * e.y.w + at.column) * walk.packs.number, sums);
  }
}

/// What threads walk of planes that are held turned: so many lines of a column at a time.
struct TurnedWalk {
  Divisor columns, stretches;
  uint32_t lines, pixels;  ///< lines of a stretch; pixels of a plane
  uint32_t of_y;           ///< lines of a plane
  uint32_t planes;         ///< of a block
  Divisor runs, runs_of_y;
};

template <class T, int most>
__global__ void __launch_bounds__(HeldPlanes::threads)
    resample_turned_kernel(const T* x, T* y, const __grid_constant__ Extents e,
                           const __grid_constant__ TurnedWalk walk,
                           const __grid_constant__ MapWords map, FewAt<wide<T>, most> rows,
                           FewAt<wide<T>, most> columns, wide<T> outside) {
  using W = wide<T>;
  using Planes = TurnedPlanes<T>;
  constexpr int N = Planes::N;
  extern __shared__ uint4 memory[];
  const uint32_t size = e.h * e.w, groups = walk.planes / N;
  const uint64_t first_plane = uint64_t{blockIdx.x} * walk.planes;
  const Planes in{reinterpret_cast<typename Planes::Raw*>(memory)};
  const Planes out{in.data + groups * Planes::packs(size)};
  in.load(x + first_plane * size, walk.runs, groups);
  __syncthreads();
  const uint32_t stretches = walk.stretches.number * walk.columns.number;
  for (uint32_t i = threadIdx.x; i < groups * stretches; i += HeldPlanes::threads) {
    const uint32_t stretch = walk.columns.divide(i), q = i - stretch * walk.columns.number;
    const uint32_t group = walk.stretches.divide(stretch);
    const uint32_t first = (stretch - group * walk.stretches.number) * walk.lines;
    const uint32_t end = min(first + walk.lines, walk.of_y);
    ColumnSums<W, N, Planes, most> column(in.group(group, size), e.w, 1, rows.in(map),
                                          columns.in(map), q);
    const Planes to = out.group(group, walk.pixels);
#pragma unroll 1
    for (uint32_t p = first; p < end; ++p) {
      W sums[N];
      column.sum(p, outside, sums);
      to.store(p * walk.columns.number + q, sums);
    }
  }
  __syncthreads();
  out.unload(y + first_plane * walk.pixels, walk.runs_of_y, groups);
}

/// A resampling to be launched, of axes of one kind.
template <class T, class Axis>
struct Resampling {
  using D = device_type<T>;
  using W = wide<D>;

  const DeviceMap& lists;
  Axis rows, columns;
  const Tensor &x, &y;
  W outside;
  Stream stream;

  static Extents extents(const Tensor& images) {
    return {static_cast<uint32_t>(images.size(1)), static_cast<uint32_t>(images.size(2))};
  }
  static size_t plane_bytes(const Tensor& images) {
    return static_cast<size_t>(images.size(1) * images.size(2)) * sizeof(D);
  }

  /// Whether planes are held turned; then it is done.
  bool turned() const {
    constexpr size_t N = TurnedPlanes<D>::N, usual_bytes = 24 << 10;
    const size_t before = plane_bytes(x) / N * (N + 1), after = plane_bytes(y) / N * (N + 1);
    if (plane_bytes(x) % 16 != 0 || plane_bytes(y) % 16 != 0 || !aligned16(x, y)) return false;
    const HeldPlanes planes = held_planes(y, {before, after}, usual_bytes);
    if (planes.count == 0) return false;
    const Extents e = extents(x), of_y = extents(y);
    const int64_t columns_of_block = planes.count / N * int64_t{of_y.w};
    int64_t lines = 8;
    while (lines > 1 && columns_of_block * ceil_div(of_y.h, lines) < HeldPlanes::threads / 2)
      lines /= 2;
    const TurnedWalk walk{planes.columns,
                          Divisor(ceil_div(of_y.h, lines)),
                          static_cast<uint32_t>(lines),
                          planes.pixels.number,
                          of_y.h,
                          planes.count,
                          Divisor(int64_t{e.h} * e.w / static_cast<int64_t>(N)),
                          Divisor(planes.pixels.number / static_cast<int64_t>(N))};
    resample_turned_kernel<D, Axis::few>
        <<<grid_of("resample", x.size(0) / planes.count), HeldPlanes::threads,
           planes.count*(before + after), native(stream)>>>(pointer<T>(x), pointer<T>(y), e, walk,
                                                            lists.words(), rows, columns, outside);
    BS_CUDA_CHECK_LAUNCH("resample");
    return true;
  }

  /// The same of planes that are held as they lie.
  bool held() const {
    const size_t before = plane_bytes(x), after = plane_bytes(y);
    const HeldPlanes planes = held_planes(y, {before, after});
    if (planes.count == 0 || !aligned16(x, y)) return false;
    resample_held_kernel<D, Axis>
        <<<grid_of("resample", x.size(0) / planes.count), HeldPlanes::threads,
           planes.count*(before + after), native(stream)>>>(pointer<T>(x), pointer<T>(y),
                                                            extents(x), planes, lists.words(), rows,
                                                            columns, outside);
    BS_CUDA_CHECK_LAUNCH("resample");
    return true;
  }

  /// The same of packs of channels that are enlarged, where the GPU is full even so.
  template <int N>
  bool enlarged() const {
    constexpr uint32_t lines = 4;
    constexpr int64_t threads = 2048;
    const int multiprocessors = device_properties(x.device()).multiprocessors;
    if (y.numel() <= x.numel() || y.numel() / N / lines < threads * multiprocessors) return false;
    walk_images<N, false>(
        "resample", y,
        [&](int64_t image, const ImageWalk& walk, uint32_t count) {
          enlarge_kernel<D, N>
              <<<grid_of("resample", ceil_div(count, 256)), 256, 0, native(stream)>>>(
                  pointer<T>(x) + image * (x.numel() / x.size(0)),
                  pointer<T>(y) + image * (y.numel() / y.size(0)),
                  Enlargement{extents(x), extents(y), lines}, walk, lists.words(), rows, columns,
                  outside, count);
          BS_CUDA_CHECK_LAUNCH("resample");
        },
        lines);
    return true;
  }

  template <int N, bool planes, int several>
  void lanes() const {
    check_read<N, planes>("resample", x);
    walk_images<N * several, planes>(
        "resample", y, [&](int64_t image, const ImageWalk& walk, uint32_t count) {
          resample_kernel<D, N, planes, several, Axis>
              <<<grid_of("resample", ceil_div(count, 256)), 256, 0, native(stream)>>>(
                  pointer<T>(x) + image * (x.numel() / x.size(0)),
                  pointer<T>(y) + image * (y.numel() / y.size(0)), extents(x), walk, lists.words(),
                  rows, columns, outside, count);
          BS_CUDA_CHECK_LAUNCH("resample");
        });
  }

  void launch() const {
    // In f32 two inputs an axis are read as fast from planes as they lie.
    if constexpr (Axis::few > 2 || (Axis::few == 2 && sizeof(D) == 2))
      if (turned()) return;
    if (held()) return;
    visit_image_lanes<T>(
        aligned16(x, y), x, y,
        [&]<int N, bool planes>(std::integral_constant<int, N>, std::bool_constant<planes>) {
          if constexpr (!planes && N > 1) {
            if constexpr (Axis::few == 2)
              if (enlarged<N>()) return;
            // Where y is much smaller, a thread reads enough for one pack of it.
            if (x.size(3) % (2 * N) == 0 && 2 * y.numel() > x.numel()) return lanes<N, planes, 2>();
          }
          lanes<N, planes, 1>();
        });
  }
};

}  // namespace

void resample(const ImageMap& map, const Tensor& x, double outside, const Tensor& y,
              Stream stream) {
  visit_floating("resample", x.dtype(), [&]<class T>(Type<T>) {
    using W = wide<device_type<T>>;
    const DeviceMap lists(map, x.device(), Type<W>{});
    lists.visit(Type<W>{}, [&]<class Axis>(const Axis& rows, const Axis& columns) {
      Resampling<T, Axis>{lists, rows, columns, x, y, static_cast<W>(outside), stream}.launch();
    });
  });
}

}  // namespace bs::cuda
