#include <bs/kernels/resample.h>
#include <bs/lib/cuda/grid.h>
#include <bs/lib/cuda/upload.h>
#include <bs/kernels/cuda/image/held_planes.cuh>
#include <bs/kernels/cuda/image/image_lanes.cuh>

#include <algorithm>
#include <array>
#include <cstring>

namespace bs::cuda {

namespace {

using device::wide;

/// What an axis makes an output of, where that is a few inputs: where there are fewer, the last one
/// comes in parts, so that all are read without a condition.
template <class W, int most>
struct alignas(sizeof(W) == 8 || most == 3 ? 8 : 8 * most) Few {
  int from[most];  ///< -1 where there is none
  W weights[most];
};

/// Both axes in one piece of memory. A few pixels go along with the launch, which costs no copy.
struct MapWords {
  static constexpr size_t most = 896;
  const int32_t* uploaded = nullptr;  ///< null where they are here
  alignas(16) int32_t words[most];

  /// The list that begins at word `first`.
  template <class E>
  __device__ const E* at(uint32_t first) const {
    return reinterpret_cast<const E*>((uploaded ? uploaded : words) + first);
  }
};

/// An axis as such outputs, and where they begin.
template <class W, int most>
struct FewEach {
  const Few<W, most>* of;
};
template <class W, int most>
struct FewAt {
  uint32_t first;

  __device__ FewEach<W, most> in(const MapWords& map) const {
    return {map.at<Few<W, most>>(first)};
  }
};

/// An axis as lists of any length, and where they begin.
template <class W>
struct Lists {
  const int* offsets;
  const int* from;
  const W* weights;
};
template <class W>
struct ListsAt {
  uint32_t offsets, from, weights;

  __device__ Lists<W> in(const MapWords& map) const {
    return {map.at<int>(offsets), map.at<int>(from), map.at<W>(weights)};
  }
};

int most_inputs(const AxisMap& map) {
  int most = 0;
  for (size_t o = 1; o < map.offsets().size(); ++o)
    most = std::max(most, map.offsets()[o] - map.offsets()[o - 1]);
  return most;
}

/// Rows before columns; what may have eight bytes comes first.
class DeviceMap {
 public:
  template <class W>
  DeviceMap(const ImageMap& map, Device device, Type<W>)
      : most_(std::max(most_inputs(map.rows), most_inputs(map.columns))) {
    const AxisMap* const axes[] = {&map.rows, &map.columns};
    const bool are_few = visit_most([&]<int most>(std::integral_constant<int, most>) {
      for (size_t i = 0; i < 2; ++i) put<Few<W, most>>(few_of<W, most>(*axes[i]), at_[i][0]);
    });
    for (size_t i = 0; !are_few && i < 2; ++i)
      put<W>({axes[i]->weights().begin(), axes[i]->weights().end()}, at_[i][0]);
    for (size_t i = 0; !are_few && i < 2; ++i) {
      put<int>(axes[i]->offsets(), at_[i][1]);
      put<int>(axes[i]->from(), at_[i][2]);
    }
    if (words_.size() <= MapWords::most) {
      std::memcpy(map_.words, words_.data(), words_.size() * sizeof(int32_t));
    } else {
      memory_ = upload(words_, device);
      map_.uploaded = static_cast<const int32_t*>(memory_.data());
    }
  }
  const MapWords& words() const { return map_; }

  /// Calls f(rows, columns) with the kind of lists that there are.
  template <class W, class F>
  void visit(Type<W>, F&& f) const {
    const bool are_few = visit_most(
        [&]<int most>(std::integral_constant<int, most>) { f(few<W, most>(0), few<W, most>(1)); });
    if (!are_few) f(lists<W>(0), lists<W>(1));
  }

 private:
  /// Calls f with the inputs of an output, where they are few; says whether they are.
  template <class F>
  bool visit_most(F&& f) const {
    if (most_ <= 1) {
      f(std::integral_constant<int, 1>{});
    } else if (most_ == 2) {
      f(std::integral_constant<int, 2>{});
    } else if (most_ == 3) {
      f(std::integral_constant<int, 3>{});
    } else if (most_ == 4) {
      f(std::integral_constant<int, 4>{});
    }
    return most_ <= 4;
  }
  template <class W, int most>
  static std::vector<Few<W, most>> few_of(const AxisMap& map) {
    std::vector<Few<W, most>> all(static_cast<size_t>(map.outputs()));
    for (size_t o = 0; o < all.size(); ++o) {
      const int first = map.offsets()[o], inputs = map.offsets()[o + 1] - first;
      double part = 1;
      for (int place = 0; place < most; ++place) {
        const auto i = static_cast<size_t>(first + std::min(place, inputs - 1));
        if (place >= inputs - 1 && place < most - 1) part /= 2;  // the last two parts are alike
        all[o].from[place] = inputs > 0 ? map.from()[i] : -1;
        all[o].weights[place] = inputs > 0 ? static_cast<W>(map.weights()[i] * part) : W(0);
      }
    }
    return all;
  }
  template <class E>
  void put(const std::vector<E>& elements, size_t& first) {
    first = words_.size();
    const size_t bytes = elements.size() * sizeof(E);
    words_.resize(first + bytes / sizeof(int32_t));
    if (bytes > 0) std::memcpy(words_.data() + first, elements.data(), bytes);
  }
  uint32_t at(size_t axis, size_t list) const { return static_cast<uint32_t>(at_[axis][list]); }
  template <class W, int most>
  FewAt<W, most> few(size_t axis) const {
    return {at(axis, 0)};
  }
  template <class W>
  ListsAt<W> lists(size_t axis) const {
    return {at(axis, 1), at(axis, 2), at(axis, 0)};
  }

  int most_;  ///< inputs of an output
  std::vector<int32_t> words_;
  std::array<std::array<size_t, 3>, 2> at_{};  ///< of each axis: weights or few, offsets, from
  MapWords map_;
  Tensor memory_;
};

/// Images of h x w pixels.
struct Extents {
  uint32_t h, w;
};

/// The output of row p and column q; false where no input has a part in it. What it reads of two
/// columns is asked for at once, or of one where it has more inputs.
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
    for (int s = 0; s < together; ++s)
#pragma unroll
      for (int r = 0; r < most; ++r) {
        const uint32_t pixel =
            static_cast<uint32_t>(row.from[r]) * w + static_cast<uint32_t>(column.from[first + s]);
#pragma unroll
        for (int u = 0; u < several; ++u) raw[u][s][r] = from.raw(pixel * packs, u);
      }
#pragma unroll
    for (int u = 0; u < several; ++u)
#pragma unroll
      for (int s = 0; s < together; ++s) {
        W of_column[N] = {};
#pragma unroll
        for (int r = 0; r < most; ++r) {
          W v[N];
          device::widen_pack<typename Lanes::Element, N>(raw[u][s][r], v);
#pragma unroll
          for (int k = 0; k < N; ++k) of_column[k] += row.weights[r] * v[k];
        }
#pragma unroll
        for (int k = 0; k < N; ++k) sum[u][k] += column.weights[first + s] * of_column[k];
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

}  // namespace

void resample(const ImageMap& map, const Tensor& x, double outside, const Tensor& y,
              Stream stream) {
  const Extents e{static_cast<uint32_t>(x.size(1)), static_cast<uint32_t>(x.size(2))};
  visit_floating("resample", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    using W = wide<D>;
    const DeviceMap lists(map, x.device(), Type<W>{});
    const size_t before = size_t{e.h} * e.w * sizeof(D),
                 after = static_cast<size_t>(y.size(1) * y.size(2)) * sizeof(D);
    if (const HeldPlanes planes = held_planes(y, {before, after});
        planes.count > 0 && aligned16(x, y)) {
      lists.visit(Type<W>{}, [&]<class Axis>(const Axis& rows, const Axis& columns) {
        resample_held_kernel<D, Axis>
            <<<grid_of("resample", x.size(0) / planes.count), HeldPlanes::threads,
               planes.count*(before + after), native(stream)>>>(pointer<T>(x), pointer<T>(y), e,
                                                                planes, lists.words(), rows,
                                                                columns, static_cast<W>(outside));
      });
      return BS_CUDA_CHECK_LAUNCH("resample");
    }
    const auto run = [&]<int N, bool planes, int several>(std::integral_constant<int, N>,
                                                          std::bool_constant<planes>,
                                                          std::integral_constant<int, several>) {
      walk_images<N * several, planes>(
          "resample", y, [&](int64_t image, const ImageWalk& walk, uint32_t count) {
            lists.visit(Type<W>{}, [&]<class Axis>(const Axis& rows, const Axis& columns) {
              resample_kernel<D, N, planes, several, Axis>
                  <<<grid_of("resample", ceil_div(count, 256)), 256, 0, native(stream)>>>(
                      pointer<T>(x) + image * (x.numel() / x.size(0)),
                      pointer<T>(y) + image * (y.numel() / y.size(0)), e, walk, lists.words(), rows,
                      columns, static_cast<W>(outside), count);
              BS_CUDA_CHECK_LAUNCH("resample");
            });
          });
    };
    visit_image_lanes<T>(aligned16(x, y), x, y,
                         [&]<int N, bool planes>(std::integral_constant<int, N> n,
                                                 std::bool_constant<planes> are_planes) {
                           // Where y is much smaller, a thread reads enough for one pack of it.
                           if constexpr (!planes && N > 1)
                             if (x.size(3) % (2 * N) == 0 && 2 * y.numel() > x.numel())
                               return run(n, are_planes, std::integral_constant<int, 2>{});
                           run(n, are_planes, std::integral_constant<int, 1>{});
                         });
  });
}

}  // namespace bs::cuda
